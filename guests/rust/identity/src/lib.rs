//! Who the agent is: a file in the principal's home says it, and the system prompt is made of it.
//!
//! A prompt is always answered: where the file cannot be used, with that of an agent without one, and the log says why.

mod file;
mod prompt;
mod spark;

use std::fmt;

use astrid_sdk::prelude::*;
use file::FILE;
use prompt::{DEFAULT_CALLSIGN, prompt};
use serde_json::{Value, json};
use spark::Spark;

#[derive(Default)]
pub struct Identity;

/// Says who the agent is: keeps its name, character and rules, and makes the system prompt of them.
#[capsule]
impl Identity {
    /// Answer with the system prompt, for the session and the request that asked.
    #[astrid::interceptor("handle_build_request")]
    fn handle_build_request(&self, request: Value) -> Result<(), SysError> {
        let spark = file::spark().unwrap_or_else(|why| {
            log::warn(format!("The agent is not who it should be, but the default one: {why}"));
            None
        });
        let workspace_root = request.get("workspace_root").and_then(Value::as_str).unwrap_or_default();
        let mut response = json!({"prompt": prompt(&spark.unwrap_or_default(), workspace_root)});
        for name in ["session_id", "request_id"] {
            if let Some(id) = request.get(name).filter(|id| id.is_string()) {
                response[name] = id.clone();
            }
        }
        ipc::publish_json("spark.v1.response.ready", &response)
    }

    /// Saves who you are from now on: your name, role, character, way of speaking, and rules. What is left out stays as
    /// it is; an empty text takes it away.
    #[astrid::tool("save_identity", mutable)]
    fn save_identity(&self, change: Spark) -> Result<Value, IdentityError> {
        change.check().map_err(IdentityError)?;
        // A file that cannot be used is replaced: nothing of it holds now either.
        let before = file::text().unwrap_or_default().unwrap_or_default();
        let spark = Spark::parse(&before).unwrap_or_default().changed(&change);
        file::write(&spark.write_into(&before)).map_err(IdentityError)?;
        Ok(json!({"status": "ok", "callsign": spark.callsign.as_deref().unwrap_or(DEFAULT_CALLSIGN)}))
    }

    /// Run the commands `identity-export` and `identity-import`. Others are for others to answer.
    #[astrid::interceptor("handle_command")]
    fn handle_command(&self, request: Value) -> Result<(), SysError> {
        let line = request.get("text").and_then(Value::as_str).unwrap_or_default().trim();
        let done = match line.strip_prefix('/').unwrap_or(line) {
            "identity-export" => exported(),
            "identity-import" => imported(),
            _ => return Ok(()),
        };
        let text = done.unwrap_or_else(|why| format!("{why}."));
        let session_id = request.get("session_id").and_then(Value::as_str).unwrap_or("default");
        let response = json!({"type": "agent_response", "text": text, "is_final": true, "session_id": session_id});
        ipc::publish_json("agent.v1.response", &response)
    }
}

/// Write the file with all that may be in it.
fn exported() -> Result<String, String> {
    let before = file::text()?.unwrap_or_default();
    let mut spark = Spark::parse(&before).map_err(|why| format!("{FILE} is left as it is: {why}"))?;
    spark.callsign.get_or_insert_with(|| DEFAULT_CALLSIGN.to_owned());
    let toml = spark.write_into(&before);
    file::write(&toml)?;
    Ok(format!(
        "Identity exported to {FILE} ({} bytes). What you change there holds from the next prompt on.",
        toml.len()
    ))
}

/// Tell what the file says.
fn imported() -> Result<String, String> {
    match file::spark()? {
        Some(spark) => {
            let callsign = spark.callsign.as_deref().unwrap_or(DEFAULT_CALLSIGN);
            Ok(format!("Identity imported from {FILE} (callsign: {callsign})."))
        }
        None => Err(format!("There is no {FILE}: write it, or have it written with identity-export")),
    }
}

#[derive(Debug)]
pub struct IdentityError(String);

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.0)
    }
}
