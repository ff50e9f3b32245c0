//! Ids of tool calls. On the bus each is new and cannot be guessed; within it is the server's own, for the server:
//! `call_<time><random>[k]-<the server's>`, with `k` where something is kept that goes back with the call (see `kept`).
//! So whoever keeps the conversation need not know of it.

const START: &str = "call_";
/// Seconds since 1970, and 128 random bits, in hexadecimal digits.
const DIGITS: usize = 8 + 32;
const KEPT: char = 'k';
/// The longest id of a server that is kept.
const GIVEN: usize = 64;

/// An id for the bus. `given` is the server's, empty for none. None: there are too few random bytes.
pub(crate) fn new(seconds: u64, random: &[u8], given: &str, keeps: bool) -> Option<String> {
    let random = random.get(..16)?;
    let mut id = format!("{START}{:08x}", seconds & 0xffff_ffff);
    random.iter().for_each(|byte| id.push_str(&format!("{byte:02x}")));
    if keeps {
        id.push(KEPT);
    }
    id.push('-');
    id.push_str(if fits(given) { given } else { "" });
    Some(id)
}

/// Whether an id of a server can stand within one of the bus.
fn fits(given: &str) -> bool {
    given.len() <= GIVEN && given.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The part of an id that something is kept by, if something is.
pub(crate) fn kept_by(id: &str) -> Option<&str> {
    let (name, rest) = id.split_at_checked(START.len() + DIGITS)?;
    (is_ours(name) && rest.starts_with(KEPT)).then_some(name)
}

/// The id by which the server knows a call. One that the server did not give, or gave to another one, is of the nine
/// letters and digits that every server takes.
pub(crate) fn for_server(id: &str, is_strict: bool) -> String {
    let ours = id.split_at_checked(START.len() + DIGITS).filter(|(name, _)| is_ours(name));
    let given = ours.map_or(Some(id), |(_, rest)| rest.split_once('-').map(|(_, given)| given));
    match given {
        Some(given) if !given.is_empty() && (!is_strict || nine(given)) => given.to_owned(),
        _ => made_up(id),
    }
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(START).is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn nine(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Nine letters and digits, the same for the same id.
pub(crate) fn made_up(id: &str) -> String {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut number = crate::names::hash(id);
    (0..9)
        .map(|_| {
            let letter = LETTERS[(number % 36) as usize];
            number /= 36;
            char::from(letter)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: [u8; 16] = [0xab; 16];

    #[test]
    fn the_servers_own_id_goes_back_to_it() {
        for given in ["call_1", "c", "a-b", "chatcmpl-tool-0123456789abcdef", &"x".repeat(64)] {
            for keeps in [true, false] {
                let id = new(1, &RANDOM, given, keeps).unwrap();
                assert_eq!(for_server(&id, false), given);
                assert!(id.len() <= 120 && kept_by(&id).is_some() == keeps, "{id}");
            }
        }
    }

    #[test]
    fn an_id_that_was_not_given_or_cannot_stand_in_another_is_one_that_every_server_takes() {
        for given in ["", &"x".repeat(65), "a b", "é", "a\nb"] {
            let id = new(1, &RANDOM, given, false).unwrap();
            let told = for_server(&id, true);
            assert!(nine(&told) && told == for_server(&id, false), "{told}");
        }
        assert_eq!(for_server("call_1", true).len(), 9);
        assert_eq!(for_server("abcDEF123", true), "abcDEF123");
    }

    #[test]
    fn ids_of_others_are_as_they_are() {
        for id in ["call_1", "call_abcdef", "", "call_é", &format!("call_{}", "z".repeat(50))] {
            assert_eq!(kept_by(id), None);
            if !id.is_empty() {
                assert_eq!(for_server(id, false), id);
            }
        }
    }

    #[test]
    fn without_random_bytes_there_is_none() {
        assert_eq!(new(1, &[0; 15], "c", false), None);
    }
}
