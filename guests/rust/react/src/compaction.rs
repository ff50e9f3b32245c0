//! Conversations that are too long for the model are shortened by a context engine, when there is one.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::ask::{Unanswered, answer};
use crate::config::COMPACT_TIMEOUT_MS;
use crate::model;

#[derive(Deserialize)]
struct Compacted {
    messages: Vec<Box<RawValue>>,
}

/// The messages as a context engine shortens them. None without one, or when it does not answer.
pub(crate) fn by_engine(session_id: &str, messages: Vec<Box<RawValue>>) -> Option<Vec<Box<RawValue>>> {
    let limits = model::limits();
    let max_tokens = limits.window?.saturating_sub(limits.output.unwrap_or(0));
    // The rest is left to the system prompt and the tools.
    let target_tokens = max_tokens / 10 * 9;
    let question = json!({
        "session_id": session_id,
        "messages": messages,
        "max_tokens": max_tokens,
        "target_tokens": target_tokens,
    });
    // All answers come on one topic, and a late one may be to an earlier question. The latest message is always kept.
    let last = messages.last().map(|message| canonical(message));
    let is_ours = |payload: &str| parse(payload).is_some_and(|it| it.messages.last().map(|m| canonical(m)) == last);
    let (topic, reply) = ("context_engine.v1.compact", "context_engine.v1.response.compact");
    match answer(topic, reply, &question, COMPACT_TIMEOUT_MS.get(), is_ours) {
        Ok(payload) => parse(&payload).map(|compacted| compacted.messages),
        Err(Unanswered::Nobody) => None,
        Err(why) => {
            log::warn(format!("session {session_id:?} is not shortened: {}", why.told("context engine")));
            None
        }
    }
}

fn parse(payload: &str) -> Option<Compacted> {
    serde_json::from_str(payload).ok()
}

/// A message as it can be compared: the order of keys may have changed on the way.
fn canonical(message: &RawValue) -> serde_json::Value {
    serde_json::from_str(message.get()).unwrap_or_default()
}
