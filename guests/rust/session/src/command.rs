//! The command `session`, by which a person manages conversations.

use serde_json::Value;

use crate::error::SessionError;
use crate::history::{Newest, newest};
use crate::listing::{Listed, list, search};
use crate::message::{role, text};
use crate::request::{FOUND, LISTED, Patches, Wanted, checked};
use crate::{deleted, store, updated};

const SHOWN_BYTES: usize = 256 << 10;
const SUBCOMMANDS: &str = "list, show, rename, archive, unarchive, delete, search";

/// What follows the command's name, None for another command: those are for others to answer.
pub(crate) fn arguments(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    (name.strip_prefix('/').unwrap_or(name) == "session").then(|| words.collect())
}

/// Do what the command says, and tell it.
pub(crate) fn run(arguments: &[&str]) -> Result<String, SessionError> {
    let (subcommand, rest) = arguments.split_first().unwrap_or((&"list", &[]));
    let given = Given::of(rest);
    match (*subcommand, given.words.as_slice()) {
        ("list", _) => listed(&given),
        ("show", [id]) => shown(checked(id)?, given.limit),
        ("show", _) => Ok("Usage: session show <id> [--limit N]".into()),
        ("rename", [id, title @ ..]) if !title.is_empty() => renamed(checked(id)?, &title.join(" ")),
        ("rename", _) => Ok("Usage: session rename <id> <title>".into()),
        ("archive", [id]) => archived(checked(id)?, true),
        ("unarchive", [id]) => archived(checked(id)?, false),
        ("delete", [id]) => Ok(match deleted(checked(id)?)? {
            true => format!("Deleted the session {id}."),
            false => unknown(id),
        }),
        ("archive" | "unarchive" | "delete", _) => Ok(format!("Usage: session {subcommand} <id>")),
        ("search", []) => Ok("Usage: session search <text> [--all] [--limit N]".into()),
        ("search", words) => found(&words.join(" "), &given),
        _ => Ok(format!("There is no \"session {subcommand}\". There are: {SUBCOMMANDS}.")),
    }
}

/// What follows the subcommand's name. Options that are not known, such as --yes, are for whoever sent the command.
#[derive(Debug, Default, PartialEq)]
struct Given<'a> {
    words: Vec<&'a str>,
    all: bool,
    limit: Option<u64>,
}

impl<'a> Given<'a> {
    fn of(arguments: &[&'a str]) -> Self {
        let mut given = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--all" => given.all = true,
                "--limit" => given.limit = arguments.next().and_then(|number| number.parse().ok()),
                "-y" => {}
                option if option.starts_with("--") => {}
                word => given.words.push(word),
            }
        }
        given
    }
}

fn listed(given: &Given<'_>) -> Result<String, SessionError> {
    let wanted = Wanted { cursor: None, limit: LISTED.of(given.limit), include_archived: given.all };
    let Listed { entries, next_cursor } = list(wanted, SHOWN_BYTES)?;
    if entries.is_empty() {
        return Ok("There are no sessions.".into());
    }
    let mut told = String::new();
    for entry in &entries {
        let name = entry["title"].as_str().or(entry["preview"].as_str()).unwrap_or("(nothing said yet)");
        let archived = if entry["archived"] == true { ", archived" } else { "" };
        line(
            &mut told,
            &format!("{}  {name}  ({} messages{archived})", word(&entry["session_id"]), entry["message_count"]),
        );
    }
    if next_cursor.is_some() {
        line(&mut told, "There are more.");
    }
    Ok(told)
}

fn found(query: &str, given: &Given<'_>) -> Result<String, SessionError> {
    let wanted = Wanted { cursor: None, limit: FOUND.of(given.limit), include_archived: given.all };
    let Listed { entries, next_cursor } = search(query, wanted)?;
    let mut told = String::new();
    for entry in &entries {
        let name = entry["title"].as_str().unwrap_or("(no title)");
        let snippet = word(&entry["snippet"]).replace('\n', " ");
        line(&mut told, &format!("{}  {name}  ({}): {snippet}", word(&entry["session_id"]), entry["match_count"]));
    }
    if entries.is_empty() {
        line(&mut told, &format!("{query:?} was not found."));
    }
    if next_cursor.is_some() {
        line(&mut told, "Not all sessions were searched.");
    }
    Ok(told)
}

fn shown(id: &str, limit: Option<u64>) -> Result<String, SessionError> {
    let Some(thread) = store::read(id)? else {
        return Ok(unknown(id));
    };
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let history = newest(&thread, Newest::first(limit), SHOWN_BYTES, store::read_page);
    let mut told = String::new();
    if history.omitted > 0 {
        line(&mut told, &format!("({} older messages)", history.omitted));
    }
    for message in &history.messages {
        line(&mut told, &format!("{}: {}", role(message), said(message)));
    }
    Ok(if told.is_empty() { "Nothing was said yet.".into() } else { told })
}

fn said(message: &Value) -> String {
    let content = &message["content"];
    match (text(message), content) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Object(result)) => format!("(result of {})", result.get("call_id").map_or("", |id| word(id))),
        (None, Value::Array(calls)) => {
            let names: Vec<&str> = calls.iter().filter_map(|call| call["name"].as_str()).collect();
            format!("(calls {})", names.join(", "))
        }
        _ => "(no text)".to_owned(),
    }
}

fn renamed(id: &str, title: &str) -> Result<String, SessionError> {
    let patches = Patches { title: Some(Some(title.to_owned())), ..Patches::default() };
    Ok(match updated(id, &patches)? {
        Some(_) => format!("The session {id} is named {title:?} now."),
        None => unknown(id),
    })
}

fn archived(id: &str, archived: bool) -> Result<String, SessionError> {
    let patches = Patches { archived: Some(archived), ..Patches::default() };
    Ok(match (updated(id, &patches)?, archived) {
        (Some(_), true) => format!("Archived the session {id}."),
        (Some(_), false) => format!("The session {id} is not archived any more."),
        (None, _) => unknown(id),
    })
}

fn unknown(id: &str) -> String {
    format!("There is no session {id}.")
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn line(told: &mut String, text: &str) {
    if !told.is_empty() {
        told.push('\n');
    }
    told.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_command_session_is_answered() {
        assert_eq!(arguments("session list --all"), Some(vec!["list", "--all"]));
        assert_eq!(arguments(" /session "), Some(vec![]));
        for other in ["", "/models", "sessions", "models session", "//session"] {
            assert_eq!(arguments(other), None, "{other}");
        }
    }

    #[test]
    fn options_are_told_from_words() {
        let given = Given::of(&["a", "--all", "b", "--limit", "7", "--yes", "-y"]);
        assert_eq!(given, Given { words: vec!["a", "b"], all: true, limit: Some(7) });
        assert_eq!(Given::of(&["--limit"]).limit, None);
    }

    #[test]
    fn wrong_usage_is_told_with_the_right_one() {
        for (line, told) in [("show", "show <id>"), ("rename a", "rename <id> <title>"), ("search", "<text>")] {
            assert!(run(&line.split(' ').collect::<Vec<_>>()).unwrap().contains(told), "{line}");
        }
        assert!(run(&["fly"]).unwrap().ends_with("There are: list, show, rename, archive, unarchive, delete, search."));
    }

    #[test]
    fn calls_and_results_are_told_in_words() {
        let calls = json!({"role": "assistant", "content": [{"id": "1", "name": "x", "arguments": {}}]});
        assert_eq!(said(&calls), "(calls x)");
        let result = json!({"role": "tool", "content": {"call_id": "1", "content": "ok", "is_error": false}});
        assert_eq!(said(&result), "(result of 1)");
    }
}
