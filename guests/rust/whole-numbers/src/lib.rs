//! Whole numbers in the arguments of tools, as models write them: `3`, and also `3.0` and `"3"`, which mean the same. What
//! is no whole number, or none that fits, is an error that says so.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

/// Beyond it a double does not tell neighbours apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Read a number: for `#[serde(deserialize_with = "whole_numbers::required")]`.
///
/// # Errors
///
/// It is no whole number, or does not fit.
pub fn required<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
    optional(from)?.ok_or_else(|| D::Error::custom("expected a whole number, got null"))
}

/// Read a number or null: for `#[serde(default, deserialize_with = "whole_numbers::optional")]`.
///
/// # Errors
///
/// It is neither, or does not fit.
pub fn optional<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<Option<T>, D::Error> {
    let fits = |number| T::try_from(number).map_err(|_| D::Error::custom(format!("{number} is too large")));
    from.deserialize_any(Whole)?.map(fits).transpose()
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Option<u64>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a whole number that is not negative")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u64::try_from(number).map(Some).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if number.fract() == 0.0 && (0.0..=EXACT).contains(&number) {
            return Ok(Some(number as u64));
        }
        Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let text = text.trim();
        let unexpected = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
        match (text.parse(), text.parse()) {
            (Ok(number), _) => Ok(Some(number)),
            (_, Ok(number)) => Whole.visit_f64(number).map_err(|_: E| unexpected()),
            _ => Err(unexpected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Given {
        #[serde(deserialize_with = "required")]
        a: u64,
        #[serde(default, deserialize_with = "optional")]
        b: Option<u8>,
    }

    fn given(text: &str) -> Result<Given, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        for number in ["3", "3.0", "\"3\"", "\" 3.0 \"", "0.3e1"] {
            let expected = Given { a: 3, b: Some(3) };
            assert_eq!(given(&format!(r#"{{"a":{number},"b":{number}}}"#)), Ok(expected), "{number}");
        }
        assert_eq!(given(r#"{"a":0,"b":null}"#), Ok(Given { a: 0, b: None }));
        assert_eq!(given(r#"{"a":18446744073709551615}"#), Ok(Given { a: u64::MAX, b: None }));
    }

    #[test]
    fn what_is_none_is_told() {
        for number in ["-1", "1.5", "1e300", "\"x\"", "\"\"", "\"-1\"", "true", "[3]", "\"NaN\""] {
            assert!(given(&format!(r#"{{"a":{number}}}"#)).unwrap_err().contains("a whole number"), "{number}");
        }
        assert!(given(r#"{"a":null}"#).unwrap_err().contains("got null"));
        assert!(given(r#"{"a":1,"b":256}"#).unwrap_err().contains("256 is too large"));
    }
}
