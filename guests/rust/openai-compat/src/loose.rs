//! JSON as servers really write it: NaN and infinities, numbers beyond a double, halves of surrogate pairs, control
//! characters within strings, any depth. What has no value becomes null, and the rest of the text keeps its own.
//!
//! It is used where the strict reader gives up. A half of a surrogate pair stands in its string as a character that
//! `Halves` knows, as its other half may come with the next piece. None: the text is not even that.

use serde_json::{Map, Number, Value};

/// Half a surrogate pair `0xd800 + n` is told as the character `HALVES + n`.
const HALVES: u32 = 0x0010_f800;
const SURROGATES: u32 = 0xd800;
/// What lies deeper is null.
const LEVELS: usize = 100;

/// A text as a value, and whether there may be halves in it.
pub(crate) fn read(text: &str) -> Option<(Value, bool)> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Some((value, false));
    }
    let mut reader = Reader { text, at: 0 };
    let value = reader.value()?;
    reader.space();
    (reader.at == text.len()).then_some((value, true))
}

/// Puts texts together that may end with half a character.
#[derive(Default)]
pub(crate) struct Halves(Option<u32>);

impl Halves {
    /// A piece of text, in which halves are whole characters where their other half is there too. `loose`: whether there
    /// may be halves in it.
    pub(crate) fn join(&mut self, text: &str, loose: bool) -> String {
        if text.is_empty() || (!loose && self.0.is_none()) {
            return text.to_owned();
        }
        let mut joined = String::with_capacity(text.len());
        for character in text.chars() {
            let half = (u32::from(character)).checked_sub(HALVES).filter(|_| loose);
            match (self.0.take(), half) {
                (Some(high), Some(low @ 0x400..)) => {
                    joined.extend(char::from_u32(0x10000 + (high << 10) + low - 0x400))
                }
                (before, half) => {
                    joined.extend(before.map(|_| char::REPLACEMENT_CHARACTER));
                    match half {
                        Some(high @ ..0x400) => self.0 = Some(high),
                        Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
                        None => joined.push(character),
                    }
                }
            }
        }
        joined
    }

    /// What is told of a half whose other half never came.
    pub(crate) fn rest(&mut self) -> &'static str {
        if self.0.take().is_some() { "\u{fffd}" } else { "" }
    }
}

/// A text without halves.
pub(crate) fn whole(text: &str, loose: bool) -> String {
    let mut halves = Halves::default();
    let joined = halves.join(text, loose);
    joined + halves.rest()
}

enum Opened {
    List(Vec<Value>),
    Object(Map<String, Value>, String),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    /// A value. Lists and objects that are open wait in a list of their own, so that no depth fills the stack.
    fn value(&mut self) -> Option<Value> {
        let mut open: Vec<Opened> = Vec::new();
        loop {
            self.space();
            let mut done = match self.peek()? {
                b'[' => {
                    self.at += 1;
                    if !self.takes(b']') {
                        open.push(Opened::List(Vec::new()));
                        continue;
                    }
                    Value::Array(Vec::new())
                }
                b'{' => {
                    self.at += 1;
                    if !self.takes(b'}') {
                        open.push(Opened::Object(Map::new(), self.key()?));
                        continue;
                    }
                    Value::Object(Map::new())
                }
                b'"' => Value::String(self.string()?),
                _ => self.word()?,
            };
            loop {
                let level = open.len();
                let Some(around) = open.last_mut() else { return Some(done) };
                if level > LEVELS {
                    done = Value::Null;
                }
                let close = match around {
                    Opened::List(list) => {
                        list.push(done);
                        b']'
                    }
                    Opened::Object(object, key) => {
                        object.insert(std::mem::take(key), done);
                        b'}'
                    }
                };
                if self.takes(b',') {
                    if let Opened::Object(_, key) = around {
                        *key = self.key()?;
                    }
                    break;
                }
                if !self.takes(close) {
                    return None;
                }
                done = match open.pop()? {
                    Opened::List(list) => Value::Array(list),
                    Opened::Object(object, _) => Value::Object(object),
                };
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn key(&mut self) -> Option<String> {
        self.space();
        let key = if self.peek()? == b'"' { self.string()? } else { return None };
        self.takes(b':').then_some(key)
    }

    /// A number, or a word such as `true` or `NaN`.
    fn word(&mut self) -> Option<Value> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        self.at += end;
        match word {
            "" => None,
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            "null" | "NaN" | "nan" | "Infinity" | "-Infinity" | "inf" | "-inf" | "undefined" | "None" => {
                Some(Value::Null)
            }
            _ => {
                let number = word.parse::<f64>().ok()?;
                let whole = word.parse::<i64>().map(Number::from).ok();
                Some(whole.or_else(|| Number::from_f64(number)).map_or(Value::Null, Value::Number))
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(['"', '\\'])?;
            string.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Some(string);
            }
            let escape = self.text[self.at..].chars().next()?;
            self.at += escape.len_utf8();
            match escape {
                'u' => string.extend(self.code()),
                'n' => string.push('\n'),
                't' => string.push('\t'),
                'r' => string.push('\r'),
                'b' => string.push('\u{8}'),
                'f' => string.push('\u{c}'),
                other => string.push(other),
            }
        }
    }

    /// The character of `\uXXXX`, or of two such that are the halves of one.
    fn code(&mut self) -> Option<char> {
        let digits = |at: usize| -> Option<u32> { u32::from_str_radix(self.text.get(at..at + 4)?, 16).ok() };
        let Some(code) = digits(self.at) else { return Some(char::REPLACEMENT_CHARACTER) };
        let second = self.text[self.at + 4..].starts_with("\\u").then(|| digits(self.at + 6)).flatten();
        self.at += 4;
        match (code, second) {
            (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
                self.at += 6;
                char::from_u32(0x10000 + ((code - 0xd800) << 10) + low - 0xdc00)
            }
            (0xd800..0xe000, _) => char::from_u32(HALVES + code - SURROGATES),
            _ => char::from_u32(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Option<Value> {
        read(text).map(|(value, _)| value)
    }

    #[test]
    fn what_has_no_value_is_null_and_the_rest_keeps_its_own() {
        for (text, expected) in [
            (r#"{"a":NaN,"b":[1,-Infinity,1e400],"c":"x"}"#, json!({"a": null, "b": [1, null, null], "c": "x"})),
            (
                "{\"a\":\"x\ny\",\"b\":1.5,\"c\":\"\\q\", \"d\" : NaN}",
                json!({"a": "x\ny", "b": 1.5, "c": "q", "d": null}),
            ),
            (
                r#"["\ud83d\ude00","\u00e9",true,false,null,-7,{},[],NaN]"#,
                json!(["😀", "é", true, false, null, -7, {}, [], null]),
            ),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_cut_or_no_json_at_all_is_none() {
        for text in
            ["", "{", "{\"a\":", "{\"a\":NaN", "[NaN", "\"abc", "<html>", "{} {}", "{a:1}", "[1,]", "{\"a\" 1}", "\"\\"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn no_depth_fills_the_stack() {
        for levels in [90, 130, 100_000] {
            let text = format!("{{\"deep\":{}NaN{},\"x\":1}}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(value(&text).unwrap()["x"], 1, "{levels}");
        }
    }

    #[test]
    fn halves_are_joined_wherever_the_text_was_cut() {
        let mut halves = Halves::default();
        let mut said = String::new();
        for text in [r#""a\ud83d""#, r#""""#, r#""\ude00b\ud83d""#, r#""c""#, r#""\ude00\ud83d""#] {
            let (value, loose) = read(text).unwrap();
            said += &halves.join(value.as_str().unwrap(), loose);
        }
        said += halves.rest();
        assert_eq!(said, "a😀b\u{fffd}c\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_character_that_stands_for_a_half_is_itself_where_there_are_none() {
        let text = "\u{10f83d}\u{10fe00}";
        assert_eq!(Halves::default().join(text, false), text);
    }
}
