//! Who the agent is, as `spark.toml` says it: five texts, of which any may be missing.

use schemars::JsonSchema;
use serde::Deserialize;
use toml_edit::{DocumentMut, Item, value};

/// More than that of one text would leave no room for the conversation.
const FIELD_BYTES: usize = 16 << 10;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
pub struct Spark {
    /// Your name.
    pub(crate) callsign: Option<String>,
    /// What you are, in a few words that go on after "You are <name>, ".
    pub(crate) class: Option<String>,
    /// Your character.
    pub(crate) aura: Option<String>,
    /// How you speak and write.
    pub(crate) signal: Option<String>,
    /// What you always do, and what you never do.
    pub(crate) core: Option<String>,
}

impl Spark {
    /// What a file says; None for an empty text, as for one that is missing. Other keys are for others.
    ///
    /// Fails, in words for a person, where the file is no TOML, or has something else than a text of fair length.
    pub(crate) fn parse(toml: &str) -> Result<Self, String> {
        let document: DocumentMut = toml.parse().map_err(|error| format!("it is not TOML: {error}"))?;
        let mut spark = Self::default();
        for (name, field) in spark.fields_mut() {
            match document.get(name) {
                None => {}
                Some(item) => {
                    let text = item.as_str().ok_or_else(|| format!("{name} is not a text: write {name} = \"…\""))?;
                    *field = Some(text.to_owned());
                }
            }
        }
        spark.check()?;
        Ok(spark.with_texts_only())
    }

    /// What keeps these texts from being a prompt.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, text) in self.fields() {
            let length = text.map_or(0, str::len);
            if length > FIELD_BYTES {
                return Err(format!("{name} has {length} bytes; {FIELD_BYTES} are allowed"));
            }
        }
        Ok(())
    }

    /// This one with what another one says in its place, empty texts too: they take away.
    pub(crate) fn changed(mut self, by: &Self) -> Self {
        for ((_, field), (_, text)) in self.fields_mut().into_iter().zip(by.fields()) {
            if let Some(text) = text {
                *field = Some(text.to_owned());
            }
        }
        self.with_texts_only()
    }

    /// The file that says this, made of one that there was: its comments and other keys stay.
    pub(crate) fn write_into(&self, toml: &str) -> String {
        let mut document: DocumentMut = toml.parse().unwrap_or_default();
        for (name, text) in self.fields() {
            let text = text.unwrap_or_default();
            match document.get_mut(name).and_then(Item::as_value_mut) {
                Some(there) => {
                    let decor = there.decor().clone();
                    *there = text.into();
                    *there.decor_mut() = decor;
                }
                None => document[name] = value(text),
            }
        }
        document.to_string()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn with_texts_only(mut self) -> Self {
        for (_, field) in self.fields_mut() {
            field.take_if(|text| text.trim().is_empty());
        }
        self
    }

    fn fields(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("callsign", self.callsign.as_deref()),
            ("class", self.class.as_deref()),
            ("aura", self.aura.as_deref()),
            ("signal", self.signal.as_deref()),
            ("core", self.core.as_deref()),
        ]
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut Option<String>); 5] {
        [
            ("callsign", &mut self.callsign),
            ("class", &mut self.class),
            ("aura", &mut self.aura),
            ("signal", &mut self.signal),
            ("core", &mut self.core),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Spark {
        Spark { callsign: Some(name.into()), ..Spark::default() }
    }

    #[test]
    fn texts_are_read_and_what_is_not_known_is_left_to_others() {
        let spark = Spark::parse("callsign = \"Lyra\" # hers\ncore = '''\na\nb'''\naura = \" \"\nother = 5\n").unwrap();
        assert_eq!(spark, Spark { core: Some("a\nb".into()), ..named("Lyra") });
        assert!(Spark::parse("").unwrap().is_empty());
    }

    #[test]
    fn a_broken_file_is_told_in_words() {
        assert!(Spark::parse("callsign = ").unwrap_err().starts_with("it is not TOML: "));
        assert_eq!(Spark::parse("core = [1]").unwrap_err(), "core is not a text: write core = \"…\"");
        let long = format!("aura = \"{}\"", "x".repeat(FIELD_BYTES + 1));
        assert_eq!(Spark::parse(&long).unwrap_err(), "aura has 16385 bytes; 16384 are allowed");
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name_and_takes_away_what_is_empty() {
        let before = Spark { class: Some("a pilot".into()), aura: Some("calm".into()), ..named("Lyra") };
        let change = Spark { aura: Some(String::new()), ..named("Vega") };
        assert_eq!(before.changed(&change), Spark { class: Some("a pilot".into()), ..named("Vega") });
    }

    #[test]
    fn what_is_written_is_read_again() {
        let spark = Spark { core: Some("\"a\"\n\\b\n'''".into()), aura: Some("ü\u{1}".into()), ..named("Lyra") };
        assert_eq!(Spark::parse(&spark.write_into("")).unwrap(), spark);
    }

    #[test]
    fn comments_and_other_keys_stay_in_the_file() {
        let toml = "# who\ncallsign = \"Lyra\" # hers\nother = 5\n";
        let expected =
            "# who\ncallsign = \"Vega\" # hers\nother = 5\nclass = \"\"\naura = \"\"\nsignal = \"\"\ncore = \"\"\n";
        assert_eq!(named("Vega").write_into(toml), expected);
        assert_eq!(Spark::parse(&named("Vega").write_into("no TOML")).unwrap(), named("Vega"));
    }
}
