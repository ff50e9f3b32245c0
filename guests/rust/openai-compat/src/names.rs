//! Names of tools. Servers take at most 64 letters, digits, `-` and `_`; a name that has more or others gets one by
//! which it is known for the time of a request, always the same for the same name.

use std::collections::BTreeMap;

const MOST: usize = 64;

/// The tools of one request by the names that the server knows them by.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// The server's name of a tool; it will be known when the server says it.
    pub(crate) fn told(&mut self, name: &str) -> String {
        let told = told(name);
        if told != name {
            self.0.insert(told.clone(), name.to_owned());
        }
        told
    }

    /// The tool that the server means. A name that nobody told it is as it is.
    pub(crate) fn meant<'a>(&'a self, told: &'a str) -> &'a str {
        self.0.get(told).map_or(told, String::as_str)
    }
}

fn told(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= MOST && name.chars().all(fits) {
        return name.to_owned();
    }
    let mark = format!("_{:08x}", hash(name) as u32);
    let fitting = name.chars().map(|c| if fits(c) { c } else { '_' });
    fitting.take(MOST - mark.len()).chain(mark.chars()).collect()
}

/// FNV-1a, folded: the same everywhere and forever, as the names in a conversation are.
pub(crate) fn hash(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_servers_take_is_told_as_it_is() {
        for name in ["read_file", "a-1", &"x".repeat(64)] {
            assert_eq!(told(name), *name);
        }
    }

    #[test]
    fn any_other_name_gets_one_that_they_take_and_is_found_again() {
        let mut names = Names::default();
        let given =
            ["server:tool", "server_tool", "server-tool", "wörter", "単語", "", &"x".repeat(65), &"x".repeat(66)];
        let all: Vec<String> = given.iter().map(|name| names.told(name)).collect();
        for (told, name) in all.iter().zip(given) {
            assert!((1..=64).contains(&told.len()), "{told}");
            assert!(told.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{told}");
            assert_eq!(names.meant(told), name);
            assert_eq!(*told, super::told(name));
        }
        let mut different = all.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn a_name_that_nobody_told_is_meant_as_it_is() {
        assert_eq!(Names::default().meant("anything"), "anything");
    }
}
