//! Asking for approval of one call, once.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use astrid_sdk::prelude::*;
use describing::number;
use serde_json::json;

use crate::call::Call;
use crate::ledger::{self, Begun, Ends, Remembered};
use crate::shown::resource;

/// As long as the host lets a person decide, and a little more.
const ASKING: Duration = Duration::from_secs(65);
/// How often it is waited for somebody else who asks about the same call.
const ROUNDS: usize = 4;

/// Why a call goes no further, as its caller is told.
#[derive(Debug)]
pub struct Denied(String);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Denied: {}", self.0)
    }
}

/// Let a call pass that was approved. A denied one gets its result; when that cannot be published, the denial is all that
/// the host reports of it.
pub(crate) fn approve(call: &Call<'_>) -> Result<(), Denied> {
    let Err(denied) = decide(call) else {
        return Ok(());
    };
    if !call.call_id.is_empty() {
        let result = json!({
            "type": "tool_execute_result",
            "call_id": call.call_id,
            "result": {"call_id": call.call_id, "content": denied.to_string(), "is_error": true},
        });
        if let Err(error) = ipc::publish_json(&format!("tool.v1.execute.{}.result", call.tool_name), &result) {
            log::warn(format!("the denial of {} could not be published: {error}", call.tool_name));
        }
    }
    Err(denied)
}

fn decide(call: &Call<'_>) -> Result<(), Denied> {
    let id = id_of(call);
    match whose_turn(&id) {
        Ok(Begun::Decided(true)) => Ok(()),
        Ok(Begun::Decided(false)) => {
            Err(Denied(format!("this call of {} was denied before, and nobody was asked again.", call.tool_name)))
        }
        Ok(_) => {
            let (answer, decided) = ask(call);
            if let Err(error) = ledger::end(&id, decided.map(remembered)) {
                log::warn(format!("what was decided about {} is not remembered: {error}", call.tool_name));
            }
            answer
        }
        // Asked about twice is better than not at all.
        Err(error) => {
            log::warn(format!("it is not known whether {} was asked about before: {error}", call.tool_name));
            ask(call).0
        }
    }
}

fn remembered(decided: bool) -> Remembered {
    let most = usize::try_from(number("remember_most", 64)).unwrap_or(usize::MAX);
    Remembered { decided, time: Duration::from_secs(number("remember_secs", 2)), most }
}

/// Whether it is ours to ask: a call that passes twice is asked about once, and both go on with the answer.
fn whose_turn(id: &str) -> Result<Begun, SysError> {
    let mut ends = None;
    for _ in 0..ROUNDS {
        match ledger::begin(id, ASKING, ends.is_some())? {
            Begun::Others(until) => match &ends {
                None => ends = Some(Ends::subscribe()?),
                Some(ends) => ends.wait(id, until)?,
            },
            turn => return Ok(turn),
        }
    }
    Ok(Begun::Ours)
}

/// Ask, and what is to be remembered of the answer.
fn ask(call: &Call<'_>) -> (Result<(), Denied>, Option<bool>) {
    let name = &call.tool_name;
    match approval::request(name, &resource(name, call.arguments)) {
        Ok(true) => (Ok(()), Some(true)),
        Ok(false) => {
            (Err(Denied(format!("the gatekeeper asked for approval of {name}, and it was not given."))), Some(false))
        }
        Err(error) if error.to_string().ends_with("Timeout") => {
            (Err(Denied(format!("nobody decided in time whether the gatekeeper may let {name} pass."))), Some(false))
        }
        Err(error) => (Err(Denied(format!("the gatekeeper could not ask for approval of {name}: {error}"))), None),
    }
}

/// The beginning of the ids of all calls with that call id.
pub(crate) fn beginning(call_id: &str) -> String {
    format!("{:016x}.", hash(&call_id))
}

/// What a call is remembered by. The same id with another tool or other arguments is another call.
fn id_of(call: &Call<'_>) -> String {
    let what = (&call.call_id, &call.tool_name, call.arguments);
    format!("{}{:016x}{:016x}", beginning(&call.call_id), hash(&what), hash(&("again", what)))
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(call_id: &str, tool_name: &str, arguments: &str) -> String {
        id_of(&Call { call_id: call_id.into(), tool_name: tool_name.into(), arguments })
    }

    #[test]
    fn the_same_id_with_other_arguments_is_another_call() {
        assert_eq!(id("c", "t", "{}"), id("c", "t", "{}"));
        for other in [id("c", "t", "[]"), id("c", "u", "{}"), id("d", "t", "{}")] {
            assert_ne!(id("c", "t", "{}"), other);
        }
    }

    #[test]
    fn all_calls_of_an_id_begin_alike_and_those_of_others_do_not() {
        assert!(id("c", "t", "{}").starts_with(&beginning("c")));
        assert!(id("c", "u", "[]").starts_with(&beginning("c")));
        assert!(!id("c1", "t", "{}").starts_with(&beginning("c")));
    }
}
