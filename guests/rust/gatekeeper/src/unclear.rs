//! Characters that a person would not see as they are.

/// Format characters, spaces that are not the plain one, separators, fillers and variation selectors: what the host refuses
/// to ask about.
const UNCLEAR: &[(u32, u32)] = &[
    (0x80, 0xa0),
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x115f, 0x1160),
    (0x1680, 0x1680),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x2000, 0x200f),
    (0x2028, 0x202f),
    (0x205f, 0x206f),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Whether a character that is not ASCII would be seen as something else, or not at all.
pub(crate) fn is_unclear(character: char) -> bool {
    let code = u32::from(character);
    let after = UNCLEAR.partition_point(|(first, _)| *first <= code);
    after > 0 && code <= UNCLEAR[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_signs_and_pictures_are_clear() {
        for character in "äßéЖ単語かな한글عبر“”–…、。🙂".chars() {
            assert!(!is_unclear(character), "{character}");
        }
    }

    #[test]
    fn what_hides_or_moves_text_is_not() {
        let hidden = ['\u{a0}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2066}', '\u{3164}', '\u{feff}', '\u{fe0f}'];
        for character in hidden.into_iter().chain(['\u{e0020}', '\u{2028}', '\u{85}', '\u{1d173}', '\u{115f}']) {
            assert!(is_unclear(character), "{character:?}");
        }
    }

    #[test]
    fn the_ranges_are_sorted() {
        assert!(UNCLEAR.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
