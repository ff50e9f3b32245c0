//! Why an answer ended, as servers say it: most in OpenAI's words, some in their own.

/// How an answer ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Finish {
    /// `length`, `content_filter`, `error`, or the server's own word where that is none of those that mean a good end.
    pub(crate) reason: String,
    good: bool,
    /// Whether the model thought aloud, and whether it said or called anything.
    pub(crate) reasoned: bool,
    pub(crate) spoke: bool,
}

const GOOD: [&str; 13] = [
    "stop",
    "tool_calls",
    "tool_call",
    "function_call",
    "tool_use",
    "end_turn",
    "eos",
    "eos_token",
    "stop_sequence",
    "complete",
    "completed",
    "done",
    "end",
];
const LENGTH: [&str; 8] = [
    "length",
    "max_tokens",
    "model_length",
    "max_output_tokens",
    "max_completion_tokens",
    "token_limit",
    "max_length",
    "model_context_window_exceeded",
];
const FILTER: [&str; 9] = [
    "content_filter",
    "safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "spii",
    "sensitive",
    "refusal",
    "image_safety",
];
const ERROR: [&str; 6] =
    ["error", "network_error", "malformed_function_call", "abort", "aborted", "insufficient_system_resource"];
const WORD: usize = 40;

impl Finish {
    /// What a piece of the answer says of its end; empty for nothing. A bad end is not made good by a later word.
    pub(crate) fn hear(&mut self, word: &str) {
        let word: String = word.chars().filter(|c| !c.is_control()).take(WORD).collect::<String>().to_lowercase();
        let word = word.rsplit("finishreason.").next().unwrap_or_default().trim();
        if word.is_empty() || word == "null" {
            return;
        }
        let known = [(&LENGTH[..], "length"), (&FILTER, "content_filter"), (&ERROR, "error")];
        let meant = known.iter().find(|(words, _)| words.contains(&word)).map_or(word, |(_, meant)| meant);
        if GOOD.contains(&word) {
            self.good = true;
        } else if self.reason.is_empty() {
            self.reason = meant.to_owned();
        }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.good || !self.reason.is_empty()
    }

    /// The end, if the answer was cut off.
    pub(crate) fn cut(&self) -> Option<Self> {
        (!self.reason.is_empty()).then(|| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(words: &[&str]) -> Option<String> {
        let mut finish = Finish::default();
        words.iter().for_each(|word| finish.hear(word));
        finish.cut().map(|finish| finish.reason)
    }

    #[test]
    fn each_server_has_words_of_its_own() {
        for word in ["stop", "STOP", "tool_calls", "function_call", "end_turn", "eos", "", "null", "FinishReason.STOP"]
        {
            assert_eq!(heard(&[word]), None, "{word}");
        }
        for (word, meant) in [
            ("length", "length"),
            ("MAX_TOKENS", "length"),
            ("FinishReason.MAX_TOKENS", "length"),
            ("model_length", "length"),
            ("content_filter", "content_filter"),
            ("SAFETY", "content_filter"),
            ("sensitive", "content_filter"),
            ("network_error", "error"),
            ("insufficient_system_resource", "error"),
            ("something_new", "something_new"),
        ] {
            assert_eq!(heard(&[word]).as_deref(), Some(meant), "{word}");
        }
    }

    #[test]
    fn a_bad_end_stays_one() {
        assert_eq!(heard(&["length", "stop"]).as_deref(), Some("length"));
        assert_eq!(heard(&["stop", "length"]).as_deref(), Some("length"));
        assert_eq!(heard(&["tool_calls", "stop"]), None);
    }

    #[test]
    fn a_word_has_no_control_characters_and_an_end() {
        assert_eq!(heard(&["a\u{1b}[0m"]).as_deref(), Some("a[0m"));
        assert_eq!(heard(&[&"x".repeat(9000)]).map(|word| word.len()), Some(WORD));
    }
}
