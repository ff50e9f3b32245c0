//! The tool calls of a model, made ready: each with an id of its own towards the bus, which nobody can guess, and with
//! arguments that are an object. What a model got wrong is not run; it gets told so as the result of the call.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::arguments::{read, unreadable};
use crate::context::message::{ASK_FOR_A_PART, middle_left_out};
use crate::stream::{Cut, Spoken};

/// So much of unreadable arguments is told.
const QUOTED_CHARACTERS: usize = 500;

/// What a model said and called at once, as it is kept until all results are there.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Batch {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    /// How the answer was cut off, if it was.
    #[serde(default)]
    pub(crate) cut: Option<String>,
}

/// A call as it stands in the history: `ToolCall` of the messages, with the id by which the model's provider knows it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Box<RawValue>,
}

/// The result of a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ToolResult {
    pub(crate) call_id: String,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) is_error: bool,
}

impl ToolResult {
    pub(crate) fn error(call_id: &str, content: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), content: content.into(), is_error: true }
    }

    /// The result with about so many bytes at most: its beginning and its end, and how much is left out between them.
    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        if self.content.len() > bytes {
            self.content = middle_left_out(&self.content, bytes, ASK_FOR_A_PART);
        }
        self
    }
}

/// Make the calls ready. `new_id` makes ids for those that have none, or that of another one of this answer. With each
/// call comes the result of one that is not to be run.
pub(crate) fn prepare(
    spoken: Vec<Spoken>,
    cut: Option<&Cut>,
    mut new_id: impl FnMut() -> String,
) -> Vec<(ToolCall, Option<ToolResult>)> {
    let mut ready: Vec<(ToolCall, Option<ToolResult>)> = Vec::with_capacity(spoken.len());
    for call in spoken {
        let again = call.id.is_empty() || ready.iter().any(|(other, _)| other.id == call.id);
        let id = if again { new_id() } else { call.id.clone() };
        let (arguments, wrong) = read_arguments(&call);
        let wrong = match cut {
            _ if call.name.trim().is_empty() => Some("The call names no tool.".into()),
            Some(cut) if wrong.is_some() || !call.ended || cut.spoils_all() => Some(cut_off(&call.name, cut)),
            _ => wrong,
        };
        let result = wrong.map(|why| ToolResult::error(&id, why));
        ready.push((ToolCall { id, name: call.name, arguments }, result));
    }
    ready
}

fn cut_off(name: &str, cut: &Cut) -> String {
    format!(
        "The answer was cut off ({}) before this call of {name} was whole, so it was not run. Call it again, with shorter \
         arguments if they are long.",
        cut.reason
    )
}

/// The arguments, and what is wrong with them. Some models write nothing, or `null`, for a tool that takes none.
fn read_arguments(call: &Spoken) -> (Box<RawValue>, Option<String>) {
    let text = call.arguments.trim();
    let nothing = text == "null" || (text.is_empty() && call.ended);
    let fault = match read(if nothing { "{}" } else { text }) {
        Ok(value) => return (value, None),
        Err(_) if text.is_empty() => "they are missing".to_owned(),
        Err(fault) => fault,
    };
    let quoted: String = text.chars().take(QUOTED_CHARACTERS).collect();
    let more = if text.chars().nth(QUOTED_CHARACTERS).is_some() { "…" } else { "" };
    let why = format!(
        "The arguments of {} cannot be read, so it was not run: {fault}. Call it again with one JSON object. They were: {quoted}{more}",
        call.name,
    );
    (unreadable(&quoted), Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str, name: &str, arguments: &str, ended: bool) -> Spoken {
        Spoken { id: id.into(), name: name.into(), arguments: arguments.into(), ended }
    }

    fn one(arguments: &str, ended: bool) -> (String, Option<ToolResult>) {
        let mut ready = prepare(vec![call("c", "x", arguments, ended)], None, String::new);
        let (call, result) = ready.remove(0);
        (call.arguments.get().to_owned(), result)
    }

    #[test]
    fn an_object_is_passed_on_as_it_is_written() {
        for text in [r#"{"a":1.0,"b":[2e3]}"#, "{}", "{ \"a\" : \"\\u00e9\" }"] {
            for ended in [true, false] {
                assert_eq!(one(text, ended), (text.to_owned(), None));
            }
        }
        assert_eq!(one("\n {} ", true).0, "{}");
    }

    #[test]
    fn nothing_at_all_is_an_empty_object_when_the_model_came_to_its_end() {
        for text in ["", " ", "null"] {
            assert_eq!(one(text, true), ("{}".to_owned(), None));
        }
        assert!(one("", false).1.unwrap().content.contains("they are missing"));
    }

    #[test]
    fn what_is_no_object_is_not_run_and_the_model_is_told() {
        for text in ["{\"a\":", "{'a': 1}", "[1]", "\"a\"", "1", "{} {}", "{\"a\":1}x"] {
            let (kept, result) = one(text, true);
            let result = result.expect("a result");
            assert!(result.is_error && result.call_id == "c");
            assert!(result.content.starts_with("The arguments of x cannot be read"), "{}", result.content);
            assert!(result.content.ends_with(&format!("They were: {text}")), "{}", result.content);
            assert_eq!(kept, json!({ "unreadable": text }).to_string());
        }
    }

    #[test]
    fn a_long_text_is_quoted_in_part() {
        let (kept, result) = one(&"é".repeat(5000), true);
        assert!(kept.len() < 2000);
        assert!(result.unwrap().content.ends_with("é…"));
    }

    #[test]
    fn each_call_has_an_id_of_its_own() {
        let mut made = 0;
        let calls = vec![call("", "x", "{}", true), call("a", "x", "{}", true), call("a", "y", "{}", true)];
        let new_id = || {
            made += 1;
            format!("new {made}")
        };
        let ready = prepare(calls, None, new_id);
        let ids: Vec<_> = ready.iter().map(|(call, _)| call.id.as_str()).collect();
        assert_eq!(ids, ["new 1", "a", "new 2"]);
    }

    #[test]
    fn a_call_without_a_name_is_not_run() {
        let ready = prepare(vec![call("c", " ", "{}", true)], None, String::new);
        assert_eq!(ready[0].1, Some(ToolResult::error("c", "The call names no tool.")));
    }

    #[test]
    fn a_call_that_was_cut_is_not_run_and_one_that_is_whole_is() {
        let cut = |reason: &str| Cut { reason: reason.into(), only_reasoning: false };
        let runs = |reason: &str, arguments: &str, ended: bool| {
            let ready = prepare(vec![call("c", "x", arguments, ended)], Some(&cut(reason)), String::new);
            match &ready[0].1 {
                None => true,
                Some(result) => {
                    assert!(
                        result.content.contains(reason) && result.content.contains("not run"),
                        "{}",
                        result.content
                    );
                    false
                }
            }
        };
        assert!(runs("length", "{}", true) && runs("weird", "{\"a\":1}", true));
        assert!(!runs("length", "", false) && !runs("length", "{\"a\":", false) && !runs("length", "null", false));
        assert!(!runs("content_filter", "{}", true) && !runs("error", "{}", true));
    }

    #[test]
    fn a_long_result_is_cut_between_characters_and_says_so() {
        let result = ToolResult { call_id: "c".into(), content: "é".repeat(10), is_error: false };
        assert_eq!(result.clone().cut(20), result);
        assert_eq!(result.cut(5).content, "éé\n[The first 5 of 20 bytes.]");
        let long = ToolResult { call_id: "c".into(), content: "é".repeat(500), is_error: false };
        let cut = long.cut(200).content;
        assert!(cut.contains("é\n[800 of 1000 bytes are left out here. To see more") && cut.ends_with("é"), "{cut}");
    }
}
