//! Whether a text is in messages, whatever its capitals, and where first.

use serde_json::Value;

use crate::message::text;

const SNIPPET_CHARACTERS: usize = 120;

/// What was found in the messages that were looked at.
#[derive(Debug)]
pub(crate) struct Matches {
    wanted: String,
    count: usize,
    snippet: Option<String>,
}

impl Matches {
    pub(crate) fn of(query: &str) -> Self {
        Self { wanted: query.to_lowercase(), count: 0, snippet: None }
    }

    pub(crate) fn look_at(&mut self, message: &Value) {
        let Some(text) = text(message) else { return };
        let lower = text.to_lowercase();
        if let Some(at) = lower.find(&self.wanted) {
            self.count += 1;
            self.snippet.get_or_insert_with(|| around(text, lower[..at].chars().count()));
        }
    }

    /// How many messages it is in.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What is around it where it is first; None where it is nowhere.
    pub(crate) fn snippet(&self) -> Option<&str> {
        self.snippet.as_deref()
    }
}

/// The part of a text around one of its characters. (A text in small letters may have a few characters more.)
fn around(text: &str, character: usize) -> String {
    let total = text.chars().count();
    let end = (character.saturating_sub(SNIPPET_CHARACTERS / 2) + SNIPPET_CHARACTERS).min(total);
    let start = end.saturating_sub(SNIPPET_CHARACTERS);
    let excerpt: String = text.chars().skip(start).take(end - start).collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < total { "…" } else { "" });
    format!("{before}{}{after}", excerpt.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(query: &str, texts: &[&str]) -> (usize, Option<String>) {
        let mut matches = Matches::of(query);
        texts.iter().for_each(|text| matches.look_at(&json!({"role": "user", "content": text})));
        (matches.count(), matches.snippet().map(str::to_owned))
    }

    #[test]
    fn messages_are_counted_and_the_first_is_shown() {
        let texts = ["nothing", "The FOO of it, foo", "a foo"];
        assert_eq!(found("foo", &texts), (2, Some("The FOO of it, foo".into())));
        assert_eq!(found("bar", &texts), (0, None));
    }

    #[test]
    fn a_snippet_has_what_is_around_the_match() {
        let text = format!("{}needle{}", "ä".repeat(200), "ö".repeat(200));
        let (_, snippet) = found("NEEDLE", &[&text]);
        let snippet = snippet.unwrap();
        assert_eq!(snippet.chars().count(), SNIPPET_CHARACTERS + 2);
        assert!(snippet.starts_with("…ä") && snippet.contains("needle") && snippet.ends_with("ö…"));
    }

    #[test]
    fn small_letters_that_are_longer_do_no_harm() {
        let text = format!("{}x", "İ".repeat(300));
        assert_eq!(found("x", &[&text]).0, 1);
    }

    #[test]
    fn calls_and_results_are_not_searched() {
        let mut matches = Matches::of("foo");
        matches.look_at(&json!({"role": "tool", "content": {"call_id": "foo", "content": "foo", "is_error": false}}));
        assert_eq!((matches.count(), matches.snippet()), (0, None));
    }
}
