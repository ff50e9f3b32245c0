//! What a body's bytes are in: the charset that its sender names, the mark at its beginning, what the page says of itself, or a
//! guess.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// How far into a page its `<meta>` is looked for, as browsers do.
const META_BYTES: usize = 1024;

/// A body as text.
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    /// The charset's name, as the web has it.
    pub(crate) charset: &'static str,
}

/// Decode a body. A charset that the header names wins over everything but a mark; one that nobody knows counts as none.
pub(crate) fn decode<'a>(bytes: &'a [u8], content_type: &str) -> Decoded<'a> {
    let (encoding, bytes) = match marked(bytes) {
        Some((encoding, mark)) => (encoding, &bytes[mark..]),
        None => (named(content_type).or_else(|| of_page(bytes, content_type)).unwrap_or_else(|| guessed(bytes)), bytes),
    };
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    Decoded { text, charset: encoding.name() }
}

/// Whether a body is no text: what its kind says, or else what stands at its beginning.
pub(crate) fn is_binary(bytes: &[u8], content_type: &str) -> bool {
    let kind = kind_of(content_type);
    if ["image/", "audio/", "video/", "font/"].iter().any(|start| kind.starts_with(start)) {
        return !kind.ends_with("svg+xml");
    }
    let is_text =
        kind.starts_with("text/") || kind.ends_with("json") || kind.ends_with("xml") || kind.ends_with("script");
    if is_text || marked(bytes).is_some() || named(content_type).is_some() {
        return false;
    }
    let start = &bytes[..bytes.len().min(4096)];
    start.contains(&0) || start.starts_with(b"%PDF-")
}

/// Whether a body is a page.
pub(crate) fn is_html(text: &str, content_type: &str) -> bool {
    match kind_of(content_type).as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" => {
            let start: String = text.trim_start().chars().take(15).collect::<String>().to_ascii_lowercase();
            start.starts_with("<!doctype html") || start.starts_with("<html")
        }
        _ => false,
    }
}

/// The kind that a header names, in small letters and without parameters.
pub(crate) fn kind_of(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The encoding whose mark a body begins with, and how long the mark is.
fn marked(bytes: &[u8]) -> Option<(&'static Encoding, usize)> {
    Encoding::for_bom(bytes)
}

/// The charset that a header names.
fn named(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes())).flatten()
    })
}

/// What a page says of itself in its first KiB: `<meta charset=…>`, `<meta http-equiv … content="…; charset=…">`, or what an
/// XML declaration says.
fn of_page(bytes: &[u8], content_type: &str) -> Option<&'static Encoding> {
    let kind = kind_of(content_type);
    if !(kind.is_empty() || kind.contains("html") || kind.contains("xml")) {
        return None;
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(META_BYTES)]).to_ascii_lowercase();
    let declared = start.starts_with("<?xml").then(|| after(&start, "encoding")).flatten();
    let label =
        declared.or_else(|| start.split("<meta").skip(1).find_map(|tag| after(tag.split('>').next()?, "charset")));
    match Encoding::for_label(label?.as_bytes())? {
        // Such a page was read up to here as if it had one byte for each letter, so it is not in two.
        encoding if encoding == UTF_16LE || encoding == UTF_16BE => Some(UTF_8),
        encoding => Some(encoding),
    }
}

/// The value after a word and `=`, with or without quotes.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text[text.find(word)? + word.len()..].trim_start().strip_prefix('=')?.trim_start();
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(['"', '\'', ' ', ';', '/', '?', '>']).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

fn guessed(bytes: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], content_type: &str) -> (String, &'static str) {
        let decoded = decode(bytes, content_type);
        (decoded.text.into_owned(), decoded.charset)
    }

    #[test]
    fn the_header_names_the_charset() {
        for header in ["text/html; charset=iso-8859-1", "text/html;x=1;Charset = \"Latin1\""] {
            assert_eq!(text(b"caf\xe9", header).0, "café", "{header}");
        }
        assert_eq!(text(b"\x93\xfa\x96\x7b\x8c\xea", "text/plain; charset=Shift_JIS").0, "日本語");
        assert_eq!(text("é".as_bytes(), "text/html; charset=nonsense").0, "é");
    }

    #[test]
    fn a_mark_wins_and_is_no_part_of_the_text() {
        assert_eq!(text(b"\xff\xfeh\0\xe9\0", "text/plain; charset=utf-8"), ("hé".into(), "UTF-16LE"));
        assert_eq!(text(b"\xfe\xff\0h", "text/plain; charset=utf-16"), ("h".into(), "UTF-16BE"));
        assert_eq!(text(b"\xef\xbb\xbfx", ""), ("x".into(), "UTF-8"));
    }

    #[test]
    fn a_page_says_what_it_is_in() {
        let pages: &[&[u8]] = &[
            b"<meta charset=\"gbk\">\xd6\xd0\xce\xc4",
            b"<META CHARSET=gbk />\xd6\xd0\xce\xc4",
            b"<head><meta http-equiv='Content-Type' content='text/html; charset=gbk'>\xd6\xd0\xce\xc4",
            b"<?xml version=\"1.0\" encoding=\"gbk\"?>\xd6\xd0\xce\xc4",
        ];
        for page in pages {
            let (text, charset) = text(page, "text/html");
            assert!(text.ends_with("中文") && charset == "GBK", "{text}");
        }
        assert_eq!(text("<meta charset=utf-16>é".as_bytes(), "text/html").1, "UTF-8");
        assert_eq!(text(b"<meta charset=gbk> {}", "application/json").1, "UTF-8");
    }

    #[test]
    fn what_nobody_names_is_guessed() {
        assert_eq!(text("plain é".as_bytes(), "text/plain"), ("plain é".into(), "UTF-8"));
        let russian = encoding_rs::WINDOWS_1251.encode("Привет, как дела? Это обычный русский текст.").0.into_owned();
        assert_eq!(text(&russian, "text/plain").1, "windows-1251");
        let japanese = encoding_rs::EUC_JP.encode("これは日本語の文章です。文字コードを推測します。").0.into_owned();
        assert_eq!(text(&japanese, "text/html").1, "EUC-JP");
    }

    #[test]
    fn what_is_no_text_is_told_from_what_is() {
        assert!(is_binary(b"%PDF-1.4\n\xff", "application/pdf"));
        assert!(is_binary(b"\x89PNG\r\n", "image/png"));
        assert!(is_binary(b"PK\x03\x04\0\0", "application/octet-stream"));
        assert!(!is_binary(b"<svg/>", "image/svg+xml"));
        assert!(!is_binary(b"\xff\xfeh\0", "application/octet-stream"));
        assert!(!is_binary(b"a,b\n1,2", "application/octet-stream"));
        assert!(!is_binary(b"{}\0", "application/json"));
    }
}
