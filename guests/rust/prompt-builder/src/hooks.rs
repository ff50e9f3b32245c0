//! The capsules that add to a prompt, and those that are told what became of it.

use std::collections::HashMap;

use astrid_sdk::prelude::*;
use describing::{Windows, collect, milliseconds, number};
use serde_json::json;

use crate::merging::{Addition, Merged};
use crate::request::Request;

const BEFORE: &str = "prompt_builder.v1.hook.before_build";
const AFTER: &str = "prompt_builder.v1.hook.after_build";
const SETTLED: &str = "astrid.v1.dispatch.settled.prompt_builder.v1.hook.before_build";
const RESPONSES: &str = "prompt_builder.v1.hook_response";

/// Ask all hooks what they add. One that cannot be heard adds nothing, and the prompt is built without it.
pub(crate) fn before_build(request: &Request) -> Vec<Addition> {
    match answers(request) {
        Ok(messages) => {
            let mut may = HashMap::new();
            messages.iter().filter_map(|message| addition(message, &mut may)).collect()
        }
        Err(error) => {
            log::error(format!("the prompt of {} is built without hooks: {error}", request.request_id));
            vec![]
        }
    }
}

fn answers(request: &Request) -> Result<Vec<ipc::Message>, SysError> {
    let topic = format!("{RESPONSES}.{}", request.request_id);
    let responses = ipc::subscribe(&topic)?;
    let settled = ipc::subscribe(SETTLED)?;
    let asked = json!({
        "messages": request.messages,
        "system_prompt": request.system_prompt,
        "request_id": request.request_id,
        "session_id": request.session_id,
        "model": request.model,
        "provider": request.provider,
        "response_topic": topic,
    });
    ipc::publish_json(BEFORE, &asked)?;
    let collected = collect(&responses, &settled, windows())?;
    if collected.settled.is_none() {
        log::warn(format!("not all hooks were done with the prompt of {} in time", request.request_id));
    }
    Ok(collected.messages)
}

fn windows() -> Windows {
    Windows {
        first: milliseconds("hook_first_response_ms", 250),
        quiet: milliseconds("hook_idle_grace_ms", 100),
        total: milliseconds("hook_timeout_ms", 2000),
        most: usize::try_from(number("hook_most_responses", 50)).unwrap_or(usize::MAX),
    }
}

/// What a response adds, as far as who sent it may.
fn addition(message: &ipc::Message, may: &mut HashMap<String, bool>) -> Option<Addition> {
    let addition = Addition::read(&message.payload)?;
    let source = &message.source_id;
    if !addition.reaches_the_system() || *may.entry(source.clone()).or_insert_with(|| may_inject(source)) {
        return Some(addition);
    }
    log::warn(format!("what {source} adds to the system prompt is left out: it has no allow_prompt_injection"));
    Some(addition.for_the_user())
}

fn may_inject(source: &str) -> bool {
    capabilities::check(source, "allow_prompt_injection").unwrap_or_else(|error| {
        log::warn(format!("it cannot be found out whether {source} may add to the system prompt: {error}"));
        false
    })
}

/// Tell what was built. Nobody has to listen.
pub(crate) fn after_build(request_id: &str, merged: &Merged) {
    let told = json!({
        "system_prompt": merged.system_prompt,
        "user_context_prefix": merged.user_context_prefix,
        "request_id": request_id,
    });
    if let Err(error) = ipc::publish_json(AFTER, &told) {
        log::warn(format!("what was built for {request_id} could not be told: {error}"));
    }
}
