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
const OUTPUT_TOKENS: u64 = 8_192;

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
    let window = settings.context_window.or(limits.window).unwrap_or(CONTEXT_WINDOW);
    json!({
        "id": model,
        "description": format!("{model} at {}", settings.shown_base()),
        "request_topic": format!("llm.v1.request.generate.{PROVIDER}"),
        "stream_topic": format!("llm.v1.stream.{PROVIDER}"),
        "capabilities": ["text", "vision", "tools"],
        "context_window": window,
        "max_output_tokens": room_for_output(settings, window, limits.output),
    })
}

/// How many tokens an answer may have, or, where that is left to the server, may be expected to have.
fn room_for_output(settings: &Settings, window: u64, listed: Option<u64>) -> u64 {
    let expected = match settings.max_output_tokens {
        0 => OUTPUT_TOKENS.min(window / 8),
        tokens => tokens,
    };
    listed.map_or(expected, |most| most.min(expected))
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

/// The models in a list, each once, in the server's order: `{"data": [{"id"}]}`, or `models`, or the list itself; of entries
/// that are texts, or that name their models otherwise.
fn ids(list: &Value) -> Vec<Listed> {
    let mut seen = HashSet::new();
    let lists = [list, &list["data"], &list["models"], &list["data"]["models"]];
    let all = lists.iter().find_map(|list| list.as_array()).into_iter().flatten();
    let new = all.filter_map(|model| Some((id(model)?, model))).filter(|(id, _)| seen.insert(*id)).take(MODELS);
    new.map(|(id, model)| Listed { id: id.to_owned(), limits: limits(model) }).collect()
}

fn id(model: &Value) -> Option<&str> {
    let names = ["id", "name", "model"].iter().map(|key| model.get(*key).and_then(Value::as_str));
    std::iter::once(model.as_str()).chain(names).flatten().find(|id| !id.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &Value) -> Vec<String> {
        ids(list).into_iter().map(|model| model.id).collect()
    }

    #[test]
    fn the_ids_of_a_list_are_told_once_each_in_its_order() {
        let list = json!({"data": [{"id": "b"}, {"id": "a:1"}, {"id": " "}, {"id": "b"}, {"x": 1}, 7]});
        assert_eq!(names(&list), ["b", "a:1"]);
        for none in [json!({"data": {}}), json!([]), json!(null), json!({"data": null}), json!("x")] {
            assert!(ids(&none).is_empty(), "{none}");
        }
        for shape in [
            json!([{"id": "b"}, {"name": "a:1"}]),
            json!(["b", "a:1"]),
            json!({"models": [{"name": "b"}, {"id": null, "model": "a:1"}]}),
            json!({"object": "list", "data": null, "models": ["b", "a:1", null]}),
        ] {
            assert_eq!(names(&shape), ["b", "a:1"], "{shape}");
        }
    }

    #[test]
    fn an_entry_names_the_topics_and_the_limits() {
        let settings = Settings::read(|_| String::new(), |text| panic!("{text}"));
        let listed = |limits| Listed { id: "m:1".into(), limits };
        let known = entry(&settings, &listed(Limits { window: Some(16_384), output: Some(1000) }));
        assert_eq!((&known["context_window"], &known["max_output_tokens"]), (&json!(16_384), &json!(1000)));
        let entry = entry(&settings, &listed(Limits::default()));
        assert_eq!((&entry["id"], &entry["context_window"]), (&json!("m:1"), &json!(128_000)));
        assert_eq!(entry["request_topic"], "llm.v1.request.generate.openai-compat");
        assert_eq!(entry["stream_topic"], "llm.v1.stream.openai-compat");
    }
}
