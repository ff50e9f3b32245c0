//! Whether there is an agent: a capsule that takes prompts. The kernel knows.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

const REQUEST: &str = "astrid.v1.request.dead-letter";
const RESPONSE: &str = "astrid.v1.response.dead-letter";
const WAIT_MS: u64 = 500;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Readiness {
    prompt_subscribers: Vec<Value>,
}

#[derive(Deserialize)]
struct Answer {
    data: Readiness,
}

/// Whether prompts are taken. True when nobody says so: then whoever takes them has to answer.
pub(crate) fn any() -> Result<bool, SysError> {
    let answers = ipc::subscribe(RESPONSE)?;
    ipc::publish_json(REQUEST, &json!({"type": "raw_json", "method": "GetAgentReadiness", "params": {}}))?;
    let Some(message) = answers.recv(WAIT_MS)?.messages.pop() else {
        log::warn("the kernel does not say who takes prompts");
        return Ok(true);
    };
    let answer: Answer = serde_json::from_str(&message.payload)?;
    Ok(!answer.data.prompt_subscribers.is_empty())
}
