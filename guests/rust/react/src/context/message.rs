//! Messages as they are weighed and shortened. They pass through as the text they are as long as nothing is left out.

use context_window::tokens;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// What a picture costs, whatever its bytes are: servers make it smaller.
const PICTURE_TOKENS: u64 = 1500;
/// For the role and what stands between messages.
const FRAME_TOKENS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    User,
    /// What the model said.
    Text,
    /// Calls of tools, which their results follow.
    Calls,
    Result,
}

/// A message of the conversation.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) raw: Box<RawValue>,
    pub(crate) kind: Kind,
    pub(crate) tokens: u64,
}

#[derive(Deserialize)]
struct Head<'a> {
    role: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Message {
    pub(crate) fn new(raw: Box<RawValue>) -> Self {
        let kind = kind(&raw);
        let tokens = weight(&raw) + FRAME_TOKENS;
        Self { raw, kind, tokens }
    }

    /// None where a value cannot be written, which there is none of.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        to_raw_value(value).ok().map(Self::new)
    }

    /// Leave out the middle of what is longer than so many bytes: of a text, of a result, or of each text in the arguments
    /// of calls. What is left out is said in its place.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        if self.raw.get().len() <= bytes {
            return;
        }
        let Ok(mut message) = serde_json::from_str::<Value>(self.raw.get()) else { return };
        let content = &mut message["content"];
        match (self.kind, content) {
            (Kind::Result, Value::Object(result)) => {
                if let Some(Value::String(text)) = result.get_mut("content") {
                    *text = middle_left_out(text, bytes, ASK_FOR_A_PART);
                }
            }
            (Kind::Calls, Value::Array(calls)) => {
                let share = bytes / calls.len().max(1);
                calls.iter_mut().for_each(|call| shorten_texts(&mut call["arguments"], share));
            }
            (_, Value::String(text)) => *text = middle_left_out(text, bytes, ""),
            _ => return,
        }
        if let Ok(raw) = to_raw_value(&message) {
            *self = Self::new(raw);
        }
    }

    /// Put a text before what the user said.
    pub(crate) fn prefixed(self, text: &str) -> Self {
        let Ok(mut message) = serde_json::from_str::<Value>(self.raw.get()) else { return self };
        match &mut message["content"] {
            Value::String(said) => *said = format!("{text}\n\n{said}"),
            Value::Array(parts) => parts.insert(0, json!({"type": "text", "text": text})),
            _ => return self,
        }
        to_raw_value(&message).map_or(self, Self::new)
    }

    /// The message as a line of a transcript, with no text in it of more than so many bytes.
    pub(crate) fn told(&self, bytes: usize) -> String {
        let mut short = self.clone();
        short.shorten(bytes);
        let message: Value = serde_json::from_str(short.raw.get()).unwrap_or_default();
        let content = &message["content"];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match self.kind {
            Kind::User => format!("User: {}", spoken(content)),
            Kind::Text => format!("Assistant: {}", spoken(content)),
            Kind::Calls => {
                let calls = content.as_array().into_iter().flatten();
                let calls: Vec<_> =
                    calls.map(|call| format!("{} {}", text(&call["name"]), call["arguments"])).collect();
                format!("Assistant calls: {}", calls.join("; "))
            }
            Kind::Result => format!("Result: {}", text(&content["content"])),
        }
    }
}

pub(crate) const ASK_FOR_A_PART: &str =
    " To see more, call the tool again for a part: a range of lines, a search, or a limit.";

/// What a person reads in a content.
fn spoken(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part["text"].as_str().unwrap_or("[a picture]"));
            texts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

fn kind(raw: &RawValue) -> Kind {
    let Ok(Head { role, content }) = serde_json::from_str::<Head<'_>>(raw.get()) else { return Kind::Text };
    let content = content.get();
    match role.as_str() {
        "user" => Kind::User,
        "tool" if content.starts_with('{') => Kind::Result,
        "assistant" if content.starts_with('[') && content.contains("\"arguments\"") => Kind::Calls,
        _ => Kind::Text,
    }
}

/// The tokens of a message. A picture is no text.
fn weight(raw: &RawValue) -> u64 {
    if !raw.get().contains("\"media_type\"") {
        return tokens(raw.get());
    }
    let Ok(message) = serde_json::from_str::<Value>(raw.get()) else { return tokens(raw.get()) };
    let Some(parts) = message["content"].as_array() else { return tokens(raw.get()) };
    let of = |part: &Value| if part["type"] == "image" { PICTURE_TOKENS } else { tokens(&part.to_string()) };
    parts.iter().map(of).sum()
}

/// Of fewer bytes the end would tell nothing.
const BEGINNING_ALONE: usize = 128;

/// The beginning and the end of a text that has more than so many bytes, and how much is left out between them.
pub(crate) fn middle_left_out(text: &str, bytes: usize, advice: &str) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    if bytes < BEGINNING_ALONE {
        return format!("{}\n[The first {bytes} of {} bytes.]", &text[..text.floor_char_boundary(bytes)], text.len());
    }
    let head = text.floor_char_boundary(bytes / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - bytes / 4);
    let left_out = tail - head;
    let whole = text.len();
    format!("{}\n[{left_out} of {whole} bytes are left out here.{advice}]\n{}", &text[..head], &text[tail..])
}

fn shorten_texts(value: &mut Value, bytes: usize) {
    match value {
        Value::String(text) => *text = middle_left_out(text, bytes, ""),
        Value::Array(values) => values.iter_mut().for_each(|value| shorten_texts(value, bytes)),
        Value::Object(fields) => fields.values_mut().for_each(|value| shorten_texts(value, bytes)),
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn message(value: &Value) -> Message {
        Message::new(to_raw_value(value).unwrap())
    }

    pub(crate) fn user(text: &str) -> Message {
        message(&json!({"role": "user", "content": text}))
    }

    pub(crate) fn said(text: &str) -> Message {
        message(&json!({"role": "assistant", "content": text}))
    }

    pub(crate) fn call(id: usize) -> Message {
        message(&json!({"role": "assistant", "content": [{"id": format!("c{id}"), "name": "x", "arguments": {}}]}))
    }

    pub(crate) fn result(id: usize, text: &str) -> Message {
        let content = json!({"call_id": format!("c{id}"), "content": text, "is_error": false});
        message(&json!({"role": "tool", "content": content}))
    }

    #[test]
    fn each_kind_is_known() {
        for (message, kind) in [
            (user("a"), Kind::User),
            (said("\"arguments\""), Kind::Text),
            (call(1), Kind::Calls),
            (result(1, "r"), Kind::Result),
            (message(&json!({"role": "system", "content": "s"})), Kind::Text),
            (message(&json!({"role": "user", "content": [{"type": "text", "text": "x"}]})), Kind::User),
            (message(&json!(7)), Kind::Text),
        ] {
            assert_eq!(message.kind, kind, "{}", message.raw);
        }
    }

    #[test]
    fn a_picture_does_not_count_by_its_bytes() {
        let part = json!({"type": "image", "data": "x".repeat(500_000), "media_type": "image/png"});
        let picture = message(&json!({"role": "user", "content": [part]}));
        assert!((PICTURE_TOKENS..PICTURE_TOKENS + 20).contains(&picture.tokens));
    }

    #[test]
    fn head_and_tail_of_a_long_result_are_kept_and_what_is_missing_is_said() {
        let mut long = result(1, &format!("begin{}end", "é".repeat(50_000)));
        long.shorten(1000);
        let value: Value = serde_json::from_str(long.raw.get()).unwrap();
        let text = value["content"]["content"].as_str().unwrap();
        assert!(text.starts_with("begin") && text.ends_with("end") && text.len() < 1200);
        assert!(text.contains("of 100008 bytes are left out here. To see more, call the tool again"), "{text}");
        assert_eq!(value["content"]["call_id"], "c1");
        assert!(long.tokens < 700);
    }

    #[test]
    fn long_arguments_are_shortened_where_they_are_text() {
        let arguments = json!({"path": "a.txt", "content": "z".repeat(9000), "lines": [1, "y".repeat(9000)]});
        let mut calls =
            message(&json!({"role": "assistant", "content": [{"id": "c", "name": "w", "arguments": arguments}]}));
        calls.shorten(400);
        assert!(calls.raw.get().len() < 1200 && calls.kind == Kind::Calls);
        assert!(calls.raw.get().contains("a.txt"));
    }

    #[test]
    fn what_is_short_stays_the_text_that_it_is() {
        let mut short = message(&json!({"role": "user", "content": "hi", "at": 7}));
        let before = short.raw.get().to_owned();
        short.shorten(100);
        assert_eq!(short.raw.get(), before);
    }
}
