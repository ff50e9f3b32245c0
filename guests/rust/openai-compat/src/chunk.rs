//! What a server sends: one JSON object for each piece of its answer. Nothing in it is needed, and whatever servers
//! leave out or add does no harm.

use serde::Deserialize;
use serde_json::Value;

/// One piece of an answer, or all of it where the server does not stream.
#[derive(Default, Deserialize)]
pub(crate) struct Chunk {
    #[serde(default)]
    pub(crate) choices: Option<Vec<Choice>>,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Choice {
    #[serde(default)]
    pub(crate) index: Option<u64>,
    /// `message` is what servers that do not stream say instead.
    #[serde(default, alias = "message")]
    pub(crate) delta: Option<Delta>,
    #[serde(default)]
    pub(crate) finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Delta {
    #[serde(default)]
    pub(crate) content: Option<Content>,
    #[serde(default)]
    pub(crate) refusal: Option<String>,
    #[serde(default, alias = "reasoning")]
    pub(crate) reasoning_content: Option<Content>,
    #[serde(default)]
    pub(crate) tool_calls: Option<Vec<CallDelta>>,
}

/// Text, or a list of parts of which some are text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Other(Value),
}

impl Content {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Other(Value::Array(parts)) => {
                parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
            }
            Self::Other(_) => String::new(),
        }
    }
}

#[derive(Default, Deserialize)]
pub(crate) struct CallDelta {
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) function: Option<Function>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Function {
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Text that is JSON once it is whole; some servers send the object itself.
    #[serde(default)]
    pub(crate) arguments: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: usize,
    #[serde(default)]
    pub(crate) completion_tokens: usize,
}

/// What a server says about an error, in whichever of the usual shapes: `{"error": {"message"}}`, `{"error": "…"}`,
/// `{"message"}`, `{"detail"}`, `[{"error": …}]`. None: this tells of no error. That a conversation is too long for the
/// model is told by its code, whatever the server's words are.
pub(crate) fn error_in(value: &Value) -> Option<String> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let said = words_in(value)?;
    let coded = context_window::in_error(value) && !said.contains(context_window::CODE);
    Some(if coded { format!("{said} ({})", context_window::CODE) } else { said })
}

fn words_in(value: &Value) -> Option<String> {
    match value.get("error") {
        Some(Value::Null) | None => {}
        Some(error) => return Some(message_in(error).unwrap_or_else(|| error.to_string())),
    }
    let is_error = value.get("object").and_then(Value::as_str) == Some("error")
        || value.get("type").and_then(Value::as_str) == Some("error");
    let bare = value.get("choices").is_none() && (value.get("message").is_some() || value.get("detail").is_some());
    if is_error || bare { message_in(value) } else { None }
}

fn message_in(error: &Value) -> Option<String> {
    if let Value::String(text) = error {
        return Some(text.clone());
    }
    ["message", "detail"].iter().find_map(|key| match error.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_found_in_every_usual_shape() {
        for value in [
            json!({"error": {"message": "no", "type": "t"}}),
            json!({"error": "no"}),
            json!({"object": "error", "message": "no", "code": 400}),
            json!({"detail": "no"}),
            json!({"message": "no"}),
            json!([{"error": {"code": 400, "message": "no"}}]),
        ] {
            assert_eq!(error_in(&value).as_deref(), Some("no"), "{value}");
        }
        assert_eq!(error_in(&json!({"error": {"code": 5}})).as_deref(), Some(r#"{"code":5}"#));
    }

    #[test]
    fn an_answer_is_no_error() {
        assert_eq!(error_in(&json!({"choices": [], "error": null})), None);
        assert_eq!(error_in(&json!({"choices": [{"message": {}}], "message": "x"})), None);
        assert_eq!(error_in(&json!({})), None);
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_by_its_code() {
        for (value, told) in [
            (json!({"error": {"message": "no", "code": "context_length_exceeded"}}), "no (context_length_exceeded)"),
            (json!({"error": {"message": "no", "type": "exceed_context_size_error"}}), "no (context_length_exceeded)"),
            (json!({"error": "prompt is too long"}), "prompt is too long (context_length_exceeded)"),
            (json!({"error": {"message": "context_length_exceeded"}}), "context_length_exceeded"),
        ] {
            assert_eq!(error_in(&value).as_deref(), Some(told));
        }
    }

    #[test]
    fn content_in_parts_is_their_text() {
        let delta: Delta =
            serde_json::from_value(json!({"content": [{"type": "text", "text": "a"}, {"type": "x"}, {"text": "b"}]}))
                .unwrap();
        assert_eq!(delta.content.unwrap().into_text(), "ab");
    }
}
