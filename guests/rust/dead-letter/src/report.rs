//! What the kernel says of an event that was not handled as it should have been.

use serde::Deserialize;
use serde_json::Value;

/// A failure report, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) reason: String,
    pub(crate) detail: String,
    /// Of the event that failed; of a refused publish, what was tried.
    pub(crate) topic: String,
    pub(crate) capsule: Option<String>,
    /// The topics that handlers of the event published on before.
    pub(crate) published: Vec<String>,
    /// The event that failed; of a refused publish, the one that was being handled.
    pub(crate) payload: Value,
    /// A publish was refused: `topic` is what was tried. Always so for `publish-denied`.
    pub(crate) refused: bool,
}

/// How far a call had come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage<'a> {
    /// On the way to the router.
    Request,
    /// On the way to the tool of this name.
    Call(&'a str),
    /// On the way back from the tool of this name.
    Result(&'a str),
}

const EXECUTE: &str = "tool.v1.execute.";

impl Report {
    /// None for topics that are not part of a call under way: on `tool.v1.execute.result` it has its result.
    pub(crate) fn stage(&self) -> Option<Stage<'_>> {
        if self.topic == "tool.v1.request.execute" {
            return Some(Stage::Request);
        }
        let rest = self.topic.strip_prefix(EXECUTE)?;
        match rest.split_once('.') {
            None if rest != "result" => Some(Stage::Call(rest)),
            Some((tool, "result")) => Some(Stage::Result(tool)),
            _ => None,
        }
    }

    /// The session of a prompt that came to nobody, as far as can be told from here. None when it only asks to end a turn.
    pub(crate) fn unheard_prompt(&self) -> Option<&str> {
        let action = self.payload.get("context").and_then(|context| context.get("action"));
        let answered = self.published.iter().any(|topic| topic == "agent.v1.response");
        let unheard = matches!(self.reason.as_str(), "no-handler" | "cancelled") && !answered;
        if !unheard || self.topic != "user.v1.prompt" || action.is_some() {
            return None;
        }
        Some(self.payload.get("session_id").and_then(Value::as_str).unwrap_or("default"))
    }

    pub(crate) fn call_id(&self) -> Option<&str> {
        self.payload.get("call_id")?.as_str()
    }

    pub(crate) fn tool_name(&self) -> Option<&str> {
        self.payload.get("tool_name")?.as_str()
    }

    /// Whether the call went on before something failed. What becomes of it then is reported further down.
    pub(crate) fn went_on(&self) -> bool {
        self.published.iter().any(|topic| topic.starts_with(EXECUTE))
    }

    /// Whether the event is the call of this tool, rather than its result or something else.
    pub(crate) fn is_call_of(&self, tool: &str) -> bool {
        self.payload.get("result").is_none() && self.tool_name().is_none_or(|name| name == tool)
    }

    /// Whether it is about a publish that was refused, rather than about an event that was not handled.
    pub(crate) fn is_refusal(&self) -> bool {
        self.refused || self.reason == "publish-denied"
    }

    /// What a model can use of the detail: a few lines of it, without the frames of a backtrace.
    pub(crate) fn gist(&self) -> String {
        const LINES: usize = 3;
        const CHARACTERS: usize = 600;
        let lines = self.detail.lines().map(str::trim);
        let told: Vec<&str> = lines.filter(|line| !is_frame(line)).take(LINES).collect();
        let text = told.join(" ");
        match text.char_indices().nth(CHARACTERS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

fn is_frame(line: &str) -> bool {
    let numbered = || line.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.is_empty()
        || line.starts_with("at ")
        || line == "Caused by:"
        || line.ends_with("wasm backtrace:")
        || numbered()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(topic: &str) -> Report {
        Report { topic: topic.into(), ..Report::default() }
    }

    #[test]
    fn the_stage_of_a_call_is_read_from_the_topic() {
        let stages = [
            ("tool.v1.request.execute", Some(Stage::Request)),
            ("tool.v1.execute.x", Some(Stage::Call("x"))),
            ("tool.v1.execute.s:x", Some(Stage::Call("s:x"))),
            ("tool.v1.execute.x.result", Some(Stage::Result("x"))),
            ("tool.v1.execute.result", None),
            ("tool.v1.execute.x.y", None),
            ("tool.v1.execute.x.y.result", None),
            ("tool.v1.execute", None),
            ("tool.v1.request.describe", None),
            ("", None),
        ];
        for (topic, stage) in stages {
            assert_eq!(about(topic).stage(), stage, "{topic}");
        }
    }

    #[test]
    fn the_gist_of_a_crash_has_no_frames() {
        let detail = "wasm trap: unreachable\n  at fs!read (0x12)\n  at fs!run\nits publish on t was refused: no row";
        let report = Report { detail: detail.into(), ..Report::default() };
        assert_eq!(report.gist(), "wasm trap: unreachable its publish on t was refused: no row");

        let detail = "error while executing at wasm backtrace:\n    0: 0x12 - fs!read\n\nCaused by:\n    out of fuel";
        let report = Report { detail: detail.into(), ..Report::default() };
        assert_eq!(report.gist(), "out of fuel");
    }

    #[test]
    fn the_gist_of_a_long_detail_is_short() {
        let report = Report { detail: "é".repeat(5000), ..Report::default() };
        assert_eq!(report.gist(), format!("{}…", "é".repeat(600)));
    }

    #[test]
    fn a_report_of_another_kernel_may_lack_fields_and_have_more() {
        let report: Report = serde_json::from_str(r#"{"topic":"t","seq":7,"capsule":null,"new":1}"#).unwrap();
        assert_eq!((report.topic.as_str(), report.capsule.as_deref(), report.call_id()), ("t", None, None));
    }
}
