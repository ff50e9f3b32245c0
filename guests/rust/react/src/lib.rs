//! The loop of an agent, as Astrid's react: a prompt goes with the history, the system prompt and the tools to a model; what
//! tools it calls are run, and their results go back to it, until it answers. The tokens go to `agent.v1.stream.delta`,
//! and each prompt ends in exactly one final answer on `agent.v1.response`, whatever fails, is silent or is cancelled.
//!
//! A turn is a state machine in the key-value store (see `store`), moved by events; memory holds nothing of it between
//! them. One turn runs in a session at a time; further prompts wait for it.

mod arguments;
mod ask;
mod assembly;
mod calls;
mod compaction;
mod config;
mod context;
mod ending;
mod failures;
mod generation;
mod history;
mod host;
mod ids;
mod making_room;
mod model;
mod prompt;
mod session;
mod store;
mod stream;
mod tools;
mod turn;

use astrid_sdk::prelude::*;
use serde_json::Value;

/// What the kernel puts on what it publishes itself.
const KERNEL: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Default)]
pub struct React;

/// What comes to the loop. An event that cannot be read is denied, which the kernel reports.
#[capsule]
impl React {
    /// A prompt, or the wish to cancel the turn of a session.
    #[astrid::interceptor("handle_user_prompt")]
    fn handle_user_prompt(&self, prompt: Value) -> Result<(), SysError> {
        prompt::read_and_take(&prompt);
        Ok(())
    }

    /// The system prompt.
    #[astrid::interceptor("handle_identity_response")]
    fn handle_identity_response(&self, identity: assembly::Identity) -> Result<(), SysError> {
        assembly::identity_is_there(identity);
        Ok(())
    }

    /// The assembled prompt.
    #[astrid::interceptor("handle_prompt_response")]
    fn handle_prompt_response(&self, assembled: assembly::Assembled) -> Result<(), SysError> {
        assembly::prompt_is_assembled(assembled);
        Ok(())
    }

    /// A piece of what a model says.
    #[astrid::interceptor("handle_llm_stream")]
    fn handle_llm_stream(&self, event: generation::Event) -> Result<(), SysError> {
        generation::receive(event);
        Ok(())
    }

    /// An answer of a model was cut off.
    #[astrid::interceptor("handle_llm_finish")]
    fn handle_llm_finish(&self, finish: generation::Finish) -> Result<(), SysError> {
        generation::cut(finish);
        Ok(())
    }

    /// The result of a tool.
    #[astrid::interceptor("handle_tool_result")]
    fn handle_tool_result(&self, outcome: tools::Outcome) -> Result<(), SysError> {
        tools::receive(outcome);
        Ok(())
    }

    /// Another model was selected, or none any more.
    #[astrid::interceptor("handle_model_changed")]
    fn handle_model_changed(&self, message: Value) -> Result<(), SysError> {
        model::changed(&message).map_err(|why| SysError::ApiError(format!("the selected model cannot be used: {why}")))
    }

    /// The host has loaded capsules: perhaps it is another host than before.
    #[astrid::interceptor("handle_capsules_loaded")]
    fn handle_capsules_loaded(&self, payload: Value) -> Result<(), SysError> {
        if runtime::caller()?.source_id == KERNEL {
            host::loaded(&payload);
        }
        Ok(())
    }

    /// Look for turns that have waited too long.
    #[astrid::interceptor("handle_watchdog_tick")]
    fn handle_watchdog_tick(&self) -> Result<(), SysError> {
        ending::check_all();
        Ok(())
    }

    /// Somebody who was asked for an approval has answered.
    #[astrid::interceptor("handle_approval_response")]
    fn handle_approval_response(&self) -> Result<(), SysError> {
        ending::give_tools_time();
        Ok(())
    }

    /// The kernel lost events.
    #[astrid::interceptor("handle_bus_lag")]
    fn handle_bus_lag(&self) -> Result<(), SysError> {
        ending::end_all_that_receive();
        Ok(())
    }

    /// The capsule was replaced. Turns go on where they are; those of a version that kept them otherwise end.
    #[astrid::interceptor("handle_lifecycle_restart")]
    fn handle_lifecycle_restart(&self) -> Result<(), SysError> {
        ending::check_all();
        Ok(())
    }

    /// A capsule is about to be unloaded: perhaps this one.
    #[astrid::interceptor("handle_unloading")]
    fn handle_unloading(&self, payload: Value) -> Result<(), SysError> {
        if payload.get("capsule_id").and_then(Value::as_str) == Some(env!("CARGO_PKG_NAME")) {
            ending::end_everything();
        }
        Ok(())
    }

    /// A session is to be continued by a new, empty one.
    #[astrid::interceptor("handle_session_clear")]
    fn handle_session_clear(&self, payload: Value) -> Result<(), SysError> {
        ending::clear(payload.get("session_id").and_then(Value::as_str).unwrap_or("default"))
    }

    /// The kernel reports an event that a turn may depend on.
    #[astrid::interceptor("handle_dispatch_failed")]
    fn handle_dispatch_failed(&self, report: failures::Report) -> Result<(), SysError> {
        failures::take(&report);
        Ok(())
    }
}
