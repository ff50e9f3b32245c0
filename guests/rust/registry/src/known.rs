//! The state of one principal, kept from call to call, and told when another model answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use astrid_sdk::prelude::*;
use serde_json::Value;

use crate::describing::{Heard, Window, describe};
use crate::state::State;

const KEY: &str = "registry_state";
const CHANGED: &str = "registry.v1.active_model_changed";

/// Whether this instance has asked the providers. What is kept may be older than the host: other providers may be there
/// now, or the same ones configured otherwise. An instance serves one principal.
static ASKED: AtomicBool = AtomicBool::new(false);

/// How much has to be known.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ask {
    /// Whatever is kept, even nothing.
    Never,
    /// What this instance knows, if it has asked before and was answered.
    IfNeeded,
    Always,
}

/// Load the state, asking providers if need be; do something with it; save it and tell of another active model.
pub(crate) fn with<T>(ask: Ask, work: impl FnOnce(&mut State) -> T) -> Result<T, SysError> {
    let before = load()?;
    let mut state = before.clone();
    let needed = state.providers.is_empty() || !ASKED.load(Ordering::Relaxed);
    if ask == Ask::Always || (ask == Ask::IfNeeded && needed) {
        let Heard { models, problem } = describe(&window())?;
        let answered = models.as_ref().is_some_and(|models| !models.is_empty());
        ASKED.store(answered, Ordering::Relaxed);
        if !answered {
            log::debug("no provider tells of any model");
        }
        state.take(models, setting("default_model").trim());
        state.problem = problem;
    }
    let result = work(&mut state);
    if state != before {
        kv::set_json(KEY, &state)?;
    }
    if state.active() != before.active() {
        let text = serde_json::to_string(&state.active())?;
        ipc::publish(CHANGED, &text)?;
    }
    Ok(result)
}

fn load() -> Result<State, SysError> {
    match kv::get_json_opt(KEY) {
        Ok(state) => Ok(state.unwrap_or_default()),
        Err(SysError::JsonError(error)) => {
            log::warn(format!("what is kept of models cannot be read and is forgotten: {error}"));
            Ok(State::default())
        }
        Err(error) => Err(error),
    }
}

fn window() -> Window {
    let milliseconds = |key: &str, default: u64| {
        let text = setting(key);
        let text = text.trim().trim_matches('"');
        let read = if text.is_empty() { Some(default) } else { text.parse().ok() };
        Duration::from_millis(read.unwrap_or_else(|| {
            log::warn(format!("{key} is set to {text:?}, which is no number; {default} holds"));
            default
        }))
    };
    Window { some: milliseconds("describe_window_ms", 500), none: milliseconds("empty_window_ms", 3_000) }
}

fn setting(key: &str) -> String {
    env::var(key).unwrap_or_else(|error| {
        log::warn(format!("{key} cannot be read: {error}"));
        String::new()
    })
}

/// A field of a request, which may be wrapped in `data`.
pub(crate) fn field<'a>(request: &'a Value, key: &str) -> Option<&'a str> {
    request["data"][key].as_str().or_else(|| request[key].as_str())
}
