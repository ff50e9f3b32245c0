//! What a server sends: one JSON value for each piece of its answer, read field by field. Nothing in it is needed, and
//! whatever a server leaves out, adds, or writes in another type does no harm to the rest.

use serde_json::{Map, Value};

use crate::loose::whole;

/// One piece of an answer, or all of it where the server does not stream.
pub(crate) struct Chunk<'a> {
    value: &'a Value,
    /// Whether there may be halves of characters in its texts.
    pub(crate) loose: bool,
}

/// What one piece adds to the answer.
#[derive(Default)]
pub(crate) struct Delta<'a> {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<CallDelta>,
    pub(crate) finish_reason: &'a str,
    /// What the server wants back with the message: fields by name, whose texts and lists go on from piece to piece.
    pub(crate) kept: Vec<(&'static str, Value)>,
    /// Whether this is a whole message, which some servers send after its deltas once more.
    pub(crate) whole: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallDelta {
    pub(crate) index: Option<u64>,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// What the server wants back with the call, and with its function.
    pub(crate) kept: Map<String, Value>,
    pub(crate) kept_of_function: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
}

/// Names of reasoning. A server that uses several means the same by them.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];
/// What else of a message, of a call and of its function goes back to who sent it.
const OF_MESSAGE: [&str; 2] = ["reasoning_details", "extra_content"];
const OF_CALL: [&str; 3] = ["extra_content", "thought_signature", "provider_specific_fields"];
const OF_FUNCTION: [&str; 1] = ["thought_signature"];

impl<'a> Chunk<'a> {
    pub(crate) fn new(value: &'a Value, loose: bool) -> Self {
        Self { value, loose }
    }

    /// Whether it is a piece of an answer at all.
    pub(crate) fn is_piece(&self) -> bool {
        self.value.get("choices").is_some() || self.value.get("usage").is_some()
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        let of_choices = || self.choices().find_map(|choice| choice.get("usage"));
        let usage = self.value.get("usage").filter(|usage| usage.is_object()).or_else(of_choices)?;
        let count = |names: [&str; 2]| names.iter().find_map(|name| number(usage.get(name)?));
        let (sent, said) = (count(["prompt_tokens", "input_tokens"]), count(["completion_tokens", "output_tokens"]));
        let tokens = |count: Option<u64>| usize::try_from(count.unwrap_or_default()).unwrap_or(usize::MAX);
        (sent.is_some() || said.is_some())
            .then(|| Usage { prompt_tokens: tokens(sent), completion_tokens: tokens(said) })
    }

    /// What it adds. One answer was asked for: of several the first counts.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = Delta<'a>> {
        let loose = self.loose;
        self.choices().map(move |choice| delta(choice, loose))
    }

    fn choices(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let choices = self.value.get("choices").unwrap_or(&Value::Null);
        let list = choices.as_array().map_or(std::slice::from_ref(choices), Vec::as_slice);
        let first = |choice: &&Value| choice.get("index").and_then(number).unwrap_or(0) == 0;
        list.iter().filter(|choice| choice.is_object()).filter(first)
    }
}

fn delta(choice: &Value, loose: bool) -> Delta<'_> {
    let finish_reason = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default().trim();
    let filled = |key: &str| choice.get(key).filter(|said| said.as_object().is_some_and(|said| !said.is_empty()));
    let (said, is_whole) = match (filled("delta"), filled("message")) {
        (Some(delta), _) => (delta, false),
        (None, Some(message)) => (message, true),
        (None, None) => (&Value::Null, false),
    };
    let mut delta = Delta { finish_reason, whole: is_whole, ..Delta::default() };
    for key in ["content", "refusal"] {
        add_content(said.get(key).unwrap_or(&Value::Null), &mut delta);
    }
    if said.is_null() {
        add_content(choice.get("text").unwrap_or(&Value::Null), &mut delta); // of servers of the older completions
    }
    for key in REASONING {
        let mut told = Delta::default();
        add_content(said.get(key).unwrap_or(&Value::Null), &mut told);
        let text = told.text + &told.reasoning;
        if delta.reasoning.is_empty() {
            delta.reasoning.clone_from(&text);
        }
        if said.get(key).is_some_and(Value::is_string) {
            delta.kept.push((key, text.into()));
        }
    }
    let kept =
        OF_MESSAGE.iter().filter_map(|key| Some((*key, said.get(key).filter(|value| !value.is_null())?.clone())));
    delta.kept.extend(kept.map(|(key, value)| (key, without_halves(value, loose))));
    let calls = said
        .get("tool_calls")
        .map_or([].as_slice(), |calls| calls.as_array().map_or(std::slice::from_ref(calls), Vec::as_slice));
    delta.calls = calls.iter().filter(|call| call.is_object()).map(|given| call(given, loose)).collect();
    if delta.calls.is_empty()
        && let Some(function) = said.get("function_call").filter(|function| function.is_object())
    {
        let call = CallDelta { index: None, ..CallDelta::default() };
        delta.calls.push(with_function(call, function, loose));
    }
    delta
}

/// Text, or a list of parts of which some are text, and some what the model thought.
fn add_content(content: &Value, delta: &mut Delta<'_>) {
    match content {
        Value::String(text) => delta.text.push_str(text),
        Value::Array(parts) => parts.iter().for_each(|part| add_content(part, delta)),
        Value::Object(part) => {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
            let said = ["text", "thinking", "content", "value", "refusal"].iter().find_map(|key| part.get(*key));
            let mut inner = Delta::default();
            add_content(said.unwrap_or(&Value::Null), &mut inner);
            match kind {
                "thinking" | "reasoning" => delta.reasoning.push_str(&(inner.reasoning + &inner.text)),
                _ => {
                    delta.text.push_str(&inner.text);
                    delta.reasoning.push_str(&inner.reasoning);
                }
            }
        }
        _ => {}
    }
}

fn call(given: &Value, loose: bool) -> CallDelta {
    let id = match given.get("id") {
        Some(Value::String(id)) => whole(id, loose),
        Some(Value::Number(id)) => id.to_string(),
        _ => String::new(),
    };
    let kept = some_of(given, &OF_CALL, loose);
    let call = CallDelta { index: given.get("index").and_then(number), id, kept, ..CallDelta::default() };
    // A few servers write name and arguments beside the id.
    let function = given.get("function").filter(|function| function.is_object()).unwrap_or(given);
    with_function(call, function, loose)
}

fn with_function(mut call: CallDelta, function: &Value, loose: bool) -> CallDelta {
    call.name = function.get("name").and_then(Value::as_str).map(|name| whole(name, loose)).unwrap_or_default();
    call.arguments = match function.get("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(whole) => without_halves(whole.clone(), loose).to_string(),
    };
    call.kept_of_function = some_of(function, &OF_FUNCTION, loose);
    if call.kept == call.kept_of_function {
        call.kept_of_function.clear();
    }
    call
}

fn some_of(given: &Value, keys: &[&str], loose: bool) -> Map<String, Value> {
    let found = keys.iter().filter_map(|key| Some((*key, given.get(key).filter(|value| !value.is_null())?)));
    found.map(|(key, value)| (key.to_owned(), without_halves(value.clone(), loose))).collect()
}

fn without_halves(value: Value, loose: bool) -> Value {
    match value {
        Value::String(text) if loose => Value::String(whole(&text, loose)),
        Value::Array(list) => list.into_iter().map(|value| without_halves(value, loose)).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (whole(&key, loose), without_halves(value, loose))).collect()
        }
        other => other,
    }
}

/// A number that is not negative, whether it is written as `3`, `3.0` or `"3"`.
pub(crate) fn number(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_u64().map(|number| number as f64).or_else(|| number.as_f64())?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// What a server says about an error, in whichever of the usual shapes: `{"error": {"message"}}`, `{"error": "…"}`,
/// `{"message"}`, `{"detail"}`, `[{"error": …}]`. None: this tells of no error. An error that says nothing is none. That a
/// conversation is too long for the model is told by its code, whatever the server's words are.
pub(crate) fn error_in(value: &Value) -> Option<String> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let said = words_in(value)?;
    let coded = context_window::in_error(value) && !said.contains(context_window::CODE);
    Some(if coded { format!("{said} ({})", context_window::CODE) } else { said })
}

fn words_in(value: &Value) -> Option<String> {
    let has_answer = value.get("choices").and_then(Value::as_array).is_some_and(|choices| !choices.is_empty());
    if let Some(error) = value.get("error").filter(|error| !says_nothing(error, has_answer)) {
        return Some(message_in(error).unwrap_or_else(|| error.to_string()));
    }
    let of_choice = value.get("choices").and_then(Value::as_array).into_iter().flatten();
    if let Some(error) = of_choice.filter_map(|choice| choice.get("error")).find(|error| !says_nothing(error, true)) {
        return Some(message_in(error).unwrap_or_else(|| error.to_string()));
    }
    let is_error = value.get("object").and_then(Value::as_str) == Some("error")
        || value.get("type").and_then(Value::as_str) == Some("error");
    let bare = value.get("choices").is_none() && (value.get("message").is_some() || value.get("detail").is_some());
    if is_error || bare { message_in(value) } else { None }
}

fn says_nothing(error: &Value, has_answer: bool) -> bool {
    match error {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        // Some servers send the whole of an error that did not happen.
        Value::Object(object) => has_answer && object.values().all(|value| says_nothing(value, true)),
        Value::Bool(true) => has_answer,
    }
}

fn message_in(error: &Value) -> Option<String> {
    if let Value::String(text) = error {
        return Some(text.clone());
    }
    ["message", "detail", "error"].iter().find_map(|key| match error.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::String(_) | Value::Null => None,
        other => Some(message_in(other).unwrap_or_else(|| other.to_string())),
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
            json!({"error": {"message": "no"}, "choices": [{"delta": {}, "finish_reason": "error"}]}),
            json!({"choices": [{"delta": {}, "error": {"code": 502, "message": "no"}, "finish_reason": "error"}]}),
        ] {
            assert_eq!(error_in(&value).as_deref(), Some("no"), "{value}");
        }
        assert_eq!(error_in(&json!({"error": {"code": 5}})).as_deref(), Some(r#"{"code":5}"#));
        assert!(error_in(&json!({"error": {}})).is_some());
    }

    #[test]
    fn an_answer_is_no_error() {
        for value in [
            json!({"choices": [], "error": null}),
            json!({"choices": [{"message": {}}], "message": "x"}),
            json!({"choices": [{"delta": {}}], "error": ""}),
            json!({"choices": [{"delta": {}}], "error": {}}),
            json!({"choices": [{"delta": {}}], "error": {"message": "", "code": 0, "type": null}}),
            json!({"choices": [{"delta": {}}], "error": false}),
            json!({}),
        ] {
            assert_eq!(error_in(&value), None, "{value}");
        }
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
        let parts = json!({"choices": [{"delta": {"content": [
            {"type": "text", "text": "a"}, {"type": "x"}, "b", null, {"text": {"value": "c"}},
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        ]}}]});
        let delta = Chunk::new(&parts, false).deltas().next().unwrap();
        assert_eq!((delta.text.as_str(), delta.reasoning.as_str()), ("abc", "hm"));
    }

    #[test]
    fn a_number_is_one_however_it_is_written() {
        for value in [json!(3), json!(3.0), json!("3"), json!(" 3.0 ")] {
            assert_eq!(number(&value), Some(3), "{value}");
        }
        for value in [json!(-1), json!("x"), json!(null), json!([3]), json!(true)] {
            assert_eq!(number(&value), None, "{value}");
        }
    }

    #[test]
    fn fields_of_other_types_are_left_out() {
        for value in [
            json!({"choices": [{"delta": {"content": "x", "tool_calls": [null, 7, "a"]}, "finish_reason": {}}]}),
            json!({"choices": {"delta": {"content": "x", "tool_calls": null, "refusal": 1}}, "usage": []}),
            json!({"choices": [null, {"index": "0", "delta": {"content": "x", "reasoning": false}}], "usage": {"prompt_tokens": null}}),
            json!({"choices": [{"index": 1.0, "delta": {"content": "y"}}, {"index": 0.0, "delta": {"content": "x"}}]}),
            json!({"choices": [{"delta": null, "message": {"content": "x"}}]}),
        ] {
            let chunk = Chunk::new(&value, false);
            let deltas: Vec<_> = chunk.deltas().collect();
            assert_eq!((deltas.len(), deltas[0].text.as_str(), chunk.usage()), (1, "x", None), "{value}");
            assert!(deltas[0].calls.is_empty() && deltas[0].reasoning.is_empty());
        }
    }

    #[test]
    fn usage_is_read_in_whatever_type() {
        let value = json!({"choices": null, "usage": {"prompt_tokens": 3.0, "completion_tokens": "4"}});
        let usage = Chunk::new(&value, false).usage();
        assert_eq!(usage, Some(Usage { prompt_tokens: 3, completion_tokens: 4 }));
    }
}
