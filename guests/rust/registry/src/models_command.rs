//! What `models` answers on the command line: `{"exit_code", "output"}` or `{"exit_code", "error"}`.

use astrid_sdk::contracts::registry::ProviderEntry;
use serde_json::{Value, json};

use crate::providers::meant;
use crate::state::State;

const USAGE: &str = "usage: models <list|current|set|unset> [--json]";

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    List { as_json: bool },
    Current { as_json: bool },
    Set(String),
    Unset,
}

impl Command {
    /// Read the arguments; says in words what is wrong with them.
    pub(crate) fn read(arguments: &[&str]) -> Result<Self, String> {
        let as_json = arguments.contains(&"--json");
        match arguments.first().copied().unwrap_or_default() {
            "list" => Ok(Self::List { as_json }),
            "current" => Ok(Self::Current { as_json }),
            "set" => match arguments.get(1) {
                Some(name) => Ok(Self::Set((*name).to_owned())),
                None => Err("usage: models set <id>".into()),
            },
            "unset" => Ok(Self::Unset),
            "" => Err(USAGE.into()),
            other => Err(format!("unknown subcommand '{other}'; {USAGE}")),
        }
    }

    /// Do it to the state, and say what came of it.
    pub(crate) fn run(&self, state: &mut State) -> Value {
        match self {
            Self::List { as_json: true } => said(json!(state.providers).to_string()),
            Self::List { as_json: false } => said(table(state)),
            Self::Current { as_json: true } => said(json!({"active": state.active()}).to_string()),
            Self::Current { as_json: false } => {
                said(state.active().map_or("none", |model| model.id.as_str()).to_owned())
            }
            Self::Set(name) => match meant(name, &state.providers).map(|model| model.id.clone()) {
                Ok(id) => {
                    state.choose(Some(&id));
                    said(format!("active model set to {id}"))
                }
                Err(why) => refused(&why),
            },
            Self::Unset => {
                state.choose(None);
                said("active model cleared".into())
            }
        }
    }
}

pub(crate) fn refused(why: &str) -> Value {
    json!({"exit_code": 1, "error": why})
}

fn said(output: String) -> Value {
    json!({"exit_code": 0, "output": output})
}

fn table(state: &State) -> String {
    if state.providers.is_empty() {
        return "No LLM models available".into();
    }
    let active = state.active().map(|model| model.id.as_str());
    let line = |model: &ProviderEntry| {
        let mark = if active == Some(&model.id) { '*' } else { ' ' };
        format!("{mark} {}  {}", model.id, model.description)
    };
    state.providers.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether an id of a request can be part of the topic of its answer: a UUID as the command line writes it.
pub(crate) fn is_request_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::model;

    fn state() -> State {
        let mut state = State::default();
        state.take(Some(vec![model("a:m"), model("a:n")]), "");
        state
    }

    fn run(arguments: &[&str], state: &mut State) -> Value {
        Command::read(arguments).unwrap().run(state)
    }

    #[test]
    fn models_are_listed_and_the_active_one_is_marked() {
        assert_eq!(run(&["list"], &mut state())["output"], "* a:m  about a:m\n  a:n  about a:n");
        assert_eq!(run(&["list"], &mut State::default())["output"], "No LLM models available");
        let listed = run(&["list", "--json"], &mut state());
        assert_eq!(serde_json::from_str::<Value>(listed["output"].as_str().unwrap()).unwrap()[1]["id"], "a:n");
    }

    #[test]
    fn a_model_is_set_and_unset() {
        let mut state = state();
        assert_eq!(run(&["set", "n"], &mut state), json!({"exit_code": 0, "output": "active model set to a:n"}));
        assert_eq!(run(&["current"], &mut state)["output"], "a:n");
        assert_eq!(run(&["set", "x"], &mut state), json!({"exit_code": 1, "error": "unknown model: x"}));
        assert_eq!(run(&["unset"], &mut state)["output"], "active model cleared");
        assert_eq!(run(&["current"], &mut state)["output"], "none");
        assert_eq!(run(&["current", "--json"], &mut state)["output"], "{\"active\":null}");
    }

    #[test]
    fn what_is_no_subcommand_is_told_with_those_that_there_are() {
        assert_eq!(Command::read(&[]), Err(USAGE.into()));
        assert_eq!(Command::read(&["set"]), Err("usage: models set <id>".into()));
        assert!(Command::read(&["frob"]).unwrap_err().contains("'frob'"));
    }

    #[test]
    fn only_a_uuid_becomes_part_of_a_topic() {
        for id in ["0123456789abcdef0123456789abcdef", "6f1c0f0e-8f7e-4b7e-9d2c-1f2d3c4b5a69"] {
            assert!(is_request_id(id));
        }
        for id in ["", "a.b", "*", "ABC", "xyz", &"a".repeat(65)] {
            assert!(!is_request_id(id), "{id}");
        }
    }
}
