//! How long a conversation may be, as servers say it in their lists of models, each in its own words.

use serde_json::Value;

/// Where the window stands in an entry of a list. What is loaded counts more than what could be.
const WINDOW: &[&str] = &[
    "/loaded_context_length",                         // LM Studio
    "/meta/n_ctx",                                    // llama.cpp
    "/max_model_len",                                 // vLLM, SGLang
    "/top_provider/context_length",                   // OpenRouter
    "/context_length",                                // OpenRouter, Together, Fireworks
    "/context_window",                                // Groq
    "/max_context_length",                            // Mistral, LM Studio
    "/inputTokenLimit",                               // Gemini
    "/max_input_tokens",                              // LiteLLM, GitHub Models
    "/limits/max_input_tokens",                       // GitHub Models
    "/capabilities/limits/max_context_window_tokens", // Copilot
    "/meta/n_ctx_train",                              // llama.cpp
];

/// Where the longest answer stands.
const OUTPUT: &[&str] = &[
    "/top_provider/max_completion_tokens", // OpenRouter
    "/max_completion_tokens",              // Groq
    "/max_output_tokens",                  // LiteLLM
    "/outputTokenLimit",                   // Gemini
    "/limits/max_output_tokens",           // GitHub Models
    "/capabilities/limits/max_output_tokens",
];

/// What a server says of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// How many tokens a request and its answer may have.
    pub window: Option<u64>,
    /// How many of them the answer may have.
    pub output: Option<u64>,
}

/// The limits in an entry of a server's list.
pub fn limits(entry: &Value) -> Limits {
    let first = |places: &[&str]| places.iter().find_map(|place| number(entry.pointer(place)?));
    Limits { window: first(WINDOW), output: first(OUTPUT) }
}

/// A number of tokens, which may be written as text or with a point. Nobody has a window of a few tokens.
fn number(value: &Value) -> Option<u64> {
    let number = value.as_u64().or_else(|| value.as_f64().map(|number| number as u64));
    number.or_else(|| value.as_str()?.trim().parse().ok()).filter(|tokens| *tokens >= 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_usual_list_is_understood() {
        for (entry, window, output) in [
            (json!({"id": "m", "max_model_len": 16384}), Some(16384), None),
            (
                json!({"context_length": 131072, "top_provider": {"context_length": 65536, "max_completion_tokens": 4096}}),
                Some(65536),
                Some(4096),
            ),
            (json!({"context_length": 131072, "top_provider": {"context_length": null}}), Some(131_072), None),
            (json!({"context_window": 8192, "max_completion_tokens": 1024}), Some(8192), Some(1024)),
            (json!({"max_context_length": 32768, "loaded_context_length": 4096}), Some(4096), None),
            (json!({"meta": {"n_ctx_train": 131072, "n_ctx": 8192}}), Some(8192), None),
            (json!({"meta": {"n_ctx_train": 131072}}), Some(131_072), None),
            (json!({"max_model_len": "4096"}), Some(4096), None),
            (json!({"max_model_len": 4096.0}), Some(4096), None),
            (json!({"max_model_len": 0}), None, None),
            (json!({"id": "m"}), None, None),
            (json!(7), None, None),
        ] {
            assert_eq!(limits(&entry), Limits { window, output }, "{entry}");
        }
    }
}
