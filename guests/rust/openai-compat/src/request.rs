//! What is asked of the server.

use astrid_sdk::prelude::log;
use astrid_sdk::types::{LlmToolDefinition, Message};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kept::Kept;
use crate::messages::Told;
use crate::names::Names;
use crate::settings::Settings;
use crate::{messages, tools};

/// A request of the agent's. A message or a tool that cannot be read is left out: it was kept by somebody, perhaps long
/// ago, and the rest of the conversation is there.
pub(crate) struct Request {
    model: String,
    messages: Vec<Message>,
    tools: Vec<LlmToolDefinition>,
    system: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename = "llm_request")]
struct Given {
    #[serde(default)]
    model: Option<String>,
    messages: Vec<Value>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    system: Option<String>,
}

impl Request {
    /// Read an `llm_request`; says in words why it is none.
    pub(crate) fn read(payload: Value) -> Result<Self, String> {
        let given: Given = serde_json::from_value(payload)
            .map_err(|error| format!("The request to the model cannot be read: {error}"))?;
        Ok(Self {
            model: given.model.unwrap_or_default(),
            messages: readable("message", given.messages),
            tools: readable("tool", given.tools.unwrap_or_default()),
            system: given.system.unwrap_or_default(),
        })
    }

    /// The model to ask, by the server's name. None: the request names none, and none is configured.
    pub(crate) fn model<'a>(&'a self, settings: &'a Settings) -> Option<&'a str> {
        settings.model_for(&self.model)
    }

    /// The body for the server, and the names that it knows the tools by. `kept` gives what goes back with a call.
    pub(crate) fn body(&self, settings: &Settings, model: &str, kept: &dyn Fn(&str) -> Option<Kept>) -> (Value, Names) {
        let mut names = Names::default();
        let strict_ids = settings.has_strict_ids();
        let told = Told { name: &mut |name| names.told(name), kept, strict_ids };
        let messages = messages::for_server(&self.system, &self.messages, told);
        let mut body = json!({"model": model, "messages": messages, "stream": true});
        if settings.include_usage && !settings.tells_usage_unasked() {
            body["stream_options"] = json!({"include_usage": true});
        }
        if let Some(temperature) = settings.temperature {
            body["temperature"] = temperature.into();
        }
        if !self.tools.is_empty() {
            body["tools"] = self.tools.iter().map(|tool| tools::for_server(tool, &names.told(&tool.name))).collect();
        }
        (body, names)
    }
}

fn readable<T: DeserializeOwned>(what: &str, values: Vec<Value>) -> Vec<T> {
    let read = |(at, value)| {
        serde_json::from_value(value)
            .inspect_err(|error| log::warn(format!("{what} {at} of a request cannot be read and is left out: {error}")))
            .ok()
    };
    values.into_iter().enumerate().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(model: &str) -> Request {
        let payload = json!({
            "type": "llm_request", "request_id": "6f1c0f0e-8f7e-4b7e-9d2c-1f2d3c4b5a69", "model": model,
            "messages": [{"role": "user", "content": "hi"}], "system": "be kind",
            "tools": [{"name": "a:b", "description": null, "input_schema": {"type": "object", "mutable": true}}],
        });
        Request::read(payload).unwrap()
    }

    fn settings(model: &str) -> Settings {
        Settings::read(|key| if key == "model" { model.into() } else { String::new() }, |text| panic!("{text}"))
    }

    #[test]
    fn a_request_is_asked_of_the_model_that_it_names() {
        let (request, settings) = (request("openai-compat:m:1"), settings("other"));
        let (body, names) = request.body(&settings, request.model(&settings).unwrap(), &|_| None);
        assert_eq!((&body["model"], &body["stream"]), (&json!("m:1"), &json!(true)));
        assert_eq!(body["messages"].as_array().unwrap().len(), 2);
        assert_eq!(names.meant(body["tools"][0]["function"]["name"].as_str().unwrap()), "a:b");
    }

    #[test]
    fn without_a_model_there_is_nothing_to_ask() {
        assert_eq!(request("").model(&settings("")), None);
        assert_eq!(request("").model(&settings("m")), Some("m"));
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        assert!(Request::read(json!({"type": "llm_request", "request_id": "x"})).is_err());
        assert!(Request::read(json!({"type": "connect"})).is_err());
    }
}
