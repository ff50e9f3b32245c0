//! Arguments of tool calls, read where they come in: what is kept of them can be read and written again by everybody
//! whom they pass.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

/// How deep arguments may be: what passes them on has levels of its own, and many readers end at 128.
const LEVELS: usize = 64;

/// Read arguments: an object, as it is written.
///
/// # Errors
///
/// Why they are none, in words for the model.
pub(crate) fn read(text: &str) -> Result<Box<RawValue>, String> {
    let text = text.trim();
    let mut reader = serde_json::Deserializer::from_str(text);
    Checked(LEVELS).deserialize(&mut reader).and_then(|()| reader.end()).map_err(|error| told(&error))?;
    match text.as_bytes().first() {
        Some(b'{') => RawValue::from_string(text.to_owned()).map_err(|error| error.to_string()),
        Some(b'"') if is_object_in_text(text) => Err("they are a string that holds JSON, not the object itself".into()),
        _ => Err("they are not an object".into()),
    }
}

fn told(error: &serde_json::Error) -> String {
    let error = error.to_string();
    let half = error.contains("hex escape") || error.contains("surrogate");
    if half { format!("{error}: half a surrogate pair is no character") } else { error }
}

/// What was kept as arguments, perhaps by an older version that did not look at it.
pub(crate) fn readable(kept: &RawValue) -> Box<RawValue> {
    let text = kept.get();
    read(text).unwrap_or_else(|_| unreadable(text))
}

/// What stands in the history instead of arguments that are no object: some servers refuse a history with such.
pub(crate) fn unreadable(quoted: &str) -> Box<RawValue> {
    let object = serde_json::Map::from_iter([("unreadable".to_owned(), quoted.into())]);
    to_raw_value(&object).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn is_object_in_text(text: &str) -> bool {
    serde_json::from_str::<String>(text).is_ok_and(|inner| inner.trim_start().starts_with('{'))
}

/// A value that has so many levels at most, and no key twice in an object.
#[derive(Clone, Copy)]
struct Checked(usize);

impl Checked {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let inner = self.0.checked_sub(1).ok_or_else(|| E::custom(format!("they have more than {LEVELS} levels")))?;
        Ok(Self(inner))
    }
}

impl<'de> DeserializeSeed<'de> for Checked {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if number.is_finite() { Ok(()) } else { Err(E::custom("a number is out of range")) }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while list.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut keys = HashSet::new();
        while let Some(key) = object.next_key::<String>()? {
            object.next_value_seed(inner)?;
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("the key {twice:?} is there twice")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_kept_as_it_is_written() {
        for text in [
            r#"{"a":1.0,"b":[2e3]}"#,
            "{}",
            "{ \"a\" : \"\\u00e9\\ud83d\\ude00\" }",
            r#"{"n":123456789012345678901234567890}"#,
        ] {
            assert_eq!(read(text).unwrap().get(), text);
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(63), "]".repeat(63));
        assert_eq!(read(&deep).unwrap().get(), deep);
    }

    #[test]
    fn what_cannot_be_carried_is_told() {
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        for (text, why) in [
            (r#"{"text":"cut \ud83d"}"#, "surrogate"),
            (r#"{"text":"\ude00"}"#, "surrogate"),
            (r#"{"n":1e400}"#, "out of range"),
            (r#"{"n":[-1e999]}"#, "out of range"),
            (r#"{"a":1,"b":{"a":1,"a":2}}"#, "\"a\" is there twice"),
            (&deep(64), "more than 64 levels"),
            (&deep(130), "more than 64 levels"),
            (&deep(100_000), "more than 64 levels"),
            (r#"{"n":NaN}"#, "expected"),
            ("{\"a\":1}{", "trailing"),
            ("{\"a\":\"\n\"}", "control"),
            ("{\"a\":", "EOF"),
            ("[1]", "not an object"),
            ("1", "not an object"),
            (r#""{\"a\":1}""#, "a string that holds JSON"),
            ("\"a\"", "not an object"),
            ("", "EOF"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn whatever_was_kept_can_be_written_again() {
        for text in ["{}", r#"{"text":"cut \ud83d"}"#, r#"{"n":1e400}"#, "[1]", "null", "7"] {
            let kept: Box<RawValue> = serde_json::from_str(text).unwrap();
            assert!(serde_json::to_value(readable(&kept)).unwrap().is_object(), "{text}");
        }
    }
}
