//! Puts together what a model is told: the system prompt with what hooks add to it, the tools of all capsules, and the
//! conversation. Every request gets one response, with an `error` where it came to nothing.

mod history;
mod hooks;
mod merging;
mod request;
mod tools;

use astrid_sdk::prelude::*;
use merging::{Merged, merge};
use request::{Request, Response, failure};
use serde_json::Value;

const RESPONSE: &str = "prompt_builder.v1.response.assemble";

#[derive(Default)]
pub struct PromptBuilder;

/// Puts together what a model is told.
#[capsule]
impl PromptBuilder {
    /// Build a prompt and publish it. What cannot even be answered is denied, so that the host reports it.
    #[astrid::interceptor("handle_assemble")]
    fn handle_assemble(&self, payload: Value) -> Result<(), SysError> {
        match request::read(payload) {
            Ok(request) => assemble(request),
            Err(refused) => ipc::publish_json(RESPONSE, &refused),
        }
    }

    /// Another set of capsules may have other tools.
    #[astrid::interceptor("on_capsules_loaded")]
    fn on_capsules_loaded(&self) -> Result<(), SysError> {
        tools::forget()
    }
}

fn assemble(mut request: Request) -> Result<(), SysError> {
    let merged = merge(&request.system_prompt, &hooks::before_build(&request));
    match respond(&mut request, &merged) {
        Ok(()) => {
            hooks::after_build(&request.request_id, &merged);
            Ok(())
        }
        Err(error) => {
            log::error(format!("the prompt of {} could not be built: {error}", request.request_id));
            let why = format!("The prompt could not be built: {error}");
            let session_id = request.session_id.map(Value::from);
            ipc::publish_json(RESPONSE, &failure(&why, Some(&request.request_id.into()), session_id.as_ref()))
        }
    }
}

fn respond(request: &mut Request, merged: &Merged) -> Result<(), SysError> {
    let tools = tools::all();
    let messages = history::messages(request)?;
    let response = Response {
        system_prompt: &merged.system_prompt,
        user_context_prefix: &merged.user_context_prefix,
        request_id: &request.request_id,
        session_id: request.session_id.as_deref(),
        tools: &tools,
        messages: &messages,
    };
    ipc::publish_json(RESPONSE, &response)
}
