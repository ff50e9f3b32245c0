//! What is asked of the server.

use std::collections::HashSet;

use astrid_sdk::types::{IpcPayload, LlmToolDefinition, Message};
use context_window::Limits;
use serde_json::{Value, json};

use crate::names::Names;
use crate::settings::Settings;
use crate::{messages, room, tools};

/// A request of the agent's.
pub(crate) struct Request {
    model: String,
    messages: Vec<Message>,
    tools: Vec<LlmToolDefinition>,
    system: String,
}

impl Request {
    /// Read an `llm_request`; says in words why it is none.
    pub(crate) fn read(payload: Value) -> Result<Self, String> {
        match serde_json::from_value(payload) {
            Ok(IpcPayload::LlmRequest { model, messages, tools, system, .. }) => {
                Ok(Self { model, messages, tools, system })
            }
            Ok(_) => Err("What was asked is no request to a model.".into()),
            Err(error) => Err(format!("The request to the model cannot be read: {error}")),
        }
    }

    /// The body for the server, and the names that it knows the tools by. `limits` are those of a model. None: there is no
    /// model to ask.
    pub(crate) fn body(&self, settings: &Settings, limits: impl Fn(&str) -> Limits) -> Option<(Value, Names)> {
        let mut names = Names::default();
        let model = settings.model_for(&self.model)?;
        let messages = messages::for_server(&self.system, &self.messages, &mut |name| names.told(name));
        let mut body = json!({"model": model, "messages": messages, "stream": true});
        if settings.include_usage {
            body["stream_options"] = json!({"include_usage": true});
        }
        if let Some(temperature) = settings.temperature {
            body["temperature"] = temperature.into();
        }
        if !self.tools.is_empty() {
            body["tools"] = self.tools.iter().map(|tool| tools::for_server(tool, &names.told(&tool.name))).collect();
        }
        if settings.max_output_tokens > 0 {
            let most = room::left(limits(model), settings.max_output_tokens, &body.to_string());
            body[settings.max_tokens_field()] = most.into();
        }
        Some((body, names))
    }

    /// The ids of tool calls that the conversation has already.
    pub(crate) fn call_ids(&self) -> HashSet<String> {
        messages::call_ids(&self.messages)
    }
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
        let (body, names) = request("openai-compat:m:1").body(&settings("other"), |_| Limits::default()).unwrap();
        assert_eq!((&body["model"], &body["stream"]), (&json!("m:1"), &json!(true)));
        assert_eq!(body["messages"].as_array().unwrap().len(), 2);
        assert_eq!(names.meant(body["tools"][0]["function"]["name"].as_str().unwrap()), "a:b");
    }

    #[test]
    fn without_a_model_there_is_nothing_to_ask() {
        assert!(request("").body(&settings(""), |_| Limits::default()).is_none());
        assert_eq!(request("").body(&settings("m"), |_| Limits::default()).unwrap().0["model"], "m");
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        assert!(Request::read(json!({"type": "llm_request", "request_id": "x"})).is_err());
        assert!(Request::read(json!({"type": "connect"})).is_err());
    }
}
