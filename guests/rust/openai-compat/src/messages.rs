//! A conversation in the shape that servers take. They refuse one in which a tool call has no result, or a result no
//! call; a turn that was cancelled and a history that was cut leave such behind, so what is missing is made up here.

use std::collections::HashSet;

use astrid_sdk::types::{ContentPart, Message, MessageContent, MessageRole, ToolCall};
use serde_json::{Value, json};

const NO_RESULT: &str = "The call was interrupted; there is no result.";

/// The messages for a server. `told` gives a tool's name as the server knows it.
pub(crate) fn for_server(system: &str, messages: &[Message], told: &mut dyn FnMut(&str) -> String) -> Vec<Value> {
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
                add_calls(&mut sent, calls, told);
                for (nth, call) in calls.iter().enumerate() {
                    let again = calls[..nth].iter().any(|earlier| earlier.id == call.id);
                    let found = if again { None } else { result_of(call, &messages[at + 1..]) };
                    answered.extend(found.map(|(after, _)| at + 1 + after));
                    let content = found.map_or(NO_RESULT, |(_, content)| content);
                    sent.push(json!({"role": "tool", "tool_call_id": call.id, "content": content}));
                }
            }
            MessageContent::ToolCalls(_) => {}
            MessageContent::ToolResult(_) if answered.contains(&at) => {}
            // Its call is no longer in the history: what it found may still matter.
            MessageContent::ToolResult(result) => {
                sent.push(
                    json!({"role": "user", "content": format!("[Result of an earlier tool call]\n{}", result.content)}),
                );
            }
            MessageContent::Text(text) if text.is_empty() && message.role == MessageRole::Assistant => {}
            MessageContent::Text(text) => sent.push(json!({"role": role(message.role), "content": text})),
            MessageContent::MultiPart(parts) => {
                let parts: Vec<Value> = parts.iter().map(part).collect();
                sent.push(json!({"role": role(message.role), "content": parts}));
            }
        }
    }
    sent
}

/// The ids of all tool calls of a conversation.
pub(crate) fn call_ids(messages: &[Message]) -> HashSet<String> {
    messages.iter().filter_map(Message::tool_calls).flatten().map(|call| call.id.clone()).collect()
}

/// What the system prompt and messages of the system say; servers take one such message, and it has to be the first.
fn instructions(system: &str, messages: &[Message]) -> String {
    let more = messages.iter().filter(|message| message.role == MessageRole::System).filter_map(Message::text);
    let all: Vec<&str> = std::iter::once(system).chain(more).filter(|text| !text.is_empty()).collect();
    all.join("\n\n")
}

/// Calls are one message with the text that led to them.
fn add_calls(sent: &mut Vec<Value>, calls: &[ToolCall], told: &mut dyn FnMut(&str) -> String) {
    let before = sent.pop_if(|last| last["role"] == "assistant" && last["content"].is_string());
    let text = before.map_or(Value::Null, |message| message["content"].clone());
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| {
            let function = json!({"name": told(&call.name), "arguments": arguments(&call.arguments)});
            json!({"id": call.id, "type": "function", "function": function})
        })
        .collect();
    sent.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
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
        for_server("", messages, &mut |name| name.to_uppercase())
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
        assert_eq!(sent(&[calls(&["a"]), result("a")])[0]["content"], Value::Null);
    }

    #[test]
    fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_told() {
        let messages = [result("gone"), calls(&["a", "b"]), result("b"), Message::user("again")];
        let told = sent(&messages);
        assert_eq!(told[0], json!({"role": "user", "content": "[Result of an earlier tool call]\nof gone"}));
        assert_eq!(told[2], json!({"role": "tool", "tool_call_id": "a", "content": NO_RESULT}));
        assert_eq!(told[3], json!({"role": "tool", "tool_call_id": "b", "content": "of b"}));
        assert_eq!(told[4], json!({"role": "user", "content": "again"}));
        assert_eq!(told.len(), 5);
    }

    #[test]
    fn an_id_that_comes_again_has_a_result_each_time() {
        let told = sent(&[calls(&["a"]), calls(&["a"]), result("a")]);
        assert_eq!((&told[1]["content"], &told[3]["content"]), (&json!(NO_RESULT), &json!("of a")));
    }

    #[test]
    fn all_instructions_are_the_first_message() {
        let messages = [Message::user("u"), Message::system("more")];
        let told = for_server("first", &messages, &mut str::to_owned);
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
