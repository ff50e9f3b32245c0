//! What the kernel reports of events that a turn depends on. Such a turn ends, or goes on, at once, and not when its
//! time is over.

use serde::Deserialize;
use serde_json::Value;

use crate::prompt::{self, Prompt};
use crate::turn::{Phase, Stop};
use crate::{ending, generation, making_room, model, store, tools};

const OWN_NAME: &str = env!("CARGO_PKG_NAME");

/// A failure report, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    reason: String,
    detail: String,
    /// Of the event that failed; of a refused publish, what was tried.
    topic: String,
    capsule: Option<String>,
    /// How many handlers ended well.
    done: u64,
    published: Vec<String>,
    /// The event that failed; of a refused publish, the one that was being handled.
    payload: Value,
    refused: bool,
}

/// What a report is about, for a turn.
#[derive(Debug, PartialEq)]
enum About {
    /// A request for something that the turn waits for in that phase got no answer.
    Request(Phase),
    /// The model will not answer.
    Model,
    /// A result of a tool did not come here.
    Result,
    /// A prompt did not come here.
    Prompt,
    Nothing,
}

impl Report {
    fn about(&self) -> About {
        let topic = self.topic.as_str();
        // Of what others were to handle only what nobody did counts; of what comes here only what was lost: here, or on
        // its way, where a guard stopped it, for then nobody has handled it either.
        let nobody = self.done == 0 && !self.refused;
        let here = self.capsule.as_deref() == Some(OWN_NAME);
        let lost = self.is_refusal() || if here { self.reason != "deny" } else { nobody };
        match topic {
            "spark.v1.request.build" if nobody => About::Request(Phase::Identity),
            "spark.v1.response.ready" if lost => About::Request(Phase::Identity),
            "prompt_builder.v1.assemble" if nobody => About::Request(Phase::PromptBuild),
            "prompt_builder.v1.response.assemble" if lost => About::Request(Phase::PromptBuild),
            "tool.v1.execute.result" if lost => About::Result,
            "user.v1.prompt" if lost && !self.refused => About::Prompt,
            _ if topic.starts_with("llm.v1.request.generate.") && nobody => About::Model,
            _ if topic.starts_with("llm.v1.stream.") && lost => About::Model,
            _ => About::Nothing,
        }
    }

    fn is_refusal(&self) -> bool {
        self.refused || self.reason == "publish-denied"
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.payload.get(key)?.as_str()
    }

    /// What happened, in words for a person.
    fn told(&self) -> String {
        if self.reason == "no-handler" {
            return format!("no capsule handles {}", self.topic);
        }
        let who = self.capsule.as_deref().unwrap_or("a capsule");
        let gist = self.detail.lines().next().unwrap_or_default().trim();
        match gist {
            "" => format!("{who}: {}", self.reason),
            gist => format!("{who}: {} ({gist})", self.reason),
        }
    }
}

/// Do what a report asks for.
pub(crate) fn take(report: &Report) {
    match report.about() {
        About::Request(phase) => request_failed(report, phase),
        About::Model => model_failed(report),
        About::Result => {
            // Of a refused publish the payload is the tool's own result: the same.
            if let Ok(outcome) = tools::Outcome::deserialize(&report.payload) {
                tools::receive(outcome);
            }
        }
        About::Prompt => prompt_failed(report),
        About::Nothing => {}
    }
}

fn request_failed(report: &Report, phase: Phase) {
    let Some(turn) = store::turn(report.text("session_id").unwrap_or("default")) else { return };
    let request_id = report.text("request_id").unwrap_or(&turn.request_id);
    if turn.awaits(phase, request_id) {
        let what = if phase == Phase::Identity { "The system prompt" } else { "The assembled prompt" };
        ending::end(turn, Stop(format!("{what} did not come: {}.", report.told())));
    }
}

fn model_failed(report: &Report) {
    if report.reason == "no-handler" {
        model::forget(); // the registry may know another one
    }
    let Some(request_id) = report.text("request_id") else { return };
    let Some(stream) = store::stream(request_id) else { return };
    let why = report.told();
    if report.topic.starts_with("llm.v1.stream.") {
        let Some(turn) = store::turn(&stream.session_id).filter(|turn| turn.awaits(Phase::Streaming, request_id))
        else {
            return;
        };
        if turn.fitting.pending.is_some() {
            return making_room::without_summary(turn, &why);
        }
        return ending::end(turn, Stop(format!("Response interrupted: a part of it was lost, {why}. Try again.")));
    }
    generation::failed(request_id, stream, &format!("LLM error: {why}"));
}

/// A prompt that never came here is answered, or a cancellation done. One whose handler went on before it failed is on
/// its way.
fn prompt_failed(report: &Report) {
    let went_on = |topic: &String| topic == "spark.v1.request.build" || topic == "agent.v1.response";
    if report.published.iter().any(went_on) {
        return;
    }
    match Prompt::read(&report.payload) {
        Ok(prompt) if prompt.is_cancel() => prompt::take(prompt),
        Ok(prompt) => {
            let text = format!("The prompt could not be handled, {}. Try again.", report.told());
            ending::refuse(&prompt.session_id, &text);
        }
        Err(unreadable) => unreadable.refuse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(topic: &str, reason: &str, capsule: Option<&str>) -> Report {
        Report { topic: topic.into(), reason: reason.into(), capsule: capsule.map(Into::into), ..Report::default() }
    }

    #[test]
    fn requests_that_nobody_handled_end_the_turn() {
        for reason in ["no-handler", "trap", "deny", "timeout", "quarantined", "queue-full"] {
            let about = |topic| report(topic, reason, Some("other")).about();
            assert_eq!(about("spark.v1.request.build"), About::Request(Phase::Identity));
            assert_eq!(about("prompt_builder.v1.assemble"), About::Request(Phase::PromptBuild));
            assert_eq!(about("llm.v1.request.generate.some"), About::Model);
        }
    }

    #[test]
    fn a_request_that_one_of_two_handled_is_answered() {
        let report = Report { done: 1, ..report("spark.v1.request.build", "trap", Some("other")) };
        assert_eq!(report.about(), About::Nothing);
    }

    #[test]
    fn only_what_was_to_come_here_is_lost() {
        let topics = [
            ("llm.v1.stream.some", About::Model),
            ("tool.v1.execute.result", About::Result),
            ("user.v1.prompt", About::Prompt),
            ("spark.v1.response.ready", About::Request(Phase::Identity)),
            ("prompt_builder.v1.response.assemble", About::Request(Phase::PromptBuild)),
        ];
        for (topic, about) in topics {
            assert_eq!(report(topic, "queue-full", Some("react")).about(), about, "{topic}");
            assert_eq!(report(topic, "deny", Some("guard")).about(), about, "{topic}");
            let handled = Report { done: 1, ..report(topic, "queue-full", Some("other")) };
            assert_eq!(handled.about(), About::Nothing, "{topic}");
            assert_eq!(report(topic, "deny", Some("react")).about(), About::Nothing, "{topic}");
        }
    }

    #[test]
    fn what_others_may_not_publish_does_not_come_here_either() {
        for topic in ["llm.v1.stream.some", "tool.v1.execute.result", "spark.v1.response.ready"] {
            let report = Report { refused: true, ..report(topic, "publish-denied", Some("other")) };
            assert_ne!(report.about(), About::Nothing, "{topic}");
        }
        let report = Report { refused: true, ..report("user.v1.prompt", "publish-denied", Some("other")) };
        assert_eq!(report.about(), About::Nothing);
    }

    #[test]
    fn a_failure_is_told_in_one_line() {
        let detail = "unreachable\n  at x".to_owned();
        let report = Report { detail, ..report("llm.v1.request.generate.some", "trap", Some("some")) };
        assert_eq!(report.told(), "some: trap (unreachable)");
    }
}
