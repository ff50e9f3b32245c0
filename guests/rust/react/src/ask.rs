//! Questions to other capsules, asked and awaited while an event is handled. A question that nobody received, or whose
//! handler failed, is reported by the kernel: then there is nothing to wait for.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::ids::new_id;

/// How often failure reports are looked at while an answer is awaited. Answers themselves wake at once.
const SLICE_MS: u64 = 20;

/// Why there is no answer.
pub(crate) enum Unanswered {
    Nobody,
    Failed(String),
    Silence(u64),
    Broken(String),
}

impl Unanswered {
    pub(crate) fn told(&self, who: &str) -> String {
        match self {
            Self::Nobody => format!("no {who} capsule is loaded"),
            Self::Failed(why) => format!("the {who} capsule failed: {why}"),
            Self::Silence(ms) => format!("the {who} capsule did not answer within {ms} ms"),
            Self::Broken(why) => format!("the {who} capsule cannot be asked: {why}"),
        }
    }
}

impl From<SysError> for Unanswered {
    fn from(error: SysError) -> Self {
        Self::Broken(error.to_string())
    }
}

#[derive(Deserialize)]
struct Report {
    reason: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    payload: Value,
}

/// Ask, and wait for the answer on a topic of its own, `<reply>.<correlation id>`.
pub(crate) fn ask(topic: &str, reply: &str, mut question: Value, timeout_ms: u64) -> Result<String, Unanswered> {
    let id = new_id();
    question["correlation_id"] = Value::from(id.as_str());
    answer(topic, &format!("{reply}.{id}"), &question, timeout_ms, |_| true)
}

/// Ask, and wait for an answer on a topic that all answers share: `fits` knows which is to this question.
pub(crate) fn answer(
    topic: &str,
    reply: &str,
    question: &Value,
    timeout_ms: u64,
    fits: impl Fn(&str) -> bool,
) -> Result<String, Unanswered> {
    // Both before the question: the answer may be there when publishing it returns. Other hosts have no reports.
    let answers = ipc::subscribe(reply)?;
    let failures = ipc::subscribe(&format!("astrid.v1.dispatch.failed.{topic}")).ok();
    ipc::publish_json(topic, question)?;
    let begun = time::monotonic();
    let mut wait = 0;
    loop {
        // What was answered counts, whatever failed then.
        for message in answers.recv(wait)?.messages {
            if fits(&message.payload) {
                return Ok(message.payload);
            }
        }
        if let Some(why) = failures.as_ref().and_then(|failures| failure(failures, question)) {
            return Err(why);
        }
        let waited = u64::try_from((time::monotonic() - begun).as_millis()).unwrap_or(u64::MAX);
        if waited >= timeout_ms {
            return Err(Unanswered::Silence(timeout_ms));
        }
        wait = SLICE_MS.min(timeout_ms - waited);
    }
}

/// What is reported of this question.
fn failure(failures: &ipc::Subscription, question: &Value) -> Option<Unanswered> {
    loop {
        let message = failures.poll().ok()?.messages.pop()?;
        let Ok(report) = serde_json::from_str::<Report>(&message.payload) else { continue };
        if report.payload != *question {
            continue;
        }
        return Some(match report.reason.as_str() {
            "no-handler" => Unanswered::Nobody,
            reason => Unanswered::Failed(format!("{reason}, {}", report.detail)),
        });
    }
}
