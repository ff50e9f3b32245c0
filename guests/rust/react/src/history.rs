//! Messages of a conversation: what is added to it, and what goes to the model. Those that come from the session pass
//! through as the text they are.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::calls::{Batch, ToolResult};

/// Results of one batch have so many bytes in all: an event holds one MiB.
const RESULTS_BYTES: usize = 640 * 1024;

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A batch and its results. A message has either text or calls, so the text comes first, as a message of its own.
pub(crate) fn batch(batch: &Batch, results: &[ToolResult]) -> Vec<Value> {
    let mut messages = Vec::with_capacity(results.len() + 2);
    if !batch.text.trim().is_empty() {
        messages.push(assistant(&batch.text));
    }
    messages.push(json!({"role": "assistant", "content": batch.calls}));
    messages.extend(results.iter().map(|result| json!({"role": "tool", "content": result})));
    messages
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
        let messages = batch(&Batch { text: "I look.".into(), calls: called() }, std::slice::from_ref(&result));
        let calls = json!({"role": "assistant", "content": [{"id": "c", "name": "x", "arguments": {"a": 1}}]});
        let tool = json!({"role": "tool", "content": {"call_id": "c", "content": "r", "is_error": false}});
        assert_eq!(messages, [json!({"role": "assistant", "content": "I look."}), calls.clone(), tool.clone()]);
        assert_eq!(batch(&Batch { text: "\n".into(), calls: called() }, &[result]), [calls, tool]);
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
