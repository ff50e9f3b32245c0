//! Models, as providers tell of them, and which of them a name means.
//!
//! An id is `<provider>:<model>`, where the provider is the last segment of the topic that takes its requests. The model
//! may have colons of its own, as `ollama:llama3.3:70b`.

use astrid_sdk::contracts::registry::ProviderEntry;
use serde_json::Value;

const GENERATE: &str = "llm.v1.request.generate.";

/// The models of one answer to `llm.v1.request.describe`, with their whole ids. One that names no topic of its own for
/// requests is left out and told to `complain`.
pub(crate) fn told(answer: &Value, complain: impl Fn(String)) -> Vec<ProviderEntry> {
    let mut models = Vec::new();
    for told in answer["providers"].as_array().into_iter().flatten() {
        match serde_json::from_value::<ProviderEntry>(told.clone()) {
            Ok(model) => match provider_of_topic(&model.request_topic) {
                Some(provider) => models.push(ProviderEntry { id: format!("{provider}:{}", model.id), ..model }),
                None => complain(format!("{:?} is no topic for requests to {:?}", model.request_topic, model.id)),
            },
            Err(error) => complain(format!("a model is told of in a way that cannot be read: {error}")),
        }
    }
    models
}

/// Why a provider tells of no model. What is longer than a few sentences is no reason.
pub(crate) fn problem_in(answer: &Value) -> Option<String> {
    let told = answer["problem"].as_str()?.trim();
    (!told.is_empty()).then(|| told.chars().take(1000).collect())
}

fn provider_of_topic(topic: &str) -> Option<&str> {
    let provider = topic.strip_prefix(GENERATE)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!provider.is_empty() && provider.chars().all(fits)).then_some(provider)
}

/// The provider in an id.
pub(crate) fn provider_of(id: &str) -> &str {
    id.split_once(':').map_or(id, |(provider, _)| provider)
}

fn model_of(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_, model)| model)
}

/// The model that is meant: by its whole id, else by the model's name alone when only one provider has it. Says in words
/// which there are when that is not clear.
pub(crate) fn meant<'a>(name: &str, models: &'a [ProviderEntry]) -> Result<&'a ProviderEntry, String> {
    if let Some(model) = models.iter().find(|model| model.id == name) {
        return Ok(model);
    }
    let named: Vec<_> = models.iter().filter(|model| model_of(&model.id) == name).collect();
    match named[..] {
        [model] => Ok(model),
        [] => Err(format!("unknown model: {name}")),
        _ => {
            let ids: Vec<_> = named.iter().map(|model| model.id.as_str()).collect();
            Err(format!("ambiguous model; candidates: {}", ids.join(", ")))
        }
    }
}

/// The model that a configured name means. A provider need not list it: its other models say what else there is to say.
pub(crate) fn configured(name: &str, models: &[ProviderEntry]) -> Option<ProviderEntry> {
    if let Ok(model) = meant(name, models) {
        return Some(model.clone());
    }
    let sibling =
        name.contains(':').then(|| models.iter().find(|model| provider_of(&model.id) == provider_of(name)))??;
    Some(ProviderEntry { id: name.to_owned(), description: model_of(name).to_owned(), ..sibling.clone() })
}

#[cfg(test)]
pub(crate) fn model(id: &str) -> ProviderEntry {
    ProviderEntry {
        id: id.to_owned(),
        description: format!("about {id}"),
        request_topic: format!("{GENERATE}{}", provider_of(id)),
        stream_topic: format!("llm.v1.stream.{}", provider_of(id)),
        capabilities: vec!["text".into()],
        context_window: Some(1000),
        max_output_tokens: None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;

    fn ids(models: &[ProviderEntry]) -> Vec<&str> {
        models.iter().map(|model| model.id.as_str()).collect()
    }

    #[test]
    fn models_get_the_name_of_the_provider_whose_topic_they_name() {
        let mut ollama = serde_json::to_value(model("ollama:x")).unwrap();
        ollama["id"] = json!("llama3.3:70b");
        let mut everybody = ollama.clone();
        everybody["request_topic"] = json!("llm.v1.request.generate.*");
        let complaints = RefCell::new(0);
        let answer = json!({"providers": [ollama, everybody, {"id": "x"}]});
        let models = told(&answer, |_| *complaints.borrow_mut() += 1);
        assert_eq!(ids(&models), ["ollama:llama3.3:70b"]);
        assert_eq!(*complaints.borrow(), 2);
    }

    #[test]
    fn what_is_no_list_of_models_tells_of_none() {
        for answer in [json!(null), json!([]), json!({"providers": {}})] {
            assert!(told(&answer, |text| panic!("{text}")).is_empty());
        }
    }

    #[test]
    fn a_problem_is_a_text() {
        assert_eq!(problem_in(&json!({"providers": [], "problem": " It is off. "})).as_deref(), Some("It is off."));
        for answer in [json!(null), json!([]), json!({"problem": 7}), json!({"problem": " "})] {
            assert_eq!(problem_in(&answer), None);
        }
        assert_eq!(problem_in(&json!({"problem": "é".repeat(5000)})).unwrap().chars().count(), 1000);
    }

    #[test]
    fn a_model_is_meant_by_its_id_or_by_its_name_alone() {
        let models = [model("a:m"), model("b:m"), model("ollama:llama3.3:70b"), model("c:a:m")];
        assert_eq!(meant("a:m", &models).unwrap().id, "a:m");
        assert_eq!(meant("llama3.3:70b", &models).unwrap().id, "ollama:llama3.3:70b");
        assert_eq!(meant("m", &models).unwrap_err(), "ambiguous model; candidates: a:m, b:m");
        assert_eq!(meant("x", &models).unwrap_err(), "unknown model: x");
    }

    #[test]
    fn a_configured_model_need_not_be_listed() {
        let models = [model("a:m")];
        let found = configured("a:new:1", &models).unwrap();
        assert_eq!((found.id.as_str(), found.request_topic.as_str()), ("a:new:1", "llm.v1.request.generate.a"));
        assert_eq!(configured("m", &models).unwrap().id, "a:m");
        assert!(configured("b:m", &models).is_none());
        assert!(configured("a", &models).is_none());
    }
}
