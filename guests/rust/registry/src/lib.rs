//! Knows which models there are and which one answers, for each principal by itself. Models are asked for when the
//! capsules have been loaded, and again by whoever needs them first: a principal for whom nothing was ever loaded is
//! served like any other.

mod describing;
mod known;
mod models_command;
mod providers;
mod state;

use astrid_sdk::prelude::*;
use known::{Ask, field, with};
use models_command::{Command, is_request_id, refused};
use serde_json::{Value, json};

const HOST: &str = "00000000-0000-0000-0000-000000000000";
const PROBLEM: &str = "registry.v1.response.problem";
const SET: &str = "registry.v1.response.set_active_model";

#[derive(Default)]
pub struct Registry;

/// Knows which models there are, and which one answers.
#[capsule]
impl Registry {
    /// Answer with a list of all models.
    #[astrid::interceptor("handle_get_providers")]
    fn handle_get_providers(&self) -> Result<(), SysError> {
        let providers = with(Ask::Always, |state| state.providers.clone())?;
        ipc::publish_json("registry.v1.response.get_providers", &providers)
    }

    /// Answer with the model that answers prompts, or null. An error is a null, too: whoever asks waits for an answer. What
    /// keeps a model from answering is told before, for whoever wants to know.
    #[astrid::interceptor("handle_get_active_model")]
    fn handle_get_active_model(&self) -> Result<(), SysError> {
        let known = with(Ask::IfNeeded, |state| (state.active().cloned(), state.problem().map(str::to_owned)));
        let (active, problem) = known.as_ref().map_or((&None, None), |(active, problem)| (active, problem.as_ref()));
        let told = problem.map_or(Ok(()), |problem| ipc::publish_json(PROBLEM, &json!({ "problem": problem })));
        ipc::publish_json("registry.v1.response.get_active_model", active)?;
        told.and(known.map(|_| ()))
    }

    /// Have `model_id` answer from now on. A `corr_id` comes back with the answer.
    #[astrid::interceptor("handle_set_active_model")]
    fn handle_set_active_model(&self, request: Value) -> Result<(), SysError> {
        set(field(&request, "model_id"), field(&request, "corr_id"))
    }

    /// Have no model answer until one is set.
    #[astrid::interceptor("handle_clear_active_model")]
    fn handle_clear_active_model(&self, request: Value) -> Result<(), SysError> {
        let cleared = with(Ask::Never, |state| state.choose(None));
        let answer = match &cleared {
            Ok(()) => json!({"status": "ok", "active_model": null}),
            Err(error) => json!({"error": error.to_string()}),
        };
        let answer = correlated(answer, field(&request, "corr_id"));
        ipc::publish_json("registry.v1.response.clear_active_model", &answer)?;
        cleared
    }

    /// Have a model answer that was picked from the list of `/models`.
    #[astrid::interceptor("handle_selection")]
    fn handle_selection(&self, request: Value) -> Result<(), SysError> {
        match field(&request, "selected_id") {
            Some(id) => set(Some(id), None),
            None => Ok(()), // left without picking
        }
    }

    /// `/models` gives the models to pick from, `/models <id>` sets one. All other commands are others'.
    #[astrid::interceptor("handle_command")]
    fn handle_command(&self, request: Value) -> Result<(), SysError> {
        let mut words = field(&request, "text").unwrap_or_default().split_whitespace();
        match (words.next(), words.next()) {
            (Some("/models"), Some(id)) => set(Some(id), None),
            (Some("/models"), None) => offer(),
            _ => Ok(()),
        }
    }

    /// `models` on the command line.
    #[astrid::interceptor("handle_run")]
    fn handle_run(&self, request: Value) -> Result<(), SysError> {
        let id = request["req_id"].as_str().unwrap_or_default();
        if !is_request_id(id) || request["command"] != "models" {
            log::warn("a command was run that is not `models`, or has no request id that can be answered");
            return Ok(());
        }
        let arguments: Vec<&str> = request["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let answer = match Command::read(&arguments) {
            Ok(command) => with(asks(&command), |state| command.run(state)),
            Err(why) => Ok(refused(&why)),
        };
        let answer = answer.unwrap_or_else(|error| refused(&error.to_string()));
        ipc::publish_json(&format!("cli.v1.command.result.{id}"), &answer)
    }

    /// The host has loaded capsules: providers may have come or gone.
    #[astrid::interceptor("on_capsules_loaded")]
    fn on_capsules_loaded(&self) -> Result<(), SysError> {
        if runtime::caller()?.source_id != HOST {
            return Ok(());
        }
        with(Ask::Always, |_| ())
    }
}

fn asks(command: &Command) -> Ask {
    match command {
        Command::List { .. } => Ask::Always,
        Command::Current { .. } | Command::Set(_) => Ask::IfNeeded,
        Command::Unset => Ask::Never,
    }
}

/// Have a model answer, and say so. One that is not known may have come since providers were asked.
fn set(name: Option<&str>, corr_id: Option<&str>) -> Result<(), SysError> {
    let Some(name) = name else {
        return ipc::publish_json(SET, &correlated(json!({"error": "missing model_id"}), corr_id));
    };
    let known = with(Ask::IfNeeded, |state| choose(state, name))?;
    let chosen = if known.is_ok() { known } else { with(Ask::Always, |state| choose(state, name))? };
    let answer = match chosen {
        Ok(model) => json!({"status": "ok", "active_model": model}),
        Err(why) => json!({"error": why}),
    };
    ipc::publish_json(SET, &correlated(answer, corr_id))
}

fn choose(state: &mut state::State, name: &str) -> Result<astrid_sdk::contracts::registry::ProviderEntry, String> {
    let model = providers::meant(name, &state.providers)?.clone();
    state.choose(Some(&model.id));
    Ok(model)
}

fn correlated(mut answer: Value, corr_id: Option<&str>) -> Value {
    if let Some(id) = corr_id {
        answer["corr_id"] = id.into();
    }
    answer
}

/// Give the models to pick from; what is picked comes back on the topic that is named.
fn offer() -> Result<(), SysError> {
    let models = with(Ask::Always, |state| state.providers.clone())?;
    if models.is_empty() {
        return Ok(());
    }
    let options: Vec<Value> = models
        .iter()
        .map(|model| json!({"id": model.id, "label": model.id, "description": model.description}))
        .collect();
    let selection = json!({
        "type": "selection_required",
        "request_id": format!("models-{}", time::monotonic().as_nanos()),
        "title": "Select LLM Model",
        "options": options,
        "callback_topic": "registry.v1.selection.callback",
    });
    ipc::publish_json("registry.v1.response.models", &selection)
}
