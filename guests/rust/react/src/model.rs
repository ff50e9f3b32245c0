//! Which provider is asked, and for which model: what the prompt wants, the selection that is remembered, the
//! operator's, or the registry's.

use std::sync::atomic::{AtomicBool, Ordering};

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ask::answer;
use crate::config::{self, REGISTRY_TIMEOUT_MS};
use crate::store::{remember, remembered};
use crate::turn::Stop;

const GENERATE: &str = "llm.v1.request.generate.";
const TOPIC: &str = "llm_provider_topic";
const MODEL: &str = "react.llm_provider_model";
const PROBLEM: &str = "registry.v1.response.problem";
/// Who is asked for a model that a prompt names while none is selected: it need not be one that anybody lists.
const DEFAULT_PROVIDER: &str = "llm.v1.request.generate.openai-compat";
const CONTEXT_WINDOW: &str = "react.context_window";
const MAX_OUTPUT_TOKENS: &str = "react.max_output_tokens";

/// Whether this instance was told of the selection. What is remembered may be older than the host, and of a provider or a
/// model that was given to that one alone.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A provider's topic, and a model by the name that the provider knows. An empty name leaves it to the provider.
#[derive(Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) topic: String,
    pub(crate) model: String,
}

/// What the registry says of a model.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Entry {
    id: Option<String>,
    request_topic: String,
    context_window: Option<u64>,
    max_output_tokens: Option<u64>,
}

/// What a message of the registry says about the selection.
#[derive(Debug, PartialEq)]
enum Selection {
    None,
    Entry(Entry),
    Unusable(String),
}

impl Selection {
    fn of(message: &Value) -> Self {
        if message.is_null() {
            return Self::None;
        }
        match Entry::deserialize(message) {
            Ok(entry) if is_provider_topic(&entry.request_topic) => Self::Entry(entry),
            Ok(entry) => Self::Unusable(format!("its request_topic is {:?}", entry.request_topic)),
            Err(error) => Self::Unusable(error.to_string()),
        }
    }
}

/// `llm.v1.request.generate.<provider>`, and nothing after it.
fn is_provider_topic(topic: &str) -> bool {
    topic.strip_prefix(GENERATE).is_some_and(|provider| !provider.is_empty() && !provider.contains(['.', '*']))
}

impl Choice {
    /// The registry may put the provider before the model, `<provider>:<model>`; not every provider takes it off.
    fn new(topic: String, model: &str) -> Self {
        let provider = topic.strip_prefix(GENERATE).unwrap_or_default();
        let bare = model.strip_prefix(provider).and_then(|rest| rest.strip_prefix(':')).filter(|bare| !bare.is_empty());
        let model = bare.unwrap_or(model).to_owned();
        Self { topic, model }
    }
}

/// The provider and the model for a turn.
pub(crate) fn choose(wanted: Option<&str>) -> Result<Choice, Stop> {
    let wanted = wanted.map(str::trim).filter(|model| !model.is_empty());
    let (topic, model) = (remembered(TOPIC), remembered(MODEL));
    if TOLD.load(Ordering::Relaxed) && is_provider_topic(&topic) && !(model.is_empty() && wanted.is_none()) {
        return Ok(Choice::new(topic, wanted.unwrap_or(&model)));
    }
    let topic = config::text("llm_provider_topic");
    if !topic.is_empty() {
        if !is_provider_topic(&topic) {
            return Err(Stop(format!("react.llm_provider_topic is {topic:?}: set it to {GENERATE}<provider>.")));
        }
        return Ok(Choice::new(topic, wanted.unwrap_or(&config::text("llm_provider_model"))));
    }
    selected(wanted).or_else(|stop| match wanted {
        // The provider says in its own words what is wrong, if anything is.
        Some(model) => Ok(Choice::new(DEFAULT_PROVIDER.into(), model)),
        None => Err(stop),
    })
}

/// What the registry says.
fn selected(wanted: Option<&str>) -> Result<Choice, Stop> {
    let (topic, reply) = ("registry.v1.get_active_model", "registry.v1.response.get_active_model");
    let problems = ipc::subscribe(PROBLEM).ok();
    // Everybody's answers come there: what is no selection was meant for others, or is a mistake.
    let fits = |said: &str| !matches!(selection_in(said), Selection::Unusable(_));
    let said = match answer(topic, reply, &json!({}), REGISTRY_TIMEOUT_MS.get(), fits) {
        Ok(said) => said,
        Err(why) => return Err(nothing_selected(&why.told("registry"))),
    };
    match selection_in(&said) {
        Selection::None => Err(give_one(&problems.as_ref().and_then(problem_in).unwrap_or_default())),
        Selection::Unusable(why) => Err(nothing_selected(&format!("the registry's answer cannot be used, {why}"))),
        Selection::Entry(entry) => {
            keep(&entry);
            match wanted.or(entry.id.as_deref()).filter(|model| !model.trim().is_empty()) {
                Some(model) => Ok(Choice::new(entry.request_topic, model)),
                None => Err(nothing_selected("the registry's active model has no id")),
            }
        }
    }
}

fn selection_in(said: &str) -> Selection {
    serde_json::from_str(said).map_or_else(|error| Selection::Unusable(error.to_string()), |said| Selection::of(&said))
}

/// Why a provider tells of no model, in a sentence, as the registry says it before it says that there is none.
fn problem_in(problems: &ipc::Subscription) -> Option<String> {
    let told = problems.poll().ok()?.messages.pop()?;
    let told: Value = serde_json::from_str(&told.payload).ok()?;
    told.get("problem")?.as_str().map(|problem| format!(" {}", problem.trim()))
}

fn nothing_selected(why: &str) -> Stop {
    give_one(&format!(" The registry does not tell of one: {why}."))
}

/// What to do, in the host's commands.
fn give_one(why: &str) -> Stop {
    Stop(format!(
        "No model is selected.{why} Give one: `astrid-host chat --provider-url URL --model NAME`, or \
         `astrid-host config set openai-compat.base_url URL` and `astrid-host config set openai-compat.model NAME`."
    ))
}

/// Take over what the registry tells: a selection, or that there is none any more.
pub(crate) fn changed(message: &Value) -> Result<(), String> {
    match Selection::of(message) {
        Selection::None => forget(),
        Selection::Entry(entry) => keep(&entry),
        Selection::Unusable(why) => return Err(why),
    }
    Ok(())
}

fn keep(entry: &Entry) {
    TOLD.store(true, Ordering::Relaxed);
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    remember(TOPIC, &entry.request_topic);
    remember(MODEL, entry.id.as_deref().unwrap_or_default().trim());
    remember(CONTEXT_WINDOW, &number(entry.context_window));
    remember(MAX_OUTPUT_TOKENS, &number(entry.max_output_tokens));
}

/// Ask the registry again next time: the selection changed, or its provider is not there.
pub(crate) fn forget() {
    for key in [TOPIC, MODEL, CONTEXT_WINDOW, MAX_OUTPUT_TOKENS] {
        remember(key, "");
    }
}

/// What the registry said of the model that is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// How many tokens a request and its answer may have.
    pub(crate) window: Option<u64>,
    /// How many of them the answer may have.
    pub(crate) output: Option<u64>,
}

pub(crate) fn limits() -> Limits {
    let number = |key| remembered(key).parse().ok().filter(|tokens| *tokens > 0);
    Limits { window: number(CONTEXT_WINDOW), output: number(MAX_OUTPUT_TOKENS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "llm.v1.request.generate.some";

    #[test]
    fn a_selection_has_the_topic_of_a_provider() {
        let entry = json!({"id": "m", "request_topic": SOME, "context_window": 8, "description": "x"});
        let expected = Entry {
            id: Some("m".into()),
            request_topic: SOME.into(),
            context_window: Some(8),
            max_output_tokens: None,
        };
        assert_eq!(Selection::of(&entry), Selection::Entry(expected));
        assert_eq!(Selection::of(&Value::Null), Selection::None);
        for topic in ["", "llm.v1.request.generate.", "tool.v1.request.execute", "llm.v1.request.generate.a.b"] {
            let entry = json!({"id": "m", "request_topic": topic});
            assert!(matches!(Selection::of(&entry), Selection::Unusable(_)), "{topic}");
        }
        assert!(matches!(Selection::of(&json!("m")), Selection::Unusable(_)));
        assert!(matches!(Selection::of(&json!({"id": "m"})), Selection::Unusable(_)));
    }

    #[test]
    fn the_providers_own_name_is_taken_off_the_model() {
        for (model, name) in [
            ("some:m", "m"),
            ("some:m:70b", "m:70b"),
            ("m:70b", "m:70b"),
            ("some", "some"),
            ("some:", "some:"),
            ("", ""),
        ] {
            assert_eq!(Choice::new(SOME.into(), model).model, name);
        }
    }
}
