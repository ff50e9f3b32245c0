//! What is known of the tools, as it is kept for one principal: a text of which one line has to be found.
//!
//! The first line says of which capsules it is true: `=<fingerprint>`, or `~<fingerprint>` when not all of them answered.
//! Each further line is a tool: `-` changes nothing, `m` is mutable, `a` asks for approval itself.

use describing::{Choice, Heard};

/// What is known of a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flag {
    Plain,
    Mutable,
    AsksItself,
    Unknown,
}

/// The flags that were kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flags(String);

impl Flags {
    /// Read what was kept. None for anything else: the mark of a change, or another version's.
    pub(crate) fn read(kept: Vec<u8>) -> Option<Self> {
        let text = String::from_utf8(kept).ok()?;
        text.starts_with(['=', '~']).then_some(Self(text))
    }

    /// What was heard, as true of the capsules with that fingerprint.
    pub(crate) fn new(heard: &Heard, choice: &Choice, fingerprint: &str) -> Self {
        let mut text = format!("{}{fingerprint}", if heard.complete { '=' } else { '~' });
        let mut add = |mark: char, name: &str| {
            if !name.contains(char::is_control) {
                text.push('\n');
                text.push(mark);
                text.push_str(name);
            }
        };
        for tool in &choice.tools {
            add(mark(tool.mutable, tool.asks_approval).unwrap_or('-'), &tool.name);
        }
        // What was not described may be mutable by its schema, unless its manifest says enough.
        let described = |name: &str| choice.tools.iter().any(|tool| tool.name == name);
        let provided = heard.capsules.iter().flat_map(|capsules| &capsules.0).flat_map(|capsule| &capsule.tools);
        for tool in provided.filter(|tool| !described(&tool.name)) {
            if let Some(mark) = mark(tool.mutable, tool.asks_approval) {
                add(mark, &tool.name);
            }
        }
        Self(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Whose flags these are.
    pub(crate) fn fingerprint(&self) -> &str {
        self.0[1..].split('\n').next().unwrap_or_default()
    }

    pub(crate) fn complete(&self) -> bool {
        self.0.starts_with('=')
    }

    pub(crate) fn of(&self, tool: &str) -> Flag {
        let line = self.0.split('\n').skip(1).find(|line| line.get(1..) == Some(tool));
        match line.and_then(|line| line.chars().next()) {
            Some('-') => Flag::Plain,
            Some('m') => Flag::Mutable,
            Some('a') => Flag::AsksItself,
            _ => Flag::Unknown,
        }
    }
}

fn mark(mutable: bool, asks_approval: bool) -> Option<char> {
    match (mutable, asks_approval) {
        (_, true) => Some('a'),
        (true, false) => Some('m'),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use describing::{Capsule, Capsules, Provided, Tool};

    use super::*;

    fn provided(name: &str, mutable: bool, asks_approval: bool) -> Provided {
        Provided { name: name.into(), mutable, asks_approval }
    }

    fn flags(complete: bool) -> Flags {
        let tools = vec![provided("r", false, false), provided("w", true, false), provided("x", false, false)];
        let capsule = Capsule { tools: [tools, vec![provided("s", true, true)]].concat(), ..Capsule::default() };
        let heard = Heard { answers: vec![], capsules: Some(Capsules(vec![capsule])), complete };
        let tool = |name: &str, mutable| Tool {
            name: name.into(),
            described: serde_json::Map::new(),
            mutable,
            asks_approval: false,
        };
        let tools = vec![tool("r", false), tool("m\nr", false), tool("wörter", true)];
        Flags::new(&heard, &Choice { tools, duplicates: vec![] }, "00ff")
    }

    #[test]
    fn what_was_described_is_known_and_of_the_rest_what_its_manifest_says() {
        let flags = flags(true);
        let found = ["r", "wörter", "w", "s", "x", "y", "", "00ff"].map(|name| flags.of(name));
        let expected = [Flag::Plain, Flag::Mutable, Flag::Mutable, Flag::AsksItself];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [Flag::Unknown; 4]);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        for complete in [true, false] {
            let written = flags(complete);
            let read = Flags::read(written.text().as_bytes().to_vec()).unwrap();
            assert_eq!(read, written);
            assert_eq!((read.fingerprint(), read.complete()), ("00ff", complete));
        }
    }

    #[test]
    fn the_mark_of_a_change_is_no_flags() {
        for kept in [&b"!17"[..], b"", b"\xff", b"{}"] {
            assert_eq!(Flags::read(kept.to_vec()), None);
        }
    }
}
