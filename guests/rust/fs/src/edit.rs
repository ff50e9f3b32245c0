//! Replacing a text that is in another one exactly once, whatever its lines end with.

/// Windows programs put it before a text in UTF-8. It is no part of the text.
const MARK: char = '\u{feff}';

/// `text` with `new` in the place of `old`; how often `old` is there when that is not once. Occurrences may overlap.
///
/// A line end in `old` is found whatever kind it is of, and where that leaves a choice, the kind counts. The line ends of
/// `new` become those of the line that it is put in, unless `old` was there exactly and `new` says itself what it wants,
/// with a CR. A mark at the begin stays.
pub(crate) fn replace_once(text: &str, old: &str, new: &str) -> Result<String, usize> {
    let (mark, body) = text.split_at(if text.starts_with(MARK) { MARK.len_utf8() } else { 0 });
    let (old, new) =
        if mark.is_empty() { (old, new) } else { (old.trim_start_matches(MARK), new.trim_start_matches(MARK)) };
    let (start, end) = place(body, old)?;
    let as_given = new.contains('\r') && &body[start..end] == old;
    let new = if as_given { new.to_owned() } else { plain(new).replace('\n', line_end(body, start)) };
    Ok([mark, &body[..start], &new, &body[end..]].concat())
}

/// Where the only occurrence of `old` begins and ends.
fn place(text: &str, old: &str) -> Result<(usize, usize), usize> {
    if old.is_empty() {
        return Err(0);
    }
    let (flat, flat_old) = (plain(text), plain(old));
    let places: Vec<usize> = occurrences(&flat, &flat_old).collect();
    if let [at] = places[..] {
        return Ok((given(text, at), given(text, at + flat_old.len())));
    }
    let mut exact =
        occurrences(text, old).filter(|at| !is_within_crlf(text, *at) && !is_within_crlf(text, at + old.len()));
    match (exact.next(), exact.next()) {
        (Some(at), None) => Ok((at, at + old.len())),
        _ => Err(places.len()),
    }
}

fn is_within_crlf(text: &str, at: usize) -> bool {
    text[..at].ends_with('\r') && text[at..].starts_with('\n')
}

/// A text with LF at the end of each line.
fn plain(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Where in `text` is what has the index `at` in `plain(text)`: each CRLF before it takes one byte more.
fn given(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut flat = 0;
    let mut here = 0;
    while flat < at {
        here += if bytes[here..].starts_with(b"\r\n") { 2 } else { 1 };
        flat += 1;
    }
    here
}

/// Where `old`, which is not empty, begins in `text`.
fn occurrences<'a>(text: &'a str, old: &'a str) -> impl Iterator<Item = usize> + 'a {
    let width = old.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + text.get(from..)?.find(old)?;
        from = at + width;
        Some(at)
    })
}

/// What the line at `at` ends with, or else the line before it. A CR alone ends lines only where there is no LF at all.
fn line_end(text: &str, at: usize) -> &'static str {
    let Some(end) = text[at..].find('\n').map(|found| at + found).or_else(|| text[..at].rfind('\n')) else {
        return if text.contains('\r') { "\r" } else { "\n" };
    };
    if text[..end].ends_with('\r') { "\r\n" } else { "\n" }
}

#[cfg(test)]
mod tests {
    use super::replace_once;

    #[test]
    fn what_is_there_once_is_replaced() {
        assert_eq!(replace_once("one two three", "two", "2"), Ok("one 2 three".into()));
        assert_eq!(replace_once("one", "one", ""), Ok("".into()));
        assert_eq!(replace_once("a\r\nb\r\n", "a\r\nb", "c"), Ok("c\r\n".into()));
        assert_eq!(replace_once("naïve 🙂", "🙂", "ï"), Ok("naïve ï".into()));
    }

    #[test]
    fn what_is_not_there_or_more_than_once_is_counted() {
        assert_eq!(replace_once("one", "two", "x"), Err(0));
        assert_eq!(replace_once("", "two", "x"), Err(0));
        assert_eq!(replace_once("one one", "one", "x"), Err(2));
        assert_eq!(replace_once("a\r\na\r\n", "a\n", "x"), Err(2));
    }

    #[test]
    fn occurrences_that_overlap_are_more_than_one() {
        assert_eq!(replace_once("aaa", "aa", "x"), Err(2));
        assert_eq!(replace_once("ïïï", "ïï", "x"), Err(2));
    }

    #[test]
    fn a_line_end_is_found_whatever_kind_it_is_of() {
        let text = "one\r\ntwo\r\nthree\r\n";
        assert_eq!(replace_once(text, "one\ntwo", "1\n2"), Ok("1\r\n2\r\nthree\r\n".into()));
        assert_eq!(replace_once(text, "\ntwo\n", "\n2\n"), Ok("one\r\n2\r\nthree\r\n".into()));
        assert_eq!(replace_once(text, "two", "2\n2b"), Ok("one\r\n2\r\n2b\r\nthree\r\n".into()));
        assert_eq!(replace_once("one\rtwo\rthree", "one\ntwo", "1\n2"), Ok("1\r2\rthree".into()));
        assert_eq!(replace_once("one\ntwo\n", "one\r\ntwo", "1\r\n2"), Ok("1\n2\n".into()));
    }

    #[test]
    fn in_a_mixed_text_the_line_counts_that_is_replaced() {
        assert_eq!(replace_once("a\r\nb\nc\n", "a", "1\n2"), Ok("1\r\n2\r\nb\nc\n".into()));
        assert_eq!(replace_once("a\r\nb\nc\n", "b", "1\n2"), Ok("a\r\n1\n2\nc\n".into()));
        assert_eq!(replace_once("a\r\nb", "b", "1\n2"), Ok("a\r\n1\r\n2".into()));
        assert_eq!(replace_once("x\r\ny\nx\ny\n", "x\ny", "z"), Ok("x\r\ny\nz\n".into()));
        assert_eq!(replace_once("x\r\ny\nx\ny\n", "\ny", "z"), Ok("x\r\ny\nxz\n".into()));
        assert_eq!(replace_once("10%\r20%\nend\n", "end", "1\n2"), Ok("10%\r20%\n1\n2\n".into()));
    }

    #[test]
    fn a_mark_and_a_last_line_without_an_end_stay() {
        assert_eq!(replace_once("\u{feff}one\r\ntwo", "two", "2\n3"), Ok("\u{feff}one\r\n2\r\n3".into()));
        assert_eq!(replace_once("\u{feff}one", "\u{feff}one", "1"), Ok("\u{feff}1".into()));
        assert_eq!(replace_once("\u{feff}one", "one", "\u{feff}1"), Ok("\u{feff}1".into()));
    }

    #[test]
    fn what_says_itself_how_its_lines_end_is_put_in_so() {
        assert_eq!(replace_once("one\ntwo\n", "two\n", "2\r\n"), Ok("one\n2\r\n".into()));
    }
}
