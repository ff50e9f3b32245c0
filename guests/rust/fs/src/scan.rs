//! The lines of a file that have a text in them. The file comes in pieces, and a line may be longer than one.

use memchr::memmem::Finder;
use memchr::{memchr_iter, memrchr};

/// Of a longer line only the begin is kept, and it is searched in parts.
const LINE_BYTES: usize = 1 << 20;
/// So much of the begin.
const BEGIN_BYTES: usize = 4096;

/// The text that is searched for, as the bytes that files may have it in.
pub(crate) struct Pattern {
    forms: Vec<Finder<'static>>,
    /// In files of older programs, for a text that is not ASCII: what is one byte there.
    latin1: Option<Finder<'static>>,
    longest: usize,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self::of(&[text.as_bytes().to_vec()], text)
    }

    /// For files that are no text, or are one in UTF-16 without a mark.
    pub(crate) fn in_binary(text: &str) -> Self {
        let little = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        Self::of(&[text.as_bytes().to_vec(), little, big], text)
    }

    fn of(forms: &[Vec<u8>], text: &str) -> Self {
        let latin1: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let latin1 = latin1.filter(|_| !text.is_ascii());
        Self {
            forms: forms.iter().map(|bytes| Finder::new(bytes).into_owned()).collect(),
            latin1: latin1.map(|bytes| Finder::new(&bytes).into_owned()),
            longest: forms.iter().map(Vec::len).max().unwrap_or_default(),
        }
    }

    fn is_in(&self, line: &[u8]) -> bool {
        self.forms.iter().any(|form| form.find(line).is_some())
            || self
                .latin1
                .as_ref()
                .is_some_and(|latin1| latin1.find(line).is_some() && std::str::from_utf8(line).is_err())
    }
}

/// The lines of one file.
#[derive(Default)]
pub(crate) struct Lines {
    number: usize,
    /// A line whose end has not come yet.
    rest: Vec<u8>,
    /// How a line begins that is too long to be kept, and whether it has the text so far.
    long: Option<(Vec<u8>, bool)>,
}

impl Lines {
    /// Go through the next piece. `last` says that no other follows. `show` is called with the number of each line that has
    /// the text, and with the line or its begin; it says whether to go on.
    pub(crate) fn read(
        &mut self,
        piece: Vec<u8>,
        last: bool,
        pattern: &Pattern,
        mut show: impl FnMut(usize, &[u8]) -> bool,
    ) {
        if self.rest.is_empty() {
            self.rest = piece;
        } else {
            self.rest.extend(piece);
        }
        let whole = if last { self.rest.len() } else { memrchr(b'\n', &self.rest).map_or(0, |at| at + 1) };
        let rest = self.rest.split_off(whole);
        let lines = std::mem::replace(&mut self.rest, rest);
        if self.long.is_none() && !pattern.is_in(&lines) {
            self.number += memchr_iter(b'\n', &lines).count();
        } else {
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if !self.line(line, pattern, &mut show) {
                    return;
                }
            }
        }
        if last {
            self.line_without_end(&mut show);
        } else if self.rest.len() > LINE_BYTES {
            self.keep_begin(pattern);
        }
    }

    fn line(&mut self, line: &[u8], pattern: &Pattern, show: &mut impl FnMut(usize, &[u8]) -> bool) -> bool {
        self.number += 1;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let matches = pattern.is_in(line);
        match self.long.take() {
            Some((begin, before)) if before || matches => show(self.number, &begin),
            None if matches => show(self.number, line),
            _ => true,
        }
    }

    /// The file ended where a piece of a long line did.
    fn line_without_end(&mut self, show: &mut impl FnMut(usize, &[u8]) -> bool) {
        if let Some((begin, true)) = self.long.take() {
            show(self.number + 1, &begin);
        }
    }

    fn keep_begin(&mut self, pattern: &Pattern) {
        let matches = pattern.is_in(&self.rest);
        let (begin, before) = self.long.take().unwrap_or_else(|| (self.rest[..BEGIN_BYTES].to_vec(), false));
        self.long = Some((begin, before || matches));
        self.rest = self.rest.split_off(self.rest.len().saturating_sub(pattern.longest - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, content: &[u8], size: usize) -> Vec<(usize, String)> {
        let mut all = Vec::new();
        let mut lines = Lines::default();
        let pattern = Pattern::new(pattern);
        let mut keep = |number, line: &[u8]| {
            all.push((number, String::from_utf8_lossy(line).chars().take(20).collect()));
            true
        };
        for piece in content.chunks(size) {
            lines.read(piece.to_vec(), false, &pattern, &mut keep);
        }
        lines.read(Vec::new(), true, &pattern, &mut keep);
        all
    }

    #[test]
    fn lines_are_found_wherever_the_file_is_cut() {
        for size in [1, 2, 3, 7, 100] {
            let expected = vec![(1, "one".to_owned()), (3, "a one".to_owned()), (4, "one".to_owned())];
            assert_eq!(found("one", b"one\r\ntwo\na one\none", size), expected, "{size}");
            assert_eq!(found("e\nt", b"one\ntwo", size), [], "{size}");
            assert_eq!(found("one", b"", size), []);
        }
    }

    #[test]
    fn a_line_of_many_pieces_is_one_line() {
        let long = "x".repeat(LINE_BYTES + LINE_BYTES / 2);
        for content in [format!("a\n{long}needle{long}\nneedle"), format!("a\n{long}{long}needle\nneedle")] {
            for size in [LINE_BYTES / 2 + 3, LINE_BYTES, 4 * LINE_BYTES] {
                let expected = vec![(2, "x".repeat(20)), (3, "needle".to_owned())];
                assert_eq!(found("needle", content.as_bytes(), size), expected, "{size}");
            }
        }
        assert_eq!(found("needle", format!("{long}needle").as_bytes(), LINE_BYTES + 1).len(), 1);
        assert_eq!(found("needle", long.as_bytes(), LINE_BYTES + 1), []);
    }

    #[test]
    fn what_has_no_mark_may_be_utf16_all_the_same() {
        let mut lines = Lines::default();
        let mut count = 0;
        let piece: Vec<u8> = "a NEEDLE\nb".encode_utf16().flat_map(u16::to_be_bytes).collect();
        lines.read(piece, true, &Pattern::in_binary("NEEDLE"), |_, _| {
            count += 1;
            true
        });
        assert_eq!(count, 1);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_searched_as_they_are() {
        assert_eq!(found("NEEDLE", b"# caf\xe9\nNEEDLE \xe9\n", 100), [(2, "NEEDLE \u{fffd}".into())]);
        assert_eq!(found("café", b"# caf\xe9\n", 100), [(1, "# caf\u{fffd}".into())]);
        assert_eq!(found("é", "\u{9000}".as_bytes(), 100), []); // has the byte of é within another character
    }
}
