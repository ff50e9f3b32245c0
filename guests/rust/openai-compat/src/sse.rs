//! Server-sent events, taken apart as bytes come: a chunk may end inside a character, a line or an event.

/// The longest line, and the most of an event, that is kept.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// What is not yet a whole line, and the data of an event that is not yet whole.
#[derive(Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    searched: usize,
    begun: bool,
    /// Whether the last line ended with a carriage return: a line feed may follow.
    returned: bool,
}

/// A line or an event is longer than `LINE_BYTES`.
#[derive(Debug, PartialEq)]
pub(crate) struct TooLong;

impl Lines {
    /// Take more bytes, and hand on each line that they complete, without its end.
    pub(crate) fn take<E: From<TooLong>>(
        &mut self,
        bytes: &[u8],
        mut line: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rest.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(found) = self.rest[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = self.searched + found;
            self.searched = end + 1;
            let half = std::mem::replace(&mut self.returned, self.rest[end] == b'\r');
            if half && end == start && self.rest[end] == b'\n' {
                start = end + 1; // the second half of a line's end
                continue;
            }
            let whole = start..end;
            start = end + 1;
            if whole.len() > LINE_BYTES {
                return Err(TooLong.into());
            }
            line(self.text(&self.rest[whole]).as_ref())?;
            self.begun = true;
        }
        if start < self.rest.len() {
            self.returned = false;
        }
        self.rest.drain(..start);
        self.searched = self.rest.len();
        if self.rest.len() > LINE_BYTES { Err(TooLong.into()) } else { Ok(()) }
    }

    /// No more bytes come: what is left is the last line, if it is not empty.
    pub(crate) fn end(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        self.searched = 0;
        let line = self.text(&rest).into_owned();
        (!line.is_empty()).then_some(line)
    }

    fn text<'a>(&self, line: &'a [u8]) -> std::borrow::Cow<'a, str> {
        let line = if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        String::from_utf8_lossy(line)
    }
}

/// What follows `data:` in a line; None for all other fields, comments and empty lines.
pub(crate) fn data_in(line: &str) -> Option<&str> {
    let data = line.strip_prefix("data:")?;
    Some(data.strip_prefix(' ').unwrap_or(data))
}

/// Whether a line is one that a stream of events does not have.
pub(crate) fn is_strange(line: &str) -> bool {
    let known = ["data", "event", "id", "retry", ""]; // the last is a comment's
    !line.is_empty() && !line.split_once(':').is_some_and(|(field, _)| known.contains(&field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for chunk in chunks {
            lines
                .take::<TooLong>(chunk, |line| {
                    found.push(line.to_owned());
                    Ok(())
                })
                .unwrap();
        }
        found.extend(lines.end());
        found
    }

    #[test]
    fn lines_end_with_any_kind_of_line_end() {
        for text in ["a\r\n\r\nb\nc", "a\n\nb\nc", "a\r\rb\rc"] {
            assert_eq!(lines_of(&[text.as_bytes()]), ["a", "", "b", "c"]);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(lines_of(&bytes), ["a", "", "b", "c"]);
        }
    }

    #[test]
    fn a_chunk_may_end_anywhere() {
        let text = "data: {\"é🙂\"}\r\n\r\ndata: [DONE]\n\n".as_bytes();
        for cut in 0..=text.len() {
            assert_eq!(lines_of(&[&text[..cut], &text[cut..]]), lines_of(&[text]), "{cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines_of(&bytes), ["data: {\"é🙂\"}", "", "data: [DONE]", ""]);
    }

    #[test]
    fn a_mark_of_the_byte_order_at_the_beginning_is_no_part_of_it() {
        assert_eq!(lines_of(&["\u{feff}data: 1\n\u{feff}2\n".as_bytes()]), ["data: 1", "\u{feff}2"]);
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let mut lines = Lines::default();
        let megabyte = vec![b'x'; LINE_BYTES];
        assert_eq!(lines.take::<TooLong>(&megabyte, |_| Ok(())), Ok(()));
        assert_eq!(lines.take::<TooLong>(b"x", |_| Ok(())), Err(TooLong));
        let mut lines = Lines::default();
        assert_eq!(lines.take::<TooLong>(&[&megabyte[..], b"x\n"].concat(), |_| Ok(())), Err(TooLong));
    }

    #[test]
    fn only_data_lines_hold_data() {
        assert_eq!(data_in("data: {}"), Some("{}"));
        assert_eq!(data_in("data:{}"), Some("{}"));
        assert_eq!(data_in("data:"), Some(""));
        for line in ["", ": ping", "event: error", "id: 1", "retry: 5", "database: x"] {
            assert_eq!(data_in(line), None, "{line}");
        }
    }
}
