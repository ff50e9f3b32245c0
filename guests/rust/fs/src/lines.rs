//! Ranges of lines, and what they take up in a result.

/// The lines from `first` to `last`, both included and counted from 1, without the last one's line break. Empty where
/// the text has none of them.
pub(crate) fn lines(text: &str, first: usize, last: usize) -> &str {
    let start = after(text, first.saturating_sub(1));
    let end = after(text, last).max(start);
    let range = &text[start..end];
    let range = range.strip_suffix('\n').unwrap_or(range);
    range.strip_suffix('\r').unwrap_or(range)
}

/// Where the line after this many lines begins; the text's end where it has fewer.
fn after(text: &str, count: usize) -> usize {
    let Some(breaks_before) = count.checked_sub(1) else {
        return 0;
    };
    text.match_indices('\n').nth(breaks_before).map_or(text.len(), |(at, _)| at + 1)
}

/// The bytes of a text in a result, where it is a JSON string within a JSON string.
pub(crate) fn sent_bytes(text: &str) -> usize {
    let quotes = 6;
    let escaped = text.bytes().map(|byte| match byte {
        b'"' | b'\\' => 4,
        b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 3,
        0..0x20 => 7,
        _ => 1,
    });
    quotes + escaped.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::{lines, sent_bytes};

    const TEXT: &str = "one\ntwo\n\nfour\n";

    #[test]
    fn a_range_includes_both_its_ends() {
        assert_eq!(lines(TEXT, 1, 2), "one\ntwo");
        assert_eq!(lines(TEXT, 2, 2), "two");
        assert_eq!(lines(TEXT, 2, 4), "two\n\nfour");
        assert_eq!(lines("é\nü", 2, 2), "ü");
    }

    #[test]
    fn a_range_that_ends_behind_the_text_ends_with_it() {
        assert_eq!(lines(TEXT, 4, 9), "four");
        assert_eq!(lines(TEXT, 4, usize::MAX), "four");
        assert_eq!(lines("one\ntwo", 2, 9), "two");
    }

    #[test]
    fn lines_that_are_not_there_are_empty() {
        assert_eq!(lines(TEXT, 3, 3), "");
        assert_eq!(lines(TEXT, 5, 9), "");
        assert_eq!(lines(TEXT, usize::MAX, usize::MAX), "");
        assert_eq!(lines(TEXT, 3, 2), "");
        assert_eq!(lines("", 1, 1), "");
    }

    #[test]
    fn line_zero_is_line_one() {
        assert_eq!(lines(TEXT, 0, 1), "one");
        assert_eq!(lines(TEXT, 0, 0), "");
    }

    #[test]
    fn line_breaks_of_windows_are_kept_between_lines() {
        assert_eq!(lines("one\r\ntwo\r\nthree", 1, 2), "one\r\ntwo");
    }

    #[test]
    fn a_text_takes_up_what_quoting_it_twice_makes_of_it() {
        let every_ascii_character: String = (0..=0x7f_u8).map(char::from).collect();
        for text in ["", "a \"b\" \\ \n", "é🙂", &every_ascii_character] {
            let quoted = serde_json::to_string(&serde_json::to_string(text).unwrap()).unwrap();
            assert_eq!(sent_bytes(text), quoted.len(), "{text:?}");
        }
    }
}
