//! The router of the tool convention: a request to execute a tool goes on to the topic of that tool, and the tool's
//! result goes on to the topic where all results are awaited. It keeps no state and reads no more than it must: the
//! arguments and the content of a result pass through as the text they are.

mod call;

use astrid_sdk::prelude::*;
use call::{ExecuteRequest, ExecuteResult, is_tool_name};

const RESULTS: &str = "tool.v1.execute.result";

#[derive(Default)]
pub struct Router;

/// Passes tool calls on to the capsules that provide the tools, and their results back.
#[capsule]
impl Router {
    /// Pass a call on to its tool. A request without a `call_id` cannot be answered and is denied.
    #[astrid::interceptor("handle_execute_request")]
    fn handle_execute_request(&self, request: ExecuteRequest<'_>) -> Result<(), SysError> {
        let name = &request.tool_name;
        if !is_tool_name(name) {
            return refuse(&request.call_id, format!("Invalid tool name: {name}"));
        }
        match ipc::publish_json(&format!("tool.v1.execute.{name}"), &request) {
            Ok(()) => Ok(()),
            Err(error) => refuse(&request.call_id, format!("Failed to route tool request: {error}")),
        }
    }

    /// Pass a tool's result on to whoever awaits it.
    #[astrid::interceptor("handle_execute_result")]
    fn handle_execute_result(&self, result: ExecuteResult<'_>) -> Result<(), SysError> {
        ipc::publish_json(RESULTS, &result)
    }
}

/// Answer a call that no tool will see. What cannot be published is denied, so that the kernel reports it.
fn refuse(call_id: &str, why: String) -> Result<(), SysError> {
    ipc::publish_json(RESULTS, &ExecuteResult::error(call_id, &why)?)
}
