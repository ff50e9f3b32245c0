//! A conversation in the shape that servers take. They refuse one in which a tool call has no result, or a result no
//! call, in which nobody or the same one speaks twice in a row, or that a user does not begin; a turn that was cancelled
//! and a history that was cut leave such behind, so what is missing is made up here.

use std::collections::HashSet;

use astrid_sdk::types::{ContentPart, Message, MessageContent, MessageRole, ToolCall};
use serde_json::{Value, json};

use crate::ids;
use crate::kept::Kept;

const NO_RESULT: &str = "The call was interrupted; there is no result.";
const INTERRUPTED: &str = "[Interrupted.]";
const EARLIER: &str = "[The beginning of the conversation is left out.]";

/// How the server knows what a conversation has.
pub(crate) struct Told<'a> {
    /// The name of a tool.
    pub(crate) name: &'a mut dyn FnMut(&str) -> String,
    /// What goes back with a call.
    pub(crate) kept: &'a dyn Fn(&str) -> Option<Kept>,
    /// Whether it takes no other ids than those of its own kind.
    pub(crate) strict_ids: bool,
}

/// The messages for a server.
pub(crate) fn for_server(system: &str, messages: &[Message], mut told: Told<'_>) -> Vec<Value> {
    let mut sent = Vec::with_capacity(messages.len() + 1);
    let system = instructions(system, messages);
    if !system.is_empty() {
        sent.push(json!({"role": "system", "content": system}));
    }
    let mut answered = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        match &message.content {
            _ if message.role == MessageRole::System => {}
            MessageContent::ToolCalls(calls) if !calls.is_empty() => {
                let ids = ids_of(calls, told.strict_ids);
                add_calls(&mut sent, calls, &ids, &mut told);
                for (nth, call) in calls.iter().enumerate() {
                    let again = calls[..nth].iter().any(|earlier| earlier.id == call.id);
                    let found = if again { None } else { result_of(call, &messages[at + 1..]) };
                    answered.extend(found.map(|(after, _)| at + 1 + after));
                    let content = found.map_or(NO_RESULT, |(_, content)| content);
                    sent.push(json!({"role": "tool", "tool_call_id": ids[nth], "content": content}));
                }
            }
            MessageContent::ToolCalls(_) => {}
            MessageContent::ToolResult(_) if answered.contains(&at) => {}
            // Its call is no longer in the history: what it found may still matter.
            MessageContent::ToolResult(result) => {
                let text = format!("[Result of an earlier tool call]\n{}", result.content);
                add(&mut sent, "user", text.into());
            }
            MessageContent::Text(text) if text.trim().is_empty() => {}
            MessageContent::Text(text) => add(&mut sent, role(message.role), text.as_str().into()),
            MessageContent::MultiPart(parts) if parts.is_empty() => {}
            MessageContent::MultiPart(parts) => {
                add(&mut sent, role(message.role), parts.iter().map(part).collect::<Vec<_>>().into());
            }
        }
    }
    sent
}

/// What the system prompt and messages of the system say; servers take one such message, and it has to be the first.
fn instructions(system: &str, messages: &[Message]) -> String {
    let more = messages.iter().filter(|message| message.role == MessageRole::System).filter_map(Message::text);
    let all: Vec<&str> = std::iter::once(system).chain(more).filter(|text| !text.is_empty()).collect();
    all.join("\n\n")
}

/// Add what somebody says. Who has spoken last goes on; a user who speaks after a tool gets an answer first.
fn add(sent: &mut Vec<Value>, role: &str, content: Value) {
    let last = sent.last().map(|last| last["role"].as_str().unwrap_or_default().to_owned());
    match last.as_deref() {
        None | Some("system") if role == "assistant" => sent.push(json!({"role": "user", "content": EARLIER})),
        Some("tool") if role == "user" => sent.push(json!({"role": "assistant", "content": INTERRUPTED})),
        Some(before) if before == role => {
            if let Some(last) = sent.last_mut() {
                last["content"] = joined(last["content"].take(), content);
            }
            return;
        }
        _ => {}
    }
    sent.push(json!({"role": role, "content": content}));
}

fn joined(before: Value, after: Value) -> Value {
    match (before, after) {
        (Value::String(before), Value::String(after)) => format!("{before}\n\n{after}").into(),
        (before, after) => {
            let parts = |content| match content {
                Value::Array(parts) => parts,
                text => vec![json!({"type": "text", "text": text})],
            };
            let mut all = parts(before);
            all.extend(parts(after));
            all.into()
        }
    }
}

/// The ids by which the server knows calls of one message: its own, but where it gave one twice another for the later
/// one, as many servers refuse two results of the same id.
fn ids_of(calls: &[ToolCall], strict: bool) -> Vec<String> {
    let mut ids: Vec<String> = Vec::with_capacity(calls.len());
    for call in calls {
        let id = ids::for_server(&call.id, strict);
        ids.push(if ids.contains(&id) { ids::made_up(&call.id) } else { id });
    }
    ids
}

/// Calls are one message with the text that led to them, and with what the server wants back.
fn add_calls(sent: &mut Vec<Value>, calls: &[ToolCall], ids: &[String], told: &mut Told<'_>) {
    let before = sent.pop_if(|last| last["role"] == "assistant" && last["content"].is_string());
    let text = before.map_or(Value::Null, |message| message["content"].clone());
    if text.is_null() && sent.last().is_none_or(|last| last["role"] == "system") {
        sent.push(json!({"role": "user", "content": EARLIER}));
    }
    let mut message = json!({"role": "assistant", "content": text});
    let mut sent_calls = Vec::with_capacity(calls.len());
    for (given, id) in calls.iter().zip(ids) {
        let kept = (told.kept)(&given.id).unwrap_or_default();
        let mut function = json!({"name": (told.name)(&given.name), "arguments": arguments(&given.arguments)});
        extend(&mut function, kept.function);
        let mut call = json!({"id": id, "type": "function", "function": function});
        extend(&mut call, kept.call);
        extend(&mut message, kept.message);
        sent_calls.push(call);
    }
    message["tool_calls"] = sent_calls.into();
    sent.push(message);
}

/// Add fields to an object. What it has stays.
fn extend(object: &mut Value, more: serde_json::Map<String, Value>) {
    if let Value::Object(object) = object {
        more.into_iter().for_each(|(key, value)| {
            object.entry(key).or_insert(value);
        });
    }
}

/// Arguments as text. What the model wrote and is no JSON object is wrapped in one: servers read them.
fn arguments(given: &Value) -> String {
    match given {
        Value::Object(_) => given.to_string(),
        Value::Null => "{}".into(),
        Value::String(text) if serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok() => text.clone(),
        other => json!({"invalid": other}).to_string(),
    }
}

/// The result of a call, and how far after it. Another call that has the same id ends the search.
fn result_of<'a>(call: &ToolCall, after: &'a [Message]) -> Option<(usize, &'a str)> {
    for (at, message) in after.iter().enumerate() {
        match &message.content {
            MessageContent::ToolResult(result) if result.call_id == call.id => return Some((at, &result.content)),
            MessageContent::ToolCalls(calls) if calls.iter().any(|other| other.id == call.id) => return None,
            _ => {}
        }
    }
    None
}

fn role(role: MessageRole) -> &'static str {
    match role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "user", // a tool's message that is no result
    }
}

fn part(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text } => json!({"type": "text", "text": text}),
        ContentPart::Image { data, media_type } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
        }
    }
}

#[cfg(test)]
mod tests {
    use astrid_sdk::types::ToolCallResult;

    use super::*;

    fn sent(messages: &[Message]) -> Vec<Value> {
        for_server("", messages, Told { name: &mut |name| name.to_uppercase(), kept: &|_| None, strict_ids: false })
    }

    fn calls(ids: &[&str]) -> Message {
        Message::assistant_with_tools(
            ids.iter().map(|id| ToolCall::new(*id, "t").with_arguments(json!({"a": 1}))).collect(),
        )
    }

    fn result(id: &str) -> Message {
        Message::tool_result(ToolCallResult::success(id, format!("of {id}")))
    }

    #[test]
    fn calls_have_the_text_before_them_and_the_results_after_them() {
        let messages =
            [Message::user("go"), Message::assistant("I look."), calls(&["a", "b"]), result("b"), result("a")];
        let call = |id| json!({"id": id, "type": "function", "function": {"name": "T", "arguments": "{\"a\":1}"}});
        let expected = json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "of a"},
            {"role": "tool", "tool_call_id": "b", "content": "of b"},
        ]);
        assert_eq!(Value::Array(sent(&messages)), expected);
    }

    #[test]
    fn calls_without_text_have_null() {
        assert_eq!(sent(&[Message::user("u"), calls(&["a"]), result("a")])[1]["content"], Value::Null);
    }

    #[test]
    fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_told() {
        let messages = [result("gone"), calls(&["a", "b"]), result("b"), Message::user("again")];
        let told = sent(&messages);
        assert_eq!(told[0], json!({"role": "user", "content": "[Result of an earlier tool call]\nof gone"}));
        assert_eq!(told[2], json!({"role": "tool", "tool_call_id": "a", "content": NO_RESULT}));
        assert_eq!(told[3], json!({"role": "tool", "tool_call_id": "b", "content": "of b"}));
        assert_eq!(told[4], json!({"role": "assistant", "content": INTERRUPTED}));
        assert_eq!(told[5], json!({"role": "user", "content": "again"}));
        assert_eq!(told.len(), 6);
    }

    #[test]
    fn an_id_that_comes_again_has_a_result_each_time() {
        let told = sent(&[calls(&["a"]), calls(&["a"]), result("a")]);
        assert_eq!((&told[2]["content"], &told[4]["content"]), (&json!(NO_RESULT), &json!("of a")));
    }

    #[test]
    fn nobody_speaks_twice_in_a_row_or_says_nothing_and_a_user_begins() {
        let image = ContentPart::Image { data: "AA==".into(), media_type: "image/png".into() };
        let messages = [
            Message::assistant("from before"),
            Message::user("a"),
            Message::user(" "),
            Message::user("b"),
            Message { role: MessageRole::User, content: MessageContent::MultiPart(vec![image]) },
            Message::assistant("c"),
            Message::assistant("d"),
        ];
        let told = sent(&messages);
        assert_eq!(told[0], json!({"role": "user", "content": EARLIER}));
        assert_eq!(told[2]["content"][0], json!({"type": "text", "text": "a\n\nb"}));
        assert_eq!(told[2]["content"][1]["type"], "image_url");
        assert_eq!(told[3..], [json!({"role": "assistant", "content": "c\n\nd"})]);
    }

    #[test]
    fn what_was_kept_goes_back_with_its_call_and_its_message() {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let kept = |id: &str| {
            let mut kept = Kept { call: object(json!({"extra_content": id, "id": "mine"})), ..Kept::default() };
            kept.function = object(json!({"thought_signature": "t"}));
            kept.message = object(json!({"reasoning_content": "hm", "role": "system"}));
            (id == "a").then_some(kept)
        };
        let told = Told { name: &mut str::to_owned, kept: &kept, strict_ids: false };
        let sent = for_server("", &[Message::user("u"), calls(&["a", "b"])], told);
        assert_eq!((&sent[1]["reasoning_content"], &sent[1]["role"]), (&json!("hm"), &json!("assistant")));
        let first = &sent[1]["tool_calls"][0];
        assert_eq!((&first["extra_content"], &first["id"]), (&json!("a"), &json!("a")));
        assert_eq!(first["function"]["thought_signature"], "t");
        assert!(sent[1]["tool_calls"][1].get("extra_content").is_none());
    }

    #[test]
    fn all_instructions_are_the_first_message() {
        let messages = [Message::user("u"), Message::system("more")];
        let told = Told { name: &mut str::to_owned, kept: &|_| None, strict_ids: false };
        let told = for_server("first", &messages, told);
        let expected = json!([{"role": "system", "content": "first\n\nmore"}, {"role": "user", "content": "u"}]);
        assert_eq!(Value::Array(told), expected);
    }

    #[test]
    fn arguments_are_always_an_object() {
        for (given, expected) in [
            (json!({"a": 1}), r#"{"a":1}"#),
            (json!("{\"a\": 1}"), r#"{"a": 1}"#),
            (json!(null), "{}"),
            (json!("{oops"), r#"{"invalid":"{oops"}"#),
            (json!([1]), r#"{"invalid":[1]}"#),
        ] {
            assert_eq!(arguments(&given), expected);
        }
    }

    #[test]
    fn images_are_data_urls_and_empty_answers_are_left_out() {
        let parts = vec![
            ContentPart::Text { text: "t".into() },
            ContentPart::Image { data: "AA==".into(), media_type: "image/png".into() },
        ];
        let image = Message { role: MessageRole::User, content: MessageContent::MultiPart(parts) };
        let told = sent(&[Message::assistant(""), calls(&[]), image]);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["content"][1]["image_url"]["url"], "data:image/png;base64,AA==");
    }
}
