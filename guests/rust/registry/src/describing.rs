//! Asks all providers which models they have.

use std::time::Duration;

use astrid_sdk::contracts::registry::ProviderEntry;
use astrid_sdk::prelude::*;

use crate::providers::{problem_in, told};

const ASK: &str = "llm.v1.request.describe";
const ANSWERS: &str = "llm.v1.response.describe";
const SETTLED: &str = "astrid.v1.dispatch.settled.llm.v1.request.describe";
/// How long one looks for answers before looking whether there will be more.
const STEP_MS: u64 = 50;

/// How long one waits for answers.
pub(crate) struct Window {
    /// Once there is one.
    pub(crate) some: Duration,
    /// While there is none: a turn cannot begin without a model, so it is worth more.
    pub(crate) none: Duration,
}

/// What was heard of models.
#[derive(Default)]
pub(crate) struct Heard {
    /// None when nobody answered in time, which does not mean that there are none.
    pub(crate) models: Option<Vec<ProviderEntry>>,
    /// Why a provider tells of none, as the last one said it.
    pub(crate) problem: Option<String>,
}

/// Ask which models there are. The window closes as soon as all providers have answered.
pub(crate) fn describe(window: &Window) -> Result<Heard, SysError> {
    let answers = ipc::subscribe(ANSWERS)?;
    let settled = ipc::subscribe(SETTLED)?;
    let begun = time::monotonic();
    ipc::publish(ASK, "{}")?;
    let (mut models, mut problem) = (Vec::new(), None);
    // What providers answer is there before it is told that all of them have.
    let mut over = !settled.recv(milliseconds(window.some))?.messages.is_empty();
    loop {
        take(&answers, &mut models, &mut problem)?;
        let left = window.none.saturating_sub(time::monotonic().saturating_sub(begun));
        if over || !models.is_empty() || left.is_zero() {
            return Ok(Heard { models: (over || !models.is_empty()).then_some(models), problem });
        }
        add(&answers.recv(milliseconds(left).min(STEP_MS))?, &mut models, &mut problem);
        over = !settled.poll()?.messages.is_empty();
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Take all that is there.
fn take(
    answers: &ipc::Subscription,
    models: &mut Vec<ProviderEntry>,
    problem: &mut Option<String>,
) -> Result<(), SysError> {
    loop {
        let envelope = answers.poll()?;
        if envelope.messages.is_empty() {
            return Ok(());
        }
        add(&envelope, models, problem);
    }
}

fn add(envelope: &ipc::PollResult, models: &mut Vec<ProviderEntry>, problem: &mut Option<String>) {
    for message in &envelope.messages {
        match serde_json::from_str(&message.payload) {
            Ok(answer) => {
                models.extend(told(&answer, |text| log::warn(format!("{}: {text}", message.source_id))));
                *problem = problem_in(&answer).or(problem.take());
            }
            Err(error) => log::warn(format!("{} answers what is not JSON: {error}", message.source_id)),
        }
    }
}
