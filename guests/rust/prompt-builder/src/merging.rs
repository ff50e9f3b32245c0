//! What hooks add to a prompt.

use serde::Deserialize;
use serde_json::Value;

/// What one hook answers. Everything but `prependContext` reaches into the system prompt.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Addition {
    pub(crate) prepend_system_context: Option<String>,
    pub(crate) append_system_context: Option<String>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) prepend_context: Option<String>,
}

impl Addition {
    /// Read an answer, which may be in `data`. None for one that adds nothing.
    pub(crate) fn read(payload: &str) -> Option<Self> {
        let payload: Value = serde_json::from_str(payload).ok()?;
        let inner = payload.get("data").cloned();
        [Some(payload), inner].into_iter().flatten().find_map(|payload| {
            let addition: Self = serde_json::from_value(payload).ok()?;
            (addition != Self::default()).then_some(addition)
        })
    }

    pub(crate) fn reaches_the_system(&self) -> bool {
        self.prepend_system_context.is_some() || self.append_system_context.is_some() || self.system_prompt.is_some()
    }

    /// What anybody may add.
    pub(crate) fn for_the_user(self) -> Self {
        Self { prepend_context: self.prepend_context, ..Self::default() }
    }
}

/// A prompt with all that was added.
#[derive(Debug, PartialEq)]
pub(crate) struct Merged {
    pub(crate) system_prompt: String,
    pub(crate) user_context_prefix: String,
}

/// Put them together in the order they came. The last system prompt wins; an empty one is none.
pub(crate) fn merge(system_prompt: &str, additions: &[Addition]) -> Merged {
    let texts = |of: fn(&Addition) -> &Option<String>| {
        additions.iter().filter_map(move |addition| of(addition).as_deref()).filter(|text| !text.is_empty())
    };
    let base = texts(|addition| &addition.system_prompt).next_back().unwrap_or(system_prompt);
    let before = texts(|addition| &addition.prepend_system_context);
    let after = texts(|addition| &addition.append_system_context);
    let system: Vec<&str> = before.chain(Some(base).filter(|base| !base.is_empty())).chain(after).collect();
    let user: Vec<&str> = texts(|addition| &addition.prepend_context).collect();
    Merged { system_prompt: system.join("\n"), user_context_prefix: user.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(system_prompt: &str, answers: &[&str]) -> (String, String) {
        let additions: Vec<Addition> = answers.iter().filter_map(|answer| Addition::read(answer)).collect();
        let merged = merge(system_prompt, &additions);
        (merged.system_prompt, merged.user_context_prefix)
    }

    #[test]
    fn additions_stand_around_the_prompt_in_the_order_they_came() {
        let answers = [
            r#"{"prependSystemContext":"p1","appendSystemContext":"a1","prependContext":"u1"}"#,
            r#"{"data":{"prependSystemContext":"p2","appendSystemContext":"a2","prependContext":"u2"}}"#,
        ];
        assert_eq!(merged("base", &answers), ("p1\np2\nbase\na1\na2".into(), "u1\nu2".into()));
        assert_eq!(merged("", &answers), ("p1\np2\na1\na2".into(), "u1\nu2".into()));
    }

    #[test]
    fn the_last_system_prompt_wins_and_an_empty_one_is_none() {
        let answers = [r#"{"systemPrompt":"one"}"#, r#"{"systemPrompt":"two"}"#, r#"{"systemPrompt":""}"#];
        assert_eq!(merged("base", &answers).0, "two");
        assert_eq!(merged("base", &answers[2..]).0, "base");
        assert_eq!(merged("base", &[]), ("base".into(), String::new()));
    }

    #[test]
    fn what_adds_nothing_is_left_out() {
        for answer in
            ["", "1", "{}", r#"{"other":1}"#, r#"{"data":{}}"#, r#"{"systemPrompt":null}"#, r#"{"systemPrompt":1}"#]
        {
            assert_eq!(Addition::read(answer), None, "{answer}");
        }
    }

    #[test]
    fn who_may_not_reach_into_the_system_prompt_may_still_add_for_the_user() {
        let answer = r#"{"systemPrompt":"mine","appendSystemContext":"a","prependContext":"u"}"#;
        let addition = Addition::read(answer).unwrap();
        assert!(addition.reaches_the_system());
        let left = addition.for_the_user();
        assert!(!left.reaches_the_system());
        assert_eq!(merge("base", &[left]).user_context_prefix, "u");
    }
}
