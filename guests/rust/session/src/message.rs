//! Messages of a conversation. They are kept as the JSON they came as: what this capsule does not know of stays in them.

use std::io::{self, Write};

use astrid_sdk::types::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::SessionError;

/// The messages in a field of a request; none where the field is missing or null.
///
/// All of them or none: the first that is no message is named, and nothing of the request is kept.
pub(crate) fn messages(request: &Value, field: &str) -> Result<Vec<Value>, SessionError> {
    let found = match request.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(found)) => found,
        Some(_) => return Err(SessionError::new(format!("{field} must be a list of messages."))),
    };
    for (at, message) in found.iter().enumerate() {
        if let Err(error) = Message::deserialize(message) {
            return Err(SessionError::new(format!("{field}[{at}] is no message: {error}.")));
        }
    }
    Ok(found.clone())
}

pub(crate) fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// What a person would read in a message: its text, or the first text among its parts. None for calls and results.
pub(crate) fn text(message: &Value) -> Option<&str> {
    match &message["content"] {
        Value::String(text) => Some(text),
        Value::Array(parts) => parts.iter().find(|part| part["type"] == "text")?["text"].as_str(),
        _ => None,
    }
}

/// How many bytes a value has as JSON, with the comma that follows it in a list.
pub(crate) fn size(value: &impl Serialize) -> usize {
    let mut counted = Counted(0);
    match serde_json::to_writer(&mut counted, value) {
        Ok(()) => counted.0 + 1,
        Err(_) => usize::MAX,
    }
}

struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message with little of its text, so that it has at most about `most` bytes: the beginning, and how much is missing.
/// None for calls of tools, which would be other calls then.
pub(crate) fn shortened(message: &Value, most: usize) -> Option<Value> {
    let mut short = message.clone();
    match &mut short["content"] {
        Value::String(text) => *text = beginning(text, most),
        Value::Object(result) => {
            let text = beginning(result.get("content")?.as_str()?, most);
            result.insert("content".to_owned(), Value::String(text));
        }
        Value::Array(parts) if parts.iter().any(|part| part.get("type").is_some()) => {
            let bytes = size(parts);
            let told = json!({"type": "text", "text": format!("[Left out here: {bytes} bytes that are too large.]")});
            *parts = vec![told];
        }
        _ => return None,
    }
    Some(short)
}

fn beginning(text: &str, most: usize) -> String {
    // Escaped, a character may take six times its bytes: what counts is the room it takes.
    let mut room = most.saturating_sub(200);
    let fits = text.char_indices().find(|(_, character)| {
        let taken = escaped(*character);
        let full = taken > room;
        room = room.saturating_sub(taken);
        full
    });
    match fits {
        None => text.to_owned(),
        Some((end, _)) => format!("{}\n[Left out here: {} bytes.]", &text[..end], text.len() - end),
    }
}

fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '\0'..=' ' => 6,
        other => other.len_utf8(),
    }
}

/// At most `most` characters of a text, with an ellipsis where there are more.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> Value {
        json!({"role": "tool", "content": {"call_id": "c1", "content": text, "is_error": false}})
    }

    #[test]
    fn messages_stay_as_they_came() {
        let given = json!({"m": [
            {"role": "user", "content": "hi", "at": 7},
            {"role": "assistant", "content": [{"id": "c1", "name": "x", "arguments": {"b": 1, "a": 2}}]},
            result("ok"),
        ]});
        assert_eq!(messages(&given, "m").unwrap(), *given["m"].as_array().unwrap());
        assert!(messages(&given, "other").unwrap().is_empty());
        assert!(messages(&json!({"m": null}), "m").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_message_is_named() {
        let error = messages(&json!({"m": [{"role": "user", "content": "hi"}, {"role": "nobody"}]}), "m").unwrap_err();
        assert!(error.to_string().starts_with("m[1] is no message: "), "{error}");
        let error = messages(&json!({"m": "hi"}), "m").unwrap_err();
        assert_eq!(error.to_string(), "m must be a list of messages.");
    }

    #[test]
    fn the_text_of_a_message_is_what_a_person_would_read() {
        let parts = json!({"role": "user", "content": [
            {"type": "image", "data": "eA==", "media_type": "image/png"},
            {"type": "text", "text": "look"},
        ]});
        assert_eq!(text(&parts), Some("look"));
        assert_eq!(text(&json!({"role": "user", "content": "hi"})), Some("hi"));
        assert_eq!(text(&result("ok")), None);
        assert_eq!(text(&json!({"role": "assistant", "content": [{"id": "1", "name": "x", "arguments": {}}]})), None);
    }

    #[test]
    fn a_size_is_that_of_the_json_and_its_comma() {
        assert_eq!(size(&json!({"a": "ä\n"})), r#"{"a":"ä\n"},"#.len());
    }

    #[test]
    fn a_long_text_is_shortened_to_its_beginning() {
        for text in ["x".repeat(5000), "\u{1}".repeat(5000), "ü\"\n".repeat(2000)] {
            for message in [result(&text), json!({"role": "user", "content": text})] {
                let short = shortened(&message, 1024).unwrap();
                assert!(size(&short) <= 1024 + 100, "{}", size(&short));
                assert!(short.to_string().contains("Left out here: "));
                assert_eq!(short["content"]["call_id"], message["content"]["call_id"]);
            }
        }
        assert_eq!(shortened(&result("ok"), 1024), Some(result("ok")));
    }

    #[test]
    fn parts_are_left_out_and_calls_are_not() {
        let image = json!({"role": "user", "content": [
            {"type": "image", "data": "x".repeat(5000), "media_type": "image/png"}
        ]});
        let short = shortened(&image, 1024).unwrap();
        assert!(text(&short).unwrap().starts_with("[Left out here: 50"));
        let calls = json!({"role": "assistant", "content": [{"id": "1", "name": "x", "arguments": {"y": "z"}}]});
        assert_eq!(shortened(&calls, 10), None);
    }

    #[test]
    fn a_text_is_clipped_between_characters() {
        assert_eq!(clipped("äöü", 2), "äö…");
        assert_eq!(clipped("äöü", 3), "äöü");
    }
}
