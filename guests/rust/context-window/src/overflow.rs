//! By which words providers say that a conversation is too long for the model.

use serde_json::Value;

/// OpenAI's code for it, by which it is told on.
pub const CODE: &str = "context_length_exceeded";

/// All words of one row, in lower case, and it is meant.
const WORDS: &[&[&str]] = &[
    &[CODE],                                // OpenAI, Azure, OpenRouter
    &["exceed_context_size"],               // llama.cpp
    &["prompt_tokens_exceeded"],            // Copilot's model_max_prompt_tokens_exceeded
    &["context size", "exceed"],            // llama.cpp
    &["maximum context length"],            // OpenAI, vLLM, DeepSeek, Mistral, OpenRouter
    &["max context length"],                // Ollama
    &["maximum prompt length"],             // xAI
    &["maximum input length"],              // vLLM
    &["prompt is too long"],                // Anthropic
    &["prompt too long"],                   // Ollama
    &["input is too long"],                 // Bedrock
    &["input too long"],                    // Cohere
    &["input token count", "exceed"],       // Gemini
    &["exceed", "context limit"],           // Anthropic
    &["exceed", "context window"],          // OpenAI, Fireworks
    &["exceed", "context length"],          // Ollama, SGLang
    &["longer than the", "context length"], // SGLang
    &["greater than the context length"],   // LM Studio
    &["context length of", "not enough"],   // LM Studio
    &["reached context length"],            // LM Studio
    &["context overflow"],                  // LM Studio
    &["`inputs` tokens", "must be <="],     // text-generation-inference
    &["reduce the length of the messages"], // OpenAI's older answer, and many after it
    &["reduce the length of the input"],    // vLLM
    &["please reduce your message size"],   // Groq
    &["too large for model", "context"],    // Mistral
    &["tokens_limit_reached"],              // GitHub Models
    &["range of input length should be"],   // Qwen
];

/// Before the number of tokens that there may be.
const BEFORE_LIMIT: &[&str] = &[
    "maximum context length is ",
    "maximum context length of ",
    "maximum prompt length is ",
    "maximum number of tokens allowed (",
    "available context size (",
    "available context size of ",
    "context length of only ",
    "context length of ",
    "context size of ",
    "max context length of ",
    "must be <= ",
    "maximum context length (",
    "tokens > ",
    "\"n_ctx\":",
    "> ",
];

/// Before the words that follow the number.
const AFTER_LIMIT: &[&str] = &[" maximum context length", " tokens maximum", " maximum"];

/// Whether a provider's text says that the conversation is too long for the model.
pub fn is_told_by(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|words| words.iter().all(|word| text.contains(word)))
}

/// Whether a provider's error says so: in its message, its code or its type.
pub fn in_error(error: &Value) -> bool {
    let object = error.get("error").unwrap_or(error);
    let told = |key: &str| object.get(key).and_then(Value::as_str).is_some_and(is_told_by);
    object.as_str().is_some_and(is_told_by)
        || ["code", "type", "message", "detail"].into_iter().any(told)
        || object.get("innererror").is_some_and(in_error)
        || object.get("metadata").and_then(|it| it.get("raw")).and_then(Value::as_str).is_some_and(is_told_by)
}

/// How many tokens there may be, where the text says so.
pub fn window_told_by(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let after = BEFORE_LIMIT.iter().find_map(|before| {
        let at = text.find(before)? + before.len();
        number(text[at..].trim_start())
    });
    after.or_else(|| {
        AFTER_LIMIT.iter().find_map(|words| {
            let before = &text[..text.find(words)?];
            let begin = before.rfind(|character: char| !is_of_number(character)).map_or(0, |at| at + 1);
            number(before[begin..].trim_start_matches(','))
        })
    })
}

fn is_of_number(character: char) -> bool {
    character.is_ascii_digit() || character == ','
}

/// The number that a text begins with. One that no model has for its window is none.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !is_of_number(character)).unwrap_or(text.len());
    let digits = text[..end].replace(',', "");
    digits.parse().ok().filter(|tokens| (256..=100_000_000).contains(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What servers say, and the window that they tell.
    const SAID: [(&str, Option<u64>); 23] = [
        (
            "This model's maximum context length is 16385 tokens. However, your messages resulted in 17000 tokens. Please reduce the length of the messages.",
            Some(16385),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens (808 in the messages, 8192 in the completion).",
            Some(4096),
        ),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
        ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            Some(200_000),
        ),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", Some(1_048_576)),
        (
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            None,
        ),
        ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", Some(4096)),
        ("{\"code\":400,\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":5000,\"n_ctx\":4096}", Some(4096)),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Reduce the length of the input prompt: please reduce the length of the input messages.",
            None,
        ),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            Some(32768),
        ),
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
            Some(131_072),
        ),
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
            Some(4096),
        ),
        ("The number of tokens to keep from the initial prompt is greater than the context length.", None),
        (
            "Reached context length of 4096 tokens with the current model, but this model does not support mid-generation context overflow.",
            Some(4096),
        ),
        ("input length exceeds the context length", None),
        ("prompt too long; exceeded max context length by 300 tokens", None),
        ("Input is too long for requested model.", None),
        ("This model's maximum prompt length is 131072 but the request contains 150000 tokens.", Some(131_072)),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", Some(4096)),
        ("Requested token count exceeds the model's maximum context length of 8,192 tokens.", Some(8192)),
        ("Range of input length should be [1, 30720]", None),
        (
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.",
            None,
        ),
    ];

    #[test]
    fn known_servers_are_understood() {
        for (text, window) in SAID {
            assert!(is_told_by(text), "{text}");
            assert_eq!(window_told_by(text), window, "{text}");
        }
    }

    #[test]
    fn other_errors_are_not_taken_for_it() {
        for text in [
            "Incorrect API key provided",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            "Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.",
            "The model `x` does not exist",
            "Invalid schema for function 'look': context is not an object",
            "overloaded",
            "",
        ] {
            assert!(!is_told_by(text), "{text}");
        }
    }

    #[test]
    fn a_code_or_a_type_says_it_as_well() {
        for error in [
            json!({"error": {"message": "no", "code": "context_length_exceeded"}}),
            json!({"error": {"message": "no", "type": "exceed_context_size_error"}}),
            json!({"error": {"message": "no", "innererror": {"code": "context_length_exceeded"}}}),
            json!({"error": "prompt is too long"}),
            json!({"object": "error", "message": "This model's maximum context length is 10 tokens."}),
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 5 > 4"}}}),
        ] {
            assert!(in_error(&error), "{error}");
        }
        assert!(!in_error(&json!({"error": {"message": "no", "code": 400}})));
        assert!(!in_error(&json!(null)));
    }
}
