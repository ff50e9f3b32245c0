//! The conversation so far.

use astrid_sdk::prelude::*;
use describing::number;
use serde_json::{Value, json};

use crate::request::Request;

const REQUEST: &str = "session.v1.request.get_messages";
const RESPONSE: &str = "session.v1.response.get_messages";

/// The messages that came with a request; where none did, those of its session.
///
/// # Errors
///
/// The session's capsule did not answer. A turn without its history would be another conversation.
pub(crate) fn messages(request: &mut Request) -> Result<Vec<Value>, SysError> {
    if let Value::Array(messages) = request.messages.take() {
        return Ok(messages);
    }
    let Some(session_id) = &request.session_id else {
        return Ok(vec![]);
    };
    let timeout = number("session_timeout_ms", 5000);
    let mut answer: Value = ipc::request_response(REQUEST, RESPONSE, &json!({ "session_id": session_id }), timeout)?;
    Ok(in_answer(&mut answer))
}

fn in_answer(answer: &mut Value) -> Vec<Value> {
    let messages = match answer.get_mut("messages") {
        Some(messages) => messages.take(),
        None => answer.pointer_mut("/data/messages").map(Value::take).unwrap_or_default(),
    };
    match messages {
        Value::Array(messages) => messages,
        other => {
            log::warn(format!("the session's messages are no list but {other}: none are passed on"));
            vec![]
        }
    }
}
