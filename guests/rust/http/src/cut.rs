//! Texts that are cut to what a result has room for.

/// The beginning of a text: at most `most` bytes of it, and at most `room` bytes in a result, where it is a JSON string
/// within a JSON string. It ends with a whole character.
pub(crate) fn cut(text: &str, most: usize, room: usize) -> &str {
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        taken += sent_bytes(character);
        if at + character.len_utf8() > most || taken > room {
            return &text[..at];
        }
    }
    text
}

/// The bytes of a text in a result, without the quotes around it.
pub(crate) fn sent(text: &str) -> usize {
    text.chars().map(sent_bytes).sum()
}

fn sent_bytes(character: char) -> usize {
    match character {
        '"' | '\\' => 4,
        '\n' | '\r' | '\t' | '\x08' | '\x0c' => 3,
        '\0'..' ' => 7,
        _ => character.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, sent};

    #[test]
    fn a_text_that_fits_is_whole() {
        assert_eq!(cut("abc", 3, 3), "abc");
        assert_eq!(cut("", 0, 0), "");
    }

    #[test]
    fn a_longer_text_ends_with_a_whole_character() {
        assert_eq!(cut("abc", 2, 9), "ab");
        assert_eq!(cut("aü", 2, 9), "a");
        assert_eq!(cut("aü", 3, 9), "aü");
    }

    #[test]
    fn what_has_to_be_quoted_takes_more_room() {
        assert_eq!(cut("a\"b", 9, 5), "a\"");
        assert_eq!(cut("a\"b", 9, 4), "a");
    }

    #[test]
    fn a_text_takes_up_what_quoting_it_twice_makes_of_it() {
        let every_ascii_character: String = (0..=0x7f_u8).map(char::from).collect();
        for text in ["", "a \"b\" \\ \n", "é🙂", &every_ascii_character] {
            let quoted = serde_json::to_string(&serde_json::to_string(text).unwrap()).unwrap();
            assert_eq!(sent(text) + 6, quoted.len(), "{text:?}");
        }
    }
}
