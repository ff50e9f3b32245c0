//! Replacing a text that is in another one exactly once.

/// `text` with `new` in the place of `old`; how often `old` is there when that is not once. Occurrences may overlap.
pub(crate) fn replace_once(text: &str, old: &str, new: &str) -> Result<String, usize> {
    let places: Vec<usize> = occurrences(text, old).collect();
    match places[..] {
        [at] => Ok([&text[..at], new, &text[at + old.len()..]].concat()),
        _ => Err(places.len()),
    }
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
    }

    #[test]
    fn occurrences_that_overlap_are_more_than_one() {
        assert_eq!(replace_once("aaa", "aa", "x"), Err(2));
        assert_eq!(replace_once("ïïï", "ïï", "x"), Err(2));
    }
}
