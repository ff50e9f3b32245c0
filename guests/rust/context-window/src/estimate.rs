//! Tokens without a tokenizer. Its tables have megabytes and differ from model to model; what is needed here is a number
//! that is cheap and rather too large than too small. What servers tell of the tokens that
//! a request had corrects it.

/// The weights are in so many parts of a token.
const PARTS: u64 = 12;

/// What a character is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Other,
}

/// About how many tokens a text has.
pub fn tokens(text: &str) -> u64 {
    parts(text).div_ceil(PARTS)
}

fn parts(text: &str) -> u64 {
    let mut last = Kind::Other;
    let mut sum = 0;
    for character in text.chars() {
        let (weight, kind) = weighed(character);
        // Words are about a token; what changes within one, as in base64 and in hashes, begins another.
        let begins = match (last, kind) {
            (_, Kind::Other) | (Kind::Upper, Kind::Lower) => false,
            (last, kind) => last != kind,
        };
        sum += weight + if begins { 5 } else { 0 };
        last = kind;
    }
    sum
}

fn weighed(character: char) -> (u64, Kind) {
    match character {
        'a'..='z' => (2, Kind::Lower),
        'A'..='Z' => (3, Kind::Upper),
        '0'..='9' => (4, Kind::Digit),
        ' ' => (1, Kind::Other),
        '\n' | '\t' | '\r' => (5, Kind::Other),
        '\0'..='\u{7f}' => (8, Kind::Other),
        // Letters with marks, Greek, Cyrillic, Hebrew, Arabic: two or three to a token.
        '\u{80}'..='\u{7ff}' => (5, Kind::Lower),
        // Scripts of India and South-East Asia, Chinese, Japanese, Korean: up to one and a half tokens a character.
        '\u{800}'..='\u{ffff}' => (14, Kind::Other),
        _ => (30, Kind::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and how many tokens they have where words are split as byte-pair tokenizers usually do.
    const KNOWN: [(&str, u64); 6] = [
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("Tool calls are answered by exactly one result, whatever fails on the way.", 14),
        ("Привет, как дела? Сегодня хорошая погода.", 10),
        ("今日は天気がいいですね。", 8),
        ("def add(a, b):\n    return a + b\n", 12),
        (r#"{"role":"user","content":"hi"}"#, 9),
    ];

    #[test]
    fn an_estimate_is_not_below_what_is_known_and_not_far_above() {
        for (text, known) in KNOWN {
            let estimated = tokens(text);
            assert!(estimated * 100 >= known * 90 && estimated <= known * 2 + 2, "{text}: {estimated}, not {known}");
        }
    }

    #[test]
    fn what_has_no_words_costs_more_than_prose() {
        let base64 = "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0IGVuY29kZWQ".repeat(10);
        assert!(tokens(&base64) * 5 / 2 >= base64.len() as u64);
        let digits = "7".repeat(900);
        assert!(tokens(&digits) >= 300);
        assert!(tokens(&"😀".repeat(10)) >= 20);
    }
}
