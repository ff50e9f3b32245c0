//! A provider of models: any server that speaks OpenAI's chat completions. Requests come on a topic, answers go out on
//! another as they come. Of an answer it keeps only what goes back with its tool calls, under a key of each call, and what
//! servers say of the limits of their models, so several requests of one principal are answered at the same time.

mod answer;
#[allow(clippy::all, unsafe_code, unused)]
mod bindings;
mod calls;
mod cancelling;
mod catalog;
mod chunk;
mod events;
mod exchange;
mod failure;
mod finish;
mod generating;
mod ids;
mod kept;
mod loose;
mod messages;
mod names;
mod publishing;
mod request;
mod room;
mod schema;
mod settings;
mod sse;
mod tools;

use astrid_sdk::prelude::*;
use serde_json::Value;
use settings::Settings;

#[derive(Default)]
pub struct OpenAiCompat;

/// Has any server that speaks OpenAI's chat completions answer for a model.
#[capsule]
impl OpenAiCompat {
    /// Answer a request with a stream of events, whose last is `Done` or `Error`.
    #[astrid::interceptor("handle_llm_request")]
    fn handle_llm_request(&self, request: Value) -> Result<(), SysError> {
        generating::generate(request, &settings())
    }

    /// Tell which models there are.
    #[astrid::interceptor("llm_describe")]
    fn llm_describe(&self) -> Result<(), SysError> {
        catalog::describe(&settings())
    }
}

fn settings() -> Settings {
    let value = |key: &str| {
        env::var(key).unwrap_or_else(|error| {
            log::warn(format!("{key} cannot be read: {error}"));
            String::new()
        })
    };
    Settings::read(value, log::warn)
}
