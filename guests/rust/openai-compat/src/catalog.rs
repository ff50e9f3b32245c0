//! Which models there are to ask: the configured one first, then those that the server lists.

use std::collections::HashSet;

use astrid_sdk::prelude::*;
use serde_json::{Value, json};

use crate::exchange;
use crate::failure::Failure;
use crate::settings::{PROVIDER, Settings};

const TOPIC: &str = "llm.v1.response.describe";
/// Of a server's list.
const MODELS: usize = 1000;
const OUTPUT_TOKENS: u64 = 8_192;

/// Tell which models there are. The configured one is told at once, whether or not the server lists it, and the list in a
/// second message: a server that is slow, or has none, keeps nobody from the first.
pub(crate) fn describe(settings: &Settings) -> Result<(), SysError> {
    let configured = &settings.model;
    if !configured.is_empty() {
        publish(settings, std::slice::from_ref(configured), None)?;
    }
    let (mut listed, mut problem) = (Vec::new(), None);
    if settings.has_provider() {
        match ask_for_models(settings) {
            Ok(models) => listed = models,
            Err(why) => {
                log::warn(&why);
                problem = Some(why);
            }
        }
    } else {
        log::debug(format!("{} is not asked for its models: there is no key for it", settings.shown_base()));
    }
    listed.retain(|model| model != configured);
    if configured.is_empty() || !listed.is_empty() { publish(settings, &listed, problem) } else { Ok(()) }
}

/// `problem` is why there are none, in sentences for a person.
fn publish(settings: &Settings, models: &[String], problem: Option<String>) -> Result<(), SysError> {
    let providers: Vec<Value> = models.iter().map(|model| entry(settings, model)).collect();
    let mut answer = json!({ "providers": providers });
    if let Some(problem) = problem {
        answer["problem"] = problem.into();
    }
    ipc::publish_json(TOPIC, &answer)
}

fn entry(settings: &Settings, model: &str) -> Value {
    json!({
        "id": model,
        "description": format!("{model} at {}", settings.shown_base()),
        "request_topic": format!("llm.v1.request.generate.{PROVIDER}"),
        "stream_topic": format!("llm.v1.stream.{PROVIDER}"),
        "capabilities": ["text", "vision", "tools"],
        "context_window": settings.context_window,
        "max_output_tokens": room_for_output(settings),
    })
}

/// How many tokens an answer may have, or, where that is left to the server, may be expected to have.
fn room_for_output(settings: &Settings) -> u64 {
    match settings.max_output_tokens {
        0 => OUTPUT_TOKENS.min(settings.context_window / 8),
        tokens => tokens,
    }
}

/// The server's list, which is not empty; else why there is none, in sentences for a person.
fn ask_for_models(settings: &Settings) -> Result<Vec<String>, String> {
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

/// The ids in a list of models, each once, in the server's order: `{"data": [{"id"}]}`, or `models`, or the list itself;
/// of entries that are texts, or that name their models otherwise.
fn ids(list: &Value) -> Vec<String> {
    let mut seen = HashSet::new();
    let lists = [list, &list["data"], &list["models"], &list["data"]["models"]];
    let all = lists.iter().find_map(|list| list.as_array()).into_iter().flatten().filter_map(id);
    all.filter(|id| seen.insert(*id)).take(MODELS).map(str::to_owned).collect()
}

fn id(model: &Value) -> Option<&str> {
    let names = ["id", "name", "model"].iter().map(|key| model.get(*key).and_then(Value::as_str));
    std::iter::once(model.as_str()).chain(names).flatten().find(|id| !id.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_a_list_are_told_once_each_in_its_order() {
        let list = json!({"data": [{"id": "b"}, {"id": "a:1"}, {"id": " "}, {"id": "b"}, {"x": 1}, 7]});
        assert_eq!(ids(&list), ["b", "a:1"]);
        for none in [json!({"data": {}}), json!([]), json!(null), json!({"data": null}), json!("x")] {
            assert!(ids(&none).is_empty(), "{none}");
        }
        for shape in [
            json!([{"id": "b"}, {"name": "a:1"}]),
            json!(["b", "a:1"]),
            json!({"models": [{"name": "b"}, {"id": null, "model": "a:1"}]}),
            json!({"object": "list", "data": null, "models": ["b", "a:1", null]}),
        ] {
            assert_eq!(ids(&shape), ["b", "a:1"], "{shape}");
        }
    }

    #[test]
    fn an_entry_names_the_topics_and_the_limits() {
        let settings = Settings::read(|_| String::new(), |text| panic!("{text}"));
        let entry = entry(&settings, "m:1");
        assert_eq!((&entry["id"], &entry["context_window"]), (&json!("m:1"), &json!(128_000)));
        assert_eq!(entry["request_topic"], "llm.v1.request.generate.openai-compat");
        assert_eq!(entry["stream_topic"], "llm.v1.stream.openai-compat");
    }
}
