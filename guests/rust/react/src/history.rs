//! Messages of a conversation: what is added to it, and what goes to the model. Those that come from the session pass
//! through as the text they are.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::arguments::readable;
use crate::calls::{Batch, ToolCall, ToolResult};

/// Results of one batch have so many bytes in all: an event holds one MiB.
const RESULTS_BYTES: usize = 640 * 1024;

/// The result of a call that has none.
pub(crate) const GIVEN_UP: &str = "The call was given up before it had a result.";

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// What was said until it was cut off: `cut` is for whoever reads the history, and no part of the conversation.
pub(crate) fn cut(text: &str, cut: Option<&str>) -> Value {
    let mut message = assistant(text);
    if let Some(cut) = cut {
        message["cut"] = cut.into();
    }
    message
}

/// A batch and its results. A message has either text or calls, so the text comes first, as a message of its own. The
/// results are in the order of the calls, and have their ids: the bus knows them by others.
pub(crate) fn batch(batch: &Batch, results: &[ToolResult]) -> Vec<Value> {
    let mut messages = Vec::with_capacity(results.len() + 2);
    if !batch.text.trim().is_empty() {
        messages.push(cut(&batch.text, batch.cut.as_deref()));
    }
    let calls: Vec<Value> = batch.calls.iter().map(call).collect();
    if calls.is_empty() {
        return messages;
    }
    let mut message = json!({"role": "assistant", "content": calls});
    if let Some(cut) = &batch.cut {
        message["cut"] = cut.as_str().into();
    }
    messages.push(message);
    messages.extend(batch.calls.iter().enumerate().map(|(n, call)| {
        let given_up = || (GIVEN_UP, true);
        let (content, is_error) = results.get(n).map_or_else(given_up, |result| (&*result.content, result.is_error));
        json!({"role": "tool", "content": {"call_id": call.id, "content": content, "is_error": is_error}})
    }));
    messages
}

/// A call, whose arguments may have been kept by a version that did not look at them.
fn call(call: &ToolCall) -> Value {
    let arguments = readable(&call.arguments);
    json!({"id": call.id, "name": call.name, "arguments": serde_json::from_str::<Value>(arguments.get()).unwrap_or_default()})
}

/// How long one result of a batch may be.
pub(crate) fn room(results: usize, at_most: u64) -> usize {
    let share = RESULTS_BYTES / results.max(1);
    usize::try_from(at_most).map_or(share, |bytes| bytes.min(share))
}

/// Put a text before what the user said last. Only the model sees it: it is not kept.
pub(crate) fn prefix_last_user_message(messages: &mut [Box<RawValue>], prefix: &str) -> serde_json::Result<()> {
    #[derive(Deserialize)]
    struct Said {
        role: String,
        content: Value,
    }
    if prefix.is_empty() {
        return Ok(());
    }
    for message in messages.iter_mut().rev() {
        match serde_json::from_str::<Said>(message.get()) {
            Ok(Said { role, content: Value::String(text) }) if role == "user" => {
                *message = to_raw_value(&user(&format!("{prefix}\n{text}")))?;
                return Ok(());
            }
            _ => continue,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::ToolCall;

    fn raw(value: Value) -> Box<RawValue> {
        to_raw_value(&value).unwrap()
    }

    fn called() -> Vec<ToolCall> {
        vec![ToolCall { id: "c".into(), name: "x".into(), arguments: raw(json!({"a": 1})) }]
    }

    #[test]
    fn text_before_calls_is_a_message_of_its_own() {
        let result = ToolResult { call_id: "c".into(), content: "r".into(), is_error: false };
        let messages =
            batch(&Batch { text: "I look.".into(), calls: called(), cut: None }, std::slice::from_ref(&result));
        let calls = json!({"role": "assistant", "content": [{"id": "c", "name": "x", "arguments": {"a": 1}}]});
        let tool = json!({"role": "tool", "content": {"call_id": "c", "content": "r", "is_error": false}});
        assert_eq!(messages, [json!({"role": "assistant", "content": "I look."}), calls.clone(), tool.clone()]);
        assert_eq!(batch(&Batch { text: "\n".into(), calls: called(), cut: None }, &[result]), [calls, tool]);
    }

    #[test]
    fn what_was_cut_is_marked_and_each_call_has_a_result() {
        let messages = batch(&Batch { text: "I".into(), calls: called(), cut: Some("length".into()) }, &[]);
        assert_eq!((&messages[0]["cut"], &messages[1]["cut"]), (&json!("length"), &json!("length")));
        assert_eq!(messages[2]["content"], json!({"call_id": "c", "content": GIVEN_UP, "is_error": true}));
    }

    #[test]
    fn arguments_that_an_older_version_kept_do_no_harm() {
        for kept in [r#"{"text":"cut \ud83d"}"#, r#"{"n":1e400}"#, "[1]"] {
            let arguments = serde_json::from_str(kept).unwrap();
            let calls = vec![ToolCall { id: "c".into(), name: "x".into(), arguments }];
            let messages = batch(&Batch { text: String::new(), calls, cut: None }, &[]);
            assert_eq!(messages[0]["content"][0]["arguments"], json!({ "unreadable": kept }));
        }
    }

    #[test]
    fn the_prefix_goes_to_the_last_text_of_the_user() {
        let mut messages = vec![raw(user("a")), raw(user("b")), raw(assistant("c"))];
        prefix_last_user_message(&mut messages, "p").unwrap();
        let texts: Vec<_> = messages.iter().map(|message| message.get().to_owned()).collect();
        assert_eq!(texts[0], user("a").to_string());
        assert_eq!(serde_json::from_str::<Value>(&texts[1]).unwrap(), user("p\nb"));
        assert_eq!(texts[2], assistant("c").to_string());
    }

    #[test]
    fn many_results_share_the_room() {
        assert_eq!(room(1, 1000), 1000);
        assert_eq!(room(0, u64::MAX), RESULTS_BYTES);
        assert_eq!(room(10, 256 * 1024), RESULTS_BYTES / 10);
    }
}
