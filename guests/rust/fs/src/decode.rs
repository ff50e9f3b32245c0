//! The text in a file's bytes, as its mark says. It comes in pieces, and a piece may end within a character.

/// How the characters of a text are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoding {
    /// Or another that has ASCII in it as it is: such bytes are searched as they are.
    Utf8,
    Utf16 {
        big: bool,
    },
    Utf32 {
        big: bool,
    },
}

impl Encoding {
    /// What the first bytes of a file say, and how many of them are its mark.
    pub(crate) fn of(begin: &[u8]) -> (Self, usize) {
        match begin {
            [0xef, 0xbb, 0xbf, ..] => (Self::Utf8, 3),
            [0xff, 0xfe, 0, 0, ..] => (Self::Utf32 { big: false }, 4),
            [0, 0, 0xfe, 0xff, ..] => (Self::Utf32 { big: true }, 4),
            [0xff, 0xfe, ..] => (Self::Utf16 { big: false }, 2),
            [0xfe, 0xff, ..] => (Self::Utf16 { big: true }, 2),
            _ => (Self::Utf8, 0),
        }
    }
}

/// Turns pieces of a file into UTF-8. What is no character becomes U+FFFD.
pub(crate) struct Decoder {
    encoding: Encoding,
    /// The begin of a character whose end has not come yet.
    rest: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self { encoding, rest: Vec::new() }
    }

    /// The text of the next piece. `last` says that no other follows.
    pub(crate) fn decode(&mut self, piece: Vec<u8>, last: bool) -> Vec<u8> {
        if self.encoding == Encoding::Utf8 {
            return piece;
        }
        self.rest.extend(piece);
        let mut text = String::with_capacity(self.rest.len());
        let used = match self.encoding {
            Encoding::Utf8 => 0,
            Encoding::Utf16 { big } => utf16(&self.rest, big, last, &mut text),
            Encoding::Utf32 { big } => utf32(&self.rest, big, &mut text),
        };
        self.rest.drain(..used);
        if last && !self.rest.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        text.into_bytes()
    }
}

fn utf16(bytes: &[u8], big: bool, last: bool, text: &mut String) -> usize {
    let pairs = bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    let mut units: Vec<u16> =
        pairs.map(|pair| if big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }).collect();
    if !last && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
        units.pop(); // its other half is in the next piece
    }
    let used = units.len() * 2;
    text.extend(char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)));
    used
}

fn utf32(bytes: &[u8], big: bool, text: &mut String) -> usize {
    for four in bytes.chunks_exact(4) {
        let four = [four[0], four[1], four[2], four[3]];
        let number = if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) };
        text.push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    bytes.len() / 4 * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "café 🙂\nend";

    fn in_pieces(bytes: &[u8], size: usize) -> String {
        let (encoding, mark) = Encoding::of(bytes);
        let mut decoder = Decoder::new(encoding);
        let pieces: Vec<&[u8]> = bytes[mark..].chunks(size).collect();
        let decoded = pieces
            .iter()
            .enumerate()
            .flat_map(|(i, piece)| decoder.decode(piece.to_vec(), i + 1 == pieces.len()))
            .collect();
        String::from_utf8(decoded).unwrap()
    }

    #[test]
    fn a_mark_says_how_the_text_is_stored_wherever_it_is_cut() {
        let marked = format!("\u{feff}{TEXT}");
        let little16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let little32: Vec<u8> = marked.chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        let big32: Vec<u8> = marked.chars().flat_map(|c| (c as u32).to_be_bytes()).collect();
        for bytes in [marked.as_bytes(), &little16, &big16, &little32, &big32] {
            for size in [1, 2, 3, 5, 1000] {
                assert_eq!(in_pieces(bytes, size), TEXT, "{:?} {size}", &bytes[..4]);
            }
        }
    }

    #[test]
    fn what_is_no_character_is_replaced() {
        assert_eq!(in_pieces(b"\xff\xfea\0\x00\xd8b\0c", 1000), "a\u{fffd}b\u{fffd}");
        assert_eq!(in_pieces(b"\xff\xfe\0\0a\0\0\0\0\0\x11\0", 1000), "a\u{fffd}");
    }
}
