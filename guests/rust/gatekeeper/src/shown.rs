//! A call as it is shown to whoever is asked: the tool's name and its arguments, so short that they can be read.
//!
//! Arguments stay in their order, as compact JSON. What is too long is left out where it stands, and how much that was is
//! said outside of any quotes, so that no argument can pretend it. A character that a shell would act on, or that would not
//! be seen, is written as an escape: allowances of `<name> *` would not match a text with an operator in it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::unclear::is_unclear;

/// What can be asked about at most, in characters.
const ROOM: usize = 1024;
/// What stays of the arguments, from the first of these that fits.
const EXTENTS: &[Extent] = &[
    Extent { characters: 200, items: usize::MAX, depth: 16 },
    Extent { characters: 200, items: 24, depth: 8 },
    Extent { characters: 120, items: 12, depth: 6 },
    Extent { characters: 60, items: 8, depth: 4 },
    Extent { characters: 30, items: 6, depth: 3 },
    Extent { characters: 12, items: 4, depth: 2 },
    Extent { characters: 6, items: 2, depth: 1 },
];

/// How much is shown of each text and of each list or object, and how deep they are looked into.
#[derive(Clone, Copy)]
struct Extent {
    characters: usize,
    items: usize,
    depth: usize,
}

/// `<name> <arguments>`, within what can be asked about.
pub(crate) fn resource(name: &str, arguments: &str) -> String {
    let room = ROOM.saturating_sub(name.chars().count() + 1);
    let written = EXTENTS.iter().find_map(|extent| {
        let mut shown = Shown { text: String::new(), left: room, extent: *extent };
        shown.value(arguments.trim(), 0).ok().map(|()| shown.text)
    });
    let written = written.unwrap_or_else(|| format!("…[{} bytes]", arguments.len()));
    format!("{name} {written}")
}

/// There is no room for more.
struct Full;

struct Shown {
    text: String,
    left: usize,
    extent: Extent,
}

impl Shown {
    fn value(&mut self, json: &str, depth: usize) -> Result<(), Full> {
        match json.as_bytes().first() {
            Some(b'{' | b'[') if depth >= self.extent.depth && json.len() > 2 => {
                let (open, close) = (&json[..1], &json[json.len() - 1..]);
                self.write(&format!("{open}…[{} bytes]{close}", json.len()))
            }
            Some(b'{') => self.object(json, depth),
            Some(b'[') => self.list(json, depth),
            Some(b'"') => match serde_json::from_str::<Cow<'_, str>>(json) {
                Ok(text) => self.string(&text),
                // Half of a surrogate pair is no text: then what is written is shown.
                Err(_) => self.string(&json[1..json.len() - 1]),
            },
            _ => self.write(json),
        }
    }

    fn object(&mut self, json: &str, depth: usize) -> Result<(), Full> {
        let Members(members) = serde_json::from_str(json).unwrap_or_default();
        self.write("{")?;
        for (at, (name, value)) in members.iter().enumerate() {
            if self.comma(at, members.len())? {
                break;
            }
            self.string(name)?;
            self.write(":")?;
            self.value(value.get(), depth + 1)?;
        }
        self.write("}")
    }

    fn list(&mut self, json: &str, depth: usize) -> Result<(), Full> {
        let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
        self.write("[")?;
        for (at, value) in items.iter().enumerate() {
            if self.comma(at, items.len())? {
                break;
            }
            self.value(value.get(), depth + 1)?;
        }
        self.write("]")
    }

    /// Between two items; whether the rest is left out, which is told then.
    fn comma(&mut self, at: usize, all: usize) -> Result<bool, Full> {
        if at > 0 {
            self.write(",")?;
        }
        if at < self.extent.items {
            return Ok(false);
        }
        self.write(&format!("…[{} more]", all - at))?;
        Ok(true)
    }

    fn string(&mut self, text: &str) -> Result<(), Full> {
        self.write("\"")?;
        for character in text.chars().take(self.extent.characters) {
            self.character(character)?;
        }
        self.write("\"")?;
        match text.chars().count() {
            all if all > self.extent.characters => self.write(&format!("…[{all} characters]")),
            _ => Ok(()),
        }
    }

    fn character(&mut self, character: char) -> Result<(), Full> {
        match character {
            '"' => self.write("\\\""),
            '\\' => self.write("\\\\"),
            '\n' => self.write("\\n"),
            '\r' => self.write("\\r"),
            '\t' => self.write("\\t"),
            ';' | '&' | '|' | '`' | '$' | '<' | '>' | '(' | ')' => self.escape(character),
            ' '..='~' => self.write(character.encode_utf8(&mut [0; 4])),
            _ if character.is_ascii() || is_unclear(character) => self.escape(character),
            _ => self.write(character.encode_utf8(&mut [0; 4])),
        }
    }

    fn escape(&mut self, character: char) -> Result<(), Full> {
        let mut units = [0; 2];
        character.encode_utf16(&mut units).iter().try_for_each(|unit| self.write(&format!("\\u{unit:04x}")))
    }

    fn write(&mut self, text: &str) -> Result<(), Full> {
        self.left = self.left.checked_sub(text.chars().count()).ok_or(Full)?;
        self.text.push_str(text);
        Ok(())
    }
}

/// An object's members, in their order.
#[derive(Default)]
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MembersReader)
    }
}

struct MembersReader;

impl<'de> Visitor<'de> for MembersReader {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members<'de>, M::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_arguments_are_shown_as_they_are() {
        let arguments = r#"{"file_path":"ä/単.txt","n":[1.50,12345678901234567890123,true,null],"a":{},"b":[]}"#;
        assert_eq!(resource("write_file", arguments), format!("write_file {arguments}"));
        assert_eq!(resource("t", "null"), "t null");
        assert_eq!(resource("t", r#" { "a" : [ 1 , 2 ] } "#), r#"t {"a":[1,2]}"#);
    }

    #[test]
    fn what_a_shell_would_act_on_and_what_is_not_seen_is_escaped() {
        let arguments = r#"{"c;":"a & b | `c` $d <e> (f)\n\t\u0007\u007f\u202e\u00a0\ud83c\udff4\udb40\udc67"}"#;
        let shown = "t {\"c\\u003b\":\"a \\u0026 b \\u007c \\u0060c\\u0060 \\u0024d \\u003ce\\u003e \\u0028f\\u0029\\n\\t\\u0007\\u007f\
                     \\u202e\\u00a0\u{1f3f4}\\udb40\\udc67\"}";
        assert_eq!(resource("t", arguments), shown);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown[2..]).unwrap()["c;"], {
            serde_json::from_str::<serde_json::Value>(arguments).unwrap()["c;"].clone()
        });
    }

    #[test]
    fn of_a_long_text_the_beginning_is_shown_and_its_size() {
        let arguments = format!(r#"{{"file_path":"a","content":"{}"}}"#, "é".repeat(5000));
        let shown = format!(r#"w {{"file_path":"a","content":"{}"…[5000 characters]}}"#, "é".repeat(200));
        assert_eq!(resource("w", &arguments), shown);
        let whole = format!(r#"{{"a":"{}"}}"#, "x".repeat(200));
        assert_eq!(resource("w", &whole), format!("w {whole}"));
    }

    #[test]
    fn whatever_there_is_it_fits_and_has_no_operator() {
        let texts = format!("[{}0]", "\"((((((((((((((((((((((((((((((((((((((((\",".repeat(500));
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        let nested = format!("{}1{}", r#"{"a":["#.repeat(300), "]}".repeat(300));
        let wide = format!("{{{}\"z\":1}}", (0..9000).map(|n| format!("\"key{n}\":{n},")).collect::<String>());
        let number = "1".repeat(5000);
        let key = format!(r#"{{"{}":1}}"#, "k".repeat(100_000));
        for arguments in [texts, deep, nested, wide, number, key] {
            for name in ["t", &"n".repeat(256), &"n".repeat(2000)] {
                let shown = resource(name, &arguments);
                assert!(shown.chars().count() <= ROOM.max(name.len() + 40), "{}", shown.len());
                assert!(!shown.contains([';', '&', '|', '`', '$', '<', '>', '(', ')']));
            }
        }
    }

    #[test]
    fn a_short_argument_stays_whole_beside_long_ones() {
        let long = "x".repeat(900);
        let arguments =
            format!(r#"{{"a":"{long}","b":"{long}","c":"{long}","d":"{long}","e":"{long}","path":"src/main.rs"}}"#);
        let shown = resource("t", &arguments);
        assert!(shown.ends_with(r#""path":"src/main.rs"}"#), "{shown}");
        assert_eq!(shown.matches("…[900 characters]").count(), 5);
    }

    #[test]
    fn no_argument_can_pretend_to_have_been_shortened() {
        assert_eq!(resource("t", r#"["\"…[9 more]"]"#), r#"t ["\"…[9 more]"]"#);
        assert!(resource("t", r#"["\ud800;"]"#).starts_with(r#"t ["\\ud800\u003b"]"#));
    }
}
