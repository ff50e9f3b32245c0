//! What travels through the router. Arguments and contents are not parsed: they pass through as the text they are.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Deserialize as Read, Serialize as Write};
use serde_json::value::{RawValue, to_raw_value};

/// `tool_execute_request`. A missing name is an empty one, which is no tool's; missing arguments are `null`.
#[derive(Read, Write)]
#[serde(tag = "type", rename = "tool_execute_request")]
pub(crate) struct ExecuteRequest<'a> {
    #[serde(borrow)]
    pub(crate) call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) tool_name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// `tool_execute_result`.
#[derive(Read, Write)]
#[serde(tag = "type", rename = "tool_execute_result")]
pub(crate) struct ExecuteResult<'a> {
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow)]
    result: ToolCallResult<'a>,
}

#[derive(Read, Write)]
struct ToolCallResult<'a> {
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "text_as_written")]
    content: Cow<'a, RawValue>,
    #[serde(default)]
    is_error: bool,
}

impl<'a> ExecuteResult<'a> {
    /// The answer to a call that failed.
    pub(crate) fn error(call_id: &'a str, content: &str) -> serde_json::Result<Self> {
        let content = Cow::Owned(to_raw_value(content)?);
        let call_id = Cow::Borrowed(call_id);
        Ok(Self { call_id: call_id.clone(), result: ToolCallResult { call_id, content, is_error: true } })
    }
}

/// A JSON string, still in quotes.
fn text_as_written<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Cow<'a, RawValue>, D::Error> {
    let text = <&RawValue>::deserialize(from)?;
    if text.get().starts_with('"') {
        Ok(Cow::Borrowed(text))
    } else {
        Err(D::Error::custom("the content of a result must be a string"))
    }
}

/// Whether a tool may have this name. It becomes one segment of a topic, and `result` is taken: results go to
/// `tool.v1.execute.result`.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ':');
    !name.is_empty() && name != "result" && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on<'a, T: Read<'a> + Write>(text: &'a str) -> String {
        serde_json::to_string(&serde_json::from_str::<T>(text).unwrap()).unwrap()
    }

    #[test]
    fn letters_and_digits_of_any_script_hyphens_underscores_and_colons_make_a_tool_name() {
        for name in ["read_file", "a-1", "server:tool", "wörter", "単語", "results"] {
            assert!(is_tool_name(name), "{name}");
        }
    }

    #[test]
    fn whatever_would_change_the_topic_is_no_tool_name() {
        for name in ["", "result", "foo.bar", "*", "a b", "a/b", "a\n", "a\0", "🙂"] {
            assert!(!is_tool_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_request_passes_through_as_it_is() {
        let text = r#"{"type":"tool_execute_request","call_id":"c\"1","tool_name":"t","arguments":{"b":[1.0,2e3],"a":"\u00e9"}}"#;
        assert_eq!(passed_on::<ExecuteRequest>(text), text);
    }

    #[test]
    fn a_request_without_arguments_has_null() {
        let expected = r#"{"type":"tool_execute_request","call_id":"c","tool_name":"t","arguments":null}"#;
        assert_eq!(passed_on::<ExecuteRequest>(r#"{"call_id":"c","tool_name":"t"}"#), expected);
        assert_eq!(passed_on::<ExecuteRequest>(expected), expected);
    }

    #[test]
    fn a_request_without_a_call_id_cannot_be_read() {
        assert!(serde_json::from_str::<ExecuteRequest>(r#"{"tool_name":"t","arguments":{}}"#).is_err());
        assert!(serde_json::from_str::<ExecuteRequest>(r#"{"call_id":1,"tool_name":"t"}"#).is_err());
    }

    #[test]
    fn a_result_passes_through_as_it_is() {
        let text = r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"\"h\u00efy\n\"","is_error":true}}"#;
        assert_eq!(passed_on::<ExecuteResult>(text), text);
    }

    #[test]
    fn a_result_is_no_error_unless_it_says_so() {
        let text = r#"{"call_id":"c","result":{"content":"","call_id":"c"}}"#;
        let expected =
            r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"","is_error":false}}"#;
        assert_eq!(passed_on::<ExecuteResult>(text), expected);
    }

    #[test]
    fn a_result_whose_content_is_not_text_cannot_be_read() {
        for content in ["1", "null", "{}", "[\"a\"]"] {
            let text = format!(r#"{{"call_id":"c","result":{{"call_id":"c","content":{content}}}}}"#);
            assert!(serde_json::from_str::<ExecuteResult>(&text).is_err(), "{content}");
        }
    }

    #[test]
    fn an_error_result_carries_the_call_id() {
        let result = ExecuteResult::error("c", "Invalid tool name: \"\n").unwrap();
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"Invalid tool name: \"\n","is_error":true}}"#
        );
    }
}
