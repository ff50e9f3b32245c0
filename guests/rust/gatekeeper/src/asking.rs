//! Asking for approval of one call.

use std::fmt;

use astrid_sdk::prelude::*;
use serde_json::json;

use crate::call::Call;
use crate::shown::resource;

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
    let Err(denied) = ask(call) else {
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

/// A decision holds for this call alone: it is not kept, so a call that is made again is asked about again.
fn ask(call: &Call<'_>) -> Result<(), Denied> {
    let name = &call.tool_name;
    match approval::request(name, &resource(name, call.arguments)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Denied(format!("the gatekeeper asked for approval of {name}, and it was not given."))),
        Err(error) if error.to_string().ends_with("Timeout") => {
            Err(Denied(format!("nobody decided in time whether the gatekeeper may let {name} pass.")))
        }
        Err(error) => Err(Denied(format!("the gatekeeper could not ask for approval of {name}: {error}"))),
    }
}
