//! Every tool call gets exactly one result. What a tool or a router answers is theirs; where a call ends on its way,
//! the kernel says so in a failure report, and this capsule answers in their place. So it does for a prompt where there is no
//! agent to answer it.

mod agents;
mod answer;
mod report;

use answer::answer;
use astrid_sdk::prelude::*;
use report::Report;
use serde_json::json;

#[derive(Default)]
pub struct DeadLetter;

/// Answers tool calls that failed on their way, and prompts that nobody takes, so that none is left without an answer.
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

    /// Answer a prompt that nobody takes. What an agent could not handle is the agent's own to answer.
    #[astrid::interceptor("answer_unheard_prompt")]
    fn answer_unheard_prompt(&self, report: Report) -> Result<(), SysError> {
        let Some(session_id) = report.unheard_prompt() else {
            return Ok(());
        };
        if report.reason != "no-handler" && agents::any()? {
            return Ok(()); // it was kept from an agent, which is told so, too
        }
        let text = "No agent is loaded, so nobody answers: load a capsule that handles user.v1.prompt, such as react.";
        ipc::publish_json(
            "agent.v1.response",
            &json!({"type": "agent_response", "text": text, "is_final": true, "session_id": session_id}),
        )
    }
}
