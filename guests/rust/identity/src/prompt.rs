//! The system prompt.

use crate::spark::Spark;

pub(crate) const DEFAULT_CALLSIGN: &str = "Astrid";
const DEFAULT_CLASS: &str = "an assistant that gets things done with the tools it is given";

/// What holds as long as nobody says otherwise.
const DEFAULT_CORE: &str = "\
Look things up with the tools you have instead of guessing, and say plainly what you could not find out or do. \
Before you change something, be sure that it was asked for. A call that is denied was denied by the user: do not try \
it another way, ask. Answer in the user's language, briefly, and say what you did.";

const UNNAMED: &str = "\
The user has not told you yet who you are to be. Do not ask for it. Where they do tell you a name, a role, or a manner \
to keep, save it with save_identity.";

/// What a model is told of who it is and where it works.
pub(crate) fn prompt(spark: &Spark, workspace_root: &str) -> String {
    let callsign = spark.callsign.as_deref().unwrap_or(DEFAULT_CALLSIGN);
    let mut parts = vec![match (&spark.class, spark.is_empty()) {
        (Some(class), _) => format!("You are {callsign}, {class}{}", if class.ends_with('.') { "" } else { "." }),
        (None, true) => format!("You are {callsign}, {DEFAULT_CLASS}."),
        (None, false) => format!("You are {callsign}."),
    }];
    let sections = [
        ("Personality", spark.aura.as_deref()),
        ("Communication style", spark.signal.as_deref()),
        ("Core directives", Some(spark.core.as_deref().unwrap_or(DEFAULT_CORE))),
        ("Identity", spark.is_empty().then_some(UNNAMED)),
    ];
    for (title, text) in sections {
        if let Some(text) = text {
            parts.push(format!("# {title}\n{}", text.trim()));
        }
    }
    match workspace_root.trim_end_matches('/') {
        "" => {}
        root => parts.push(format!("# Environment\n- Current working directory: {root}")),
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_identity_there_is_a_prompt_all_the_same() {
        let prompt = prompt(&Spark::default(), "");
        assert!(prompt.starts_with("You are Astrid, an assistant "));
        assert!(prompt.contains("save_identity"));
        assert!(!prompt.contains("# Environment"));
    }

    #[test]
    fn an_identity_is_told_whole() {
        let spark = Spark::parse("callsign='Lyra'\nclass='a pilot'\naura='calm'\nsignal='short'\ncore='fly'").unwrap();
        let expected = "You are Lyra, a pilot.\n\n# Personality\ncalm\n\n# Communication style\nshort\n\n\
                        # Core directives\nfly\n\n# Environment\n- Current working directory: /work";
        assert_eq!(prompt(&spark, "/work/"), expected);
    }

    #[test]
    fn what_an_identity_does_not_say_is_not_made_up() {
        let prompt = prompt(&Spark::parse("callsign='Lyra'").unwrap(), "/");
        assert!(prompt.starts_with("You are Lyra.\n\n# Core directives\n"));
        assert!(!prompt.contains("save_identity"));
    }
}
