//! The history of a conversation, which the session capsule keeps.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::ask::ask;
use crate::config::SESSION_TIMEOUT_MS;
use crate::turn::Stop;

#[derive(Deserialize)]
struct History {
    messages: Option<Vec<Box<RawValue>>>,
    error: Option<Value>,
}

/// The messages of a session, after these were added to it.
pub(crate) fn messages(session_id: &str, add: &[Value]) -> Result<Vec<Box<RawValue>>, Stop> {
    let mut question = json!({ "session_id": session_id });
    if !add.is_empty() {
        question["append_before_read"] = add.into();
    }
    let (topic, reply) = ("session.v1.request.get_messages", "session.v1.response.get_messages");
    let failed = |why: String| Stop(format!("The conversation could not be read: {why}. Try again."));
    let answer = ask(topic, reply, question, SESSION_TIMEOUT_MS.get()).map_err(|why| failed(why.told("session")))?;
    let history: History = serde_json::from_str(&answer).map_err(|error| failed(error.to_string()))?;
    match history.error {
        Some(error) if !error.is_null() => Err(failed(error.as_str().map_or_else(|| error.to_string(), Into::into))),
        _ => Ok(history.messages.unwrap_or_default()),
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
