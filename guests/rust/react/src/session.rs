//! The history of a conversation, which the session capsule keeps.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::ask::ask;
use crate::config::SESSION_TIMEOUT_MS;
use crate::context::summary;
use crate::turn::Stop;

/// What there is of a conversation.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) messages: Vec<Box<RawValue>>,
    /// How many messages the conversation ever had. None: these are not, one for one, what the session has.
    pub(crate) total: Option<u64>,
}

#[derive(Deserialize)]
struct Answer {
    messages: Option<Vec<Box<RawValue>>>,
    /// Not every session capsule says so.
    #[serde(default)]
    total: Option<u64>,
    error: Option<Value>,
}

/// Add messages to a session.
pub(crate) fn add(session_id: &str, add: &[Value]) -> Result<(), Stop> {
    // The turn that runs is always in the answer, and nothing before it is needed here.
    ask_for(session_id, add, u64::MAX).map(drop)
}

/// The messages of a session, after these were added to it, as far as no summary stands for them.
pub(crate) fn history(session_id: &str, add: &[Value]) -> Result<History, Stop> {
    let until = summary::read(session_id).map_or(0, |summary| summary.until);
    let history = ask_for(session_id, add, until)?;
    if until > 0 && history.total.is_some_and(|total| total < until) {
        // It was deleted and begun anew.
        summary::forget(session_id);
        return ask_for(session_id, &[], 0);
    }
    Ok(history)
}

/// The messages of a session after a number, after these were added to it.
fn ask_for(session_id: &str, add: &[Value], after: u64) -> Result<History, Stop> {
    let mut question = json!({ "session_id": session_id, "after": after });
    if !add.is_empty() {
        question["append_before_read"] = add.into();
    }
    let (topic, reply) = ("session.v1.request.get_messages", "session.v1.response.get_messages");
    let failed = |why: String| Stop(format!("The conversation could not be read: {why}. Try again."));
    let answer = ask(topic, reply, question, SESSION_TIMEOUT_MS.get()).map_err(|why| failed(why.told("session")))?;
    let answer: Answer = serde_json::from_str(&answer).map_err(|error| failed(error.to_string()))?;
    match answer.error {
        Some(error) if !error.is_null() => Err(failed(error.as_str().map_or_else(|| error.to_string(), Into::into))),
        _ => {
            let messages = answer.messages.unwrap_or_default();
            let total = answer.total.or(Some(messages.len() as u64));
            Ok(History { messages, total })
        }
    }
}

/// Add messages without waiting. That they are lost when nobody takes them is said in the log.
pub(crate) fn append(session_id: &str, messages: Vec<Value>) {
    let event = json!({ "session_id": session_id, "messages": messages });
    if let Err(error) = ipc::publish_json("session.v1.append", &event) {
        log::warn(format!("what was said in session {session_id:?} could not be kept: {error}"));
    }
}

/// Begin a new session in place of one; returns its id.
pub(crate) fn clear(session_id: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Cleared {
        new_session_id: String,
    }
    let question = json!({ "session_id": session_id });
    let (topic, reply) = ("session.v1.request.clear", "session.v1.response.clear");
    let answer = ask(topic, reply, question, SESSION_TIMEOUT_MS.get()).map_err(|why| why.told("session"))?;
    let cleared: Cleared = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
    Ok(cleared.new_session_id)
}
