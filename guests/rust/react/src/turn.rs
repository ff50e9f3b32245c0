//! One turn: from a prompt to its one final answer. What is kept of it is small, because it is written at each step;
//! what is large lies under keys of its own.

use serde::{Deserialize, Serialize};

use crate::config::{GENERATION_TIMEOUT, IDENTITY_TIMEOUT, STREAMING_TIMEOUT, TOOL_TIMEOUT};
use crate::context::Fitting;

/// The form in which turns are kept. Others are of another version of this capsule and cannot be gone on with.
const VERSION: u32 = 1;

/// What a turn waits for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Phase {
    /// The system prompt.
    Identity,
    /// The assembled prompt and the tools.
    PromptBuild,
    /// The model.
    Streaming,
    /// Results of tools.
    Tools,
    /// Room to publish its final answer: a publish of it has failed.
    Answering,
}

/// Why a turn cannot go on, as its final answer says it.
#[derive(Debug, PartialEq)]
pub(crate) struct Stop(pub(crate) String);

impl Stop {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// How a turn ends: what its final answer says.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending {
    Answered(String),
    Cancelled,
    Failed(String),
}

impl From<Stop> for Ending {
    fn from(Stop(why): Stop) -> Self {
        Self::Failed(why)
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Turn {
    version: u32,
    pub(crate) session_id: String,
    /// The instance of this capsule that began it: one of an earlier host is gone with it.
    #[serde(default)]
    pub(crate) begun_by: String,
    pub(crate) phase: Phase,
    /// When the phase was entered, in milliseconds since 1970.
    pub(crate) entered_ms: u64,
    /// Stands in all requests of this turn until the model answers, and is new for each further request to it.
    pub(crate) request_id: String,
    /// How often tools have been called.
    pub(crate) iteration: u64,
    /// What the prompt asks for instead of the selected model.
    pub(crate) wanted_model: Option<String>,
    /// The topic on which the model is asked, and its name there.
    pub(crate) topic: String,
    pub(crate) model: String,
    /// The calls that were made last, in the order of the model.
    pub(crate) calls: Vec<Call>,
    /// What makes room for its next request.
    #[serde(default)]
    pub(crate) fitting: Fitting,
    /// The final answer, and how often it could not be published.
    pub(crate) answer: Option<String>,
    pub(crate) attempts: u32,
}

/// A call of a tool, as far as it must be known at each step.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) answered: bool,
}

/// How long each phase may last, in milliseconds.
pub(crate) struct Limits {
    pub(crate) identity: u64,
    pub(crate) streaming: u64,
    pub(crate) tools: u64,
}

impl Limits {
    pub(crate) fn configured() -> Self {
        Self {
            identity: IDENTITY_TIMEOUT.get_ms(),
            streaming: STREAMING_TIMEOUT.get_ms(),
            tools: TOOL_TIMEOUT.get_ms(),
        }
    }
}

impl Turn {
    pub(crate) fn new(session_id: &str, request_id: String, wanted_model: Option<String>) -> Self {
        Self {
            version: VERSION,
            session_id: session_id.into(),
            begun_by: String::new(),
            phase: Phase::Identity,
            entered_ms: 0,
            request_id,
            iteration: 0,
            wanted_model,
            topic: String::new(),
            model: String::new(),
            calls: Vec::new(),
            fitting: Fitting::default(),
            answer: None,
            attempts: 0,
        }
    }

    /// Whether this version of the capsule can go on with it.
    pub(crate) fn is_known(&self) -> bool {
        self.version == VERSION
    }

    pub(crate) fn enter(&mut self, phase: Phase, now: u64) {
        self.phase = phase;
        self.entered_ms = now;
    }

    /// Whether this is the turn in that phase which a message with this request id belongs to.
    pub(crate) fn awaits(&self, phase: Phase, request_id: &str) -> bool {
        self.phase == phase && self.request_id == request_id
    }

    /// The name of the provider, which is the last part of its topic.
    pub(crate) fn provider(&self) -> &str {
        self.topic.rsplit('.').next().unwrap_or_default()
    }

    /// The calls that have no result yet.
    pub(crate) fn outstanding(&self) -> Vec<String> {
        self.calls.iter().filter(|call| !call.answered).map(|call| call.id.clone()).collect()
    }

    /// Why the turn has waited too long, if it has. `stream` is when the model said something last, and until when it
    /// may speak.
    pub(crate) fn overdue(&self, now: u64, limits: &Limits, stream: Option<(u64, u64)>) -> Option<Stop> {
        let waited = |since: u64, limit: u64| now.saturating_sub(since) >= limit;
        let late = |what: &str, limit: u64, key: &str| {
            let seconds = limit / 1000;
            Some(Stop(format!("Request timed out: {what} within {seconds} s (react.{key}). Try again.")))
        };
        match self.phase {
            Phase::Identity if waited(self.entered_ms, limits.identity) => {
                late("no identity capsule gave the system prompt", limits.identity, IDENTITY_TIMEOUT.key)
            }
            Phase::PromptBuild if waited(self.entered_ms, limits.identity) => {
                late("no prompt builder assembled the prompt", limits.identity, IDENTITY_TIMEOUT.key)
            }
            Phase::Streaming => {
                let (last, until) = stream.unwrap_or((self.entered_ms, u64::MAX));
                if waited(last, limits.streaming) {
                    let what = format!("the provider {} sent nothing", self.provider());
                    return late(&what, limits.streaming, STREAMING_TIMEOUT.key);
                }
                (now >= until).then(|| self.endless())
            }
            Phase::Tools if waited(self.entered_ms, limits.tools) => {
                let missing = self.outstanding().len();
                late(&format!("{missing} of {} tools did not answer", self.calls.len()), limits.tools, TOOL_TIMEOUT.key)
            }
            _ => None,
        }
    }

    /// Said of a model that does not come to an end.
    pub(crate) fn endless(&self) -> Stop {
        let key = GENERATION_TIMEOUT.key;
        Stop(format!(
            "Request timed out: the provider {} did not come to an end in time (react.{key}).",
            self.provider()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { identity: 30_000, streaming: 120_000, tools: 150_000 };

    fn turn(phase: Phase) -> Turn {
        let mut turn = Turn::new("s", "r".into(), None);
        turn.topic = "llm.v1.request.generate.some".into();
        turn.enter(phase, 1_000_000);
        turn
    }

    #[test]
    fn each_phase_has_its_limit() {
        let phases = [
            (Phase::Identity, 30_000),
            (Phase::PromptBuild, 30_000),
            (Phase::Streaming, 120_000),
            (Phase::Tools, 150_000),
        ];
        for (phase, limit) in phases {
            let turn = turn(phase);
            assert_eq!(turn.overdue(1_000_000 + limit - 1, &LIMITS, None), None, "{phase:?}");
            let Stop(text) = turn.overdue(1_000_000 + limit, &LIMITS, None).expect("a reason");
            assert!(text.starts_with("Request timed out: ") && text.contains("_timeout_secs"), "{text}");
        }
        assert_eq!(turn(Phase::Answering).overdue(u64::MAX, &LIMITS, None), None);
    }

    #[test]
    fn a_model_that_speaks_has_time_until_it_has_spoken_too_long() {
        let turn = turn(Phase::Streaming);
        assert_eq!(turn.overdue(2_000_000, &LIMITS, Some((1_999_000, 2_000_001))), None);
        assert_eq!(turn.overdue(2_000_001, &LIMITS, Some((1_999_000, 2_000_001))), Some(turn.endless()));
        assert!(turn.overdue(2_000_000, &LIMITS, Some((1_880_000, u64::MAX))).is_some());
    }

    #[test]
    fn a_clock_that_went_back_ends_nothing() {
        assert_eq!(turn(Phase::Tools).overdue(0, &LIMITS, None), None);
    }
}
