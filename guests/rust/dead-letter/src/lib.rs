//! Every tool call gets exactly one result. What a tool or a router answers is theirs; where a call ends on its way,
//! the kernel says so in a failure report, and this capsule answers in their place.

mod answer;
mod report;

use answer::answer;
use astrid_sdk::prelude::*;
use report::Report;
use serde_json::json;

#[derive(Default)]
pub struct DeadLetter;

/// Answers tool calls that failed on their way, so that none is left without a result.
#[capsule]
impl DeadLetter {
    /// Answer the call that a failure report is about, if it has no answer and will get none.
    #[astrid::interceptor("answer_failed_call")]
    fn answer_failed_call(&self, report: Report) -> Result<(), SysError> {
        let Some(answer) = answer(&report) else {
            return Ok(());
        };
        ipc::publish_json(
            "tool.v1.execute.result",
            &json!({
                "type": "tool_execute_result",
                "call_id": answer.call_id,
                "result": {"call_id": answer.call_id, "content": answer.text, "is_error": true},
            }),
        )
    }
}
