//! Replies to requests.

use std::time::Duration;

use astrid_sdk::prelude::*;
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::request::correlation_id;

/// Long conversations, asked for again and again, are more than a capsule may publish in a second: the next one is near.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSES: usize = 12;

/// Answer a request, also when what it asks for fails: with the reason in place of what was asked for.
///
/// Fails as well then, so that the kernel reports it. Fails, with no answer, for a request that cannot be answered.
pub(crate) fn answer(
    what: &str,
    request: &Value,
    fields: impl FnOnce() -> Result<Value, SessionError>,
) -> Result<(), SessionError> {
    let correlation_id = correlation_id(request)?;
    let topic = format!("session.v1.response.{what}.{correlation_id}");
    let published = fields().and_then(|mut reply| {
        reply["correlation_id"] = json!(correlation_id);
        publish(&topic, &reply)
    });
    if let Err(error) = &published {
        publish(&topic, &json!({"correlation_id": correlation_id, "error": error.to_string()}))?;
    }
    published
}

/// Waits for a second at most where too much was published in this one.
fn publish(topic: &str, reply: &Value) -> Result<(), SessionError> {
    let text = serde_json::to_string(reply)?;
    for _ in 0..PAUSES {
        match ipc::publish(topic, &text) {
            Err(error) if error.to_string().ends_with("RateLimited") => time::sleep(PAUSE)?,
            done => return Ok(done?),
        }
    }
    Ok(ipc::publish(topic, &text)?)
}
