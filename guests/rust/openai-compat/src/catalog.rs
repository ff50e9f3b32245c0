//! Which models there are to ask: the configured one first, then those that the server lists.

use std::collections::HashSet;

use astrid_sdk::prelude::*;
use context_window::{Limits, limits};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::settings::{CONTEXT_WINDOW, PROVIDER, Settings};
use crate::{exchange, room};

const TOPIC: &str = "llm.v1.response.describe";
/// Of a server's list.
const MODELS: usize = 1000;

/// Tell which models there are. The configured one is told at once, whether or not the server lists it, and the list in a
/// second message: a server that is slow, or has none, keeps nobody from the first.
pub(crate) fn describe(settings: &Settings) -> Result<(), SysError> {
    let configured = &settings.model;
    if !configured.is_empty() {
        publish(settings, &[Listed { id: configured.clone(), limits: Limits::default() }], None)?;
    }
    let (mut listed, mut problem) = (Vec::new(), None);
    if settings.has_provider() {
        match ask_for_models(settings) {
            Ok(models) => {
                room::listed(models.iter().map(|model| (model.id.as_str(), model.limits)));
                listed = models;
            }
            Err(why) => {
                log::warn(&why);
                problem = Some(why);
            }
        }
    } else {
        log::debug(format!("{} is not asked for its models: there is no key for it", settings.shown_base()));
    }
    // The configured model is told again where the list knows more of it.
    listed.retain(|model| model.id != *configured || (model.limits != Limits::default() && !settings.is_all_set()));
    if configured.is_empty() || !listed.is_empty() { publish(settings, &listed, problem) } else { Ok(()) }
}

/// `problem` is why there are none, in sentences for a person.
fn publish(settings: &Settings, models: &[Listed], problem: Option<String>) -> Result<(), SysError> {
    let providers: Vec<Value> = models.iter().map(|model| entry(settings, model)).collect();
    let mut answer = json!({ "providers": providers });
    if let Some(problem) = problem {
        answer["problem"] = problem.into();
    }
    ipc::publish_json(TOPIC, &answer)
}

/// A model, and what a server's list says of it.
#[derive(Clone, Debug, PartialEq)]
struct Listed {
    id: String,
    limits: Limits,
}

fn entry(settings: &Settings, Listed { id: model, limits }: &Listed) -> Value {
    let output = match (settings.max_output_tokens, limits.output) {
        (0, Some(most)) => most,
        (configured, most) => most.map_or(configured, |most| most.min(configured)),
    };
    json!({
        "id": model,
        "description": format!("{model} at {}", settings.shown_base()),
        "request_topic": format!("llm.v1.request.generate.{PROVIDER}"),
        "stream_topic": format!("llm.v1.stream.{PROVIDER}"),
        "capabilities": ["text", "vision", "tools"],
        "context_window": settings.context_window.or(limits.window).unwrap_or(CONTEXT_WINDOW),
        "max_output_tokens": output,
    })
}

/// The server's list, which is not empty; else why there is none, in sentences for a person.
fn ask_for_models(settings: &Settings) -> Result<Vec<Listed>, String> {
    let base = settings.shown_base();
    let (status, body) = exchange::models(settings).map_err(|error| Failure::of_http(&error, settings, false).text)?;
    if status != 200 {
        let failure = Failure::of_status(status, &body, None, settings);
        return Err(format!("{base} does not list its models. {}", failure.text));
    }
    let no_list = |_| format!("What {base} answers is no list of models: check the URL (openai-compat.base_url).");
    let listed = ids(&serde_json::from_slice(&body).map_err(no_list)?);
    if listed.is_empty() { Err(format!("{base} lists no models.")) } else { Ok(listed) }
}

/// The models in `{"data": [{"id"}]}`, each once, in the server's order.
fn ids(list: &Value) -> Vec<Listed> {
    let mut seen = HashSet::new();
    let all = list["data"].as_array().into_iter().flatten().filter_map(|model| Some((model["id"].as_str()?, model)));
    let new = all.filter(|(id, _)| !id.trim().is_empty() && seen.insert(*id)).take(MODELS);
    new.map(|(id, model)| Listed { id: id.to_owned(), limits: limits(model) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_a_list_are_told_once_each_in_its_order() {
        let list = json!({"data": [{"id": "b"}, {"id": "a:1"}, {"id": " "}, {"id": "b"}, {"x": 1}, 7]});
        assert_eq!(ids(&list).iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["b", "a:1"]);
        assert!(ids(&json!({"data": {}})).is_empty());
        assert!(ids(&json!([])).is_empty());
    }

    #[test]
    fn an_entry_names_the_topics_and_the_limits() {
        let settings = Settings::read(|_| String::new(), |text| panic!("{text}"));
        let listed = |limits| Listed { id: "m:1".into(), limits };
        let known = entry(&settings, &listed(Limits { window: Some(16_384), output: Some(4096) }));
        assert_eq!((&known["context_window"], &known["max_output_tokens"]), (&json!(16_384), &json!(4096)));
        let entry = entry(&settings, &listed(Limits::default()));
        assert_eq!((&entry["id"], &entry["context_window"]), (&json!("m:1"), &json!(128_000)));
        assert_eq!(entry["request_topic"], "llm.v1.request.generate.openai-compat");
        assert_eq!(entry["stream_topic"], "llm.v1.stream.openai-compat");
    }
}
