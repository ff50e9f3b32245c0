//! The tools that a model is told of, kept for each principal until the set of capsules changes.

use astrid_sdk::prelude::*;
use describing::{Capsules, Duplicate, choose, describe, milliseconds};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

const CACHE: &str = "__tool_schema_cache";
const DUPLICATE: &str = "prompt_builder.v1.event.duplicate_tool";
const NAME: &str = "prompt-builder";

type Tools = Vec<Map<String, Value>>;

#[derive(Deserialize, Serialize)]
struct Kept {
    /// Of the capsules whose tools these are; none where the host does not tell.
    capsules: Option<String>,
    tools: Tools,
}

/// All tools, in load order. Without an answer of the host's there are none, which is logged.
pub(crate) fn all() -> Tools {
    match kept() {
        Ok(Some(tools)) => return tools,
        Ok(None) => {}
        Err(error) => log::warn(format!("the tools that were kept cannot be read: {error}")),
    }
    ask().unwrap_or_else(|error| {
        log::error(format!("no tools can be offered, since nobody could be asked for them: {error}"));
        vec![]
    })
}

/// Forget them: the set of capsules has changed.
pub(crate) fn forget() -> Result<(), SysError> {
    kv::delete(CACHE)
}

/// What was kept, if the same capsules are loaded: not every principal is told when they change.
fn kept() -> Result<Option<Tools>, SysError> {
    let Some(bytes) = kv::get_bytes_opt(CACHE)? else {
        return Ok(None);
    };
    let Ok(kept) = serde_json::from_slice::<Kept>(&bytes) else {
        return Ok(None);
    };
    if kept.tools.is_empty() {
        return Ok(None);
    }
    let Some(of) = kept.capsules else {
        return Ok(Some(kept.tools));
    };
    let now = Capsules::ask(NAME, window())?.map(|capsules| capsules.fingerprint());
    Ok((now == Some(of)).then_some(kept.tools))
}

fn ask() -> Result<Tools, SysError> {
    let heard = describe(NAME, window())?;
    let choice = choose(&heard);
    tell(&choice.duplicates);
    for name in heard.silent() {
        log::warn(format!("{name} did not describe its tools in time: they are not offered now"));
    }
    let tools: Tools = choice.tools.into_iter().map(|tool| tool.described).collect();
    if heard.complete && !tools.is_empty() {
        let capsules = heard.capsules.as_ref().map(Capsules::fingerprint);
        let kept = serde_json::to_vec(&Kept { capsules, tools: tools.clone() })?;
        if let Err(error) = kv::set_bytes(CACHE, &kept) {
            log::warn(format!("the tools are asked for again next time, since they could not be kept: {error}"));
        }
    }
    Ok(tools)
}

fn window() -> std::time::Duration {
    milliseconds("describe_timeout_ms", 500)
}

/// Say which tools are not offered because another capsule's has the same name.
fn tell(duplicates: &[Duplicate]) {
    if duplicates.is_empty() {
        return;
    }
    let lines =
        duplicates.iter().map(|Duplicate { tool, kept, dropped }| format!("{tool} of {dropped} ({kept} has it)"));
    log::warn(format!("not offered, because another capsule has the name: {}", lines.collect::<Vec<_>>().join(", ")));
    for Duplicate { tool, kept, dropped } in duplicates {
        let event = json!({"tool": tool, "kept": kept, "dropped": dropped});
        if let Err(error) = ipc::publish_json(DUPLICATE, &event) {
            log::warn(format!("the duplicate {tool} could not be told: {error}"));
        }
    }
}
