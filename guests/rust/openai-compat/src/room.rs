//! How many tokens an answer may have: servers refuse one that would not fit into the model's context beside the
//! conversation. The context is what the operator says, what the server's list says of the model, or what the server said
//! when it refused a conversation; the latter two are kept, for each principal. What cannot be kept is learned again.

use std::collections::BTreeMap;

use astrid_sdk::prelude::*;
use context_window::{Limits, tokens, window_told_by};
use serde_json::Value;

use crate::settings::Settings;

const KEY: &str = "limits";
/// So many models are kept.
const MODELS: usize = 1000;

/// What a list or a refusal said: the window, and the longest answer.
type Kept = BTreeMap<String, (Option<u64>, Option<u64>)>;

fn kept() -> Kept {
    kv::get_json_opt(KEY)
        .unwrap_or_else(|error| {
            log::warn(format!("the limits of models cannot be read: {error}"));
            None
        })
        .unwrap_or_default()
}

fn keep(kept: &Kept) {
    if let Err(error) = kv::set_json(KEY, kept) {
        log::warn(format!("the limits of models could not be kept: {error}"));
    }
}

/// What is known of a model.
pub(crate) fn of(settings: &Settings, model: &str) -> Limits {
    let (window, output) = kept().remove(model).unwrap_or_default();
    Limits { window: [settings.context_window, window].into_iter().flatten().min(), output }
}

/// Keep what a list says.
pub(crate) fn listed<'a>(models: impl Iterator<Item = (&'a str, Limits)>) {
    let said = models.filter(|(_, limits)| *limits != Limits::default()).take(MODELS);
    let said: Kept = said.map(|(id, limits)| (id.to_owned(), (limits.window, limits.output))).collect();
    if said != kept() {
        keep(&said);
    }
}

/// Keep what a refusal says.
pub(crate) fn refused(model: &str, text: &str) {
    let Some(window) = window_told_by(text).filter(|_| context_window::is_told_by(text)) else { return };
    let mut kept = kept();
    if kept.len() < MODELS || kept.contains_key(model) {
        kept.entry(model.to_owned()).or_default().0 = Some(window);
        keep(&kept);
    }
}

/// Have the server keep its answer to what the conversation leaves, where the operator limits answers.
pub(crate) fn keep_to(body: &mut Value, settings: &Settings, model: &str) {
    if settings.max_output_tokens > 0 {
        let most = left(of(settings, model), settings.max_output_tokens, &body.to_string());
        body[settings.max_tokens_field()] = most.into();
    }
}

/// How many tokens the answer to a conversation may have, of those that it usually may.
pub(crate) fn left(limits: Limits, usual: u64, conversation: &str) -> u64 {
    let usual = limits.output.map_or(usual, |output| output.min(usual));
    limits.window.map_or(usual, |window| {
        // A quarter more, for it is an estimate.
        let sent = tokens(conversation);
        window.saturating_sub(sent + sent / 4).max(window / 16).min(usual)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_what_the_conversation_leaves() {
        let text = "word ".repeat(1000);
        let sent = tokens(&text) * 5 / 4;
        let window = |window| Limits { window: Some(window), output: None };
        assert_eq!(left(Limits::default(), 8192, &text), 8192);
        assert_eq!(left(window(128_000), 8192, &text), 8192);
        assert!(left(window(8192), 8192, &text).abs_diff(8192 - sent) < 2);
        assert_eq!(left(window(1200), 8192, &text), 75);
        assert_eq!(left(Limits { window: None, output: Some(500) }, 8192, &text), 500);
    }
}
