//! What passes the gate. Arguments are not parsed: only who is asked has to read them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// An event of `tool.v1.execute.<one segment>`.
#[derive(Debug)]
pub(crate) enum Passing<'a> {
    Call(Call<'a>),
    /// A result, or something else that no tool can take for a call.
    Other,
}

/// A call of a tool.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Empty where there is none: nobody waits for a result then.
    pub(crate) call_id: Cow<'a, str>,
    pub(crate) tool_name: Cow<'a, str>,
    /// JSON, as it was written.
    pub(crate) arguments: &'a str,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Passing<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Passing<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    /// A call is what has a tool's name or arguments, whatever type it says it is: a tool looks at no more either.
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Passing<'de>, M::Error> {
        let (mut call_id, mut tool_name, mut arguments) = (None, None, None);
        while let Some(Text(key)) = map.next_key()? {
            match key.as_ref() {
                "call_id" => call_id = Some(map.next_value::<Text>()?.0),
                "tool_name" => tool_name = Some(map.next_value::<Text>()?.0),
                "arguments" => arguments = Some(map.next_value::<&RawValue>()?.get()),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (tool_name, arguments) {
            (None, None) => Ok(Passing::Other),
            (None, Some(_)) => Err(M::Error::missing_field("tool_name")),
            (Some(tool_name), arguments) => Ok(Passing::Call(Call {
                call_id: call_id.unwrap_or_default(),
                tool_name,
                arguments: arguments.unwrap_or("null"),
            })),
        }
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Passing<'de>, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Passing::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }

    fn visit_unit<E>(self) -> Result<Passing<'de>, E> {
        Ok(Passing::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(String, String, String)>, String> {
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            Passing::Other => Ok(None),
            Passing::Call(call) => {
                Ok(Some((call.call_id.into_owned(), call.tool_name.into_owned(), call.arguments.to_owned())))
            }
        }
    }

    fn call(id: &str, name: &str, arguments: &str) -> Result<Option<(String, String, String)>, String> {
        Ok(Some((id.into(), name.into(), arguments.into())))
    }

    #[test]
    fn a_call_is_read_without_its_arguments() {
        let text = r#"{"type":"tool_execute_request","call_id":"c\"1","tool_name":"t","arguments":{"b":[1.0],"a":2}}"#;
        assert_eq!(read(text), call("c\"1", "t", r#"{"b":[1.0],"a":2}"#));
        assert_eq!(read(r#"{"tool_name":"t"}"#), call("", "t", "null"));
    }

    #[test]
    fn what_a_tool_would_take_for_a_call_is_one_whatever_it_says_it_is() {
        let text = r#"{"type":"tool_execute_result","call_id":"c","tool_name":"t","arguments":{}}"#;
        assert_eq!(read(text), call("c", "t", "{}"));
        assert_eq!(read(r#"{"call_id":"c","tool_name":"t","arguments":{}}"#), call("c", "t", "{}"));
    }

    #[test]
    fn results_and_whatever_else_there_is_pass() {
        let result = r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"x"}}"#;
        for text in [result, "{}", r#"{"a":{"tool_name":"t"}}"#, "[1,{}]", "\"x\"", "1", "-1", "1.5", "true", "null"] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn half_a_call_does_not_pass() {
        for text in [r#"{"arguments":{}}"#, r#"{"tool_name":1}"#, r#"{"tool_name":"t","call_id":null}"#, ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
