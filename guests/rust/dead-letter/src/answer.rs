//! Which failures are answered, and with what words.
//!
//! | reported on | the event | answered |
//! |---|---|---|
//! | `tool.v1.request.execute` | the request | unless it went on to the tool |
//! | `tool.v1.execute.<tool>` | the call | unless the tool answered |
//! | `tool.v1.execute.<tool>.result` | the result | unless the router passed it on |
//! | the same, of a refused publish | what its capsule handled | when that is the very call: see `is_lost` |

use crate::report::{Report, Stage};

/// The one result of a call.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) text: String,
}

/// The answer to the call that a report is about. None when it has one, may still get one, or cannot be told.
pub(crate) fn answer(report: &Report) -> Option<Answer<'_>> {
    let stage = report.stage()?;
    let call_id = report.call_id()?;
    if report.went_on() || !is_lost(report, stage) {
        return None;
    }
    let text = match stage {
        Stage::Request => of_request(report),
        Stage::Call(tool) => of_call(report, tool),
        Stage::Result(tool) => of_result(report, tool),
    };
    Some(Answer { call_id, text })
}

/// Whether the call ended here. It did when its event failed. When a publish was refused, it did only if that publish
/// was to pass this call on or to answer it: a tool that may not call another one can still answer its own call, and
/// whoever may not request a call was told so at once.
fn is_lost(report: &Report, stage: Stage) -> bool {
    !report.is_refusal()
        || match stage {
            Stage::Request => false,
            Stage::Call(tool) | Stage::Result(tool) => report.is_call_of(tool),
        }
}

fn of_request(report: &Report) -> String {
    if report.reason == "no-handler" {
        return "No router is loaded, so no tool can be called: load a capsule that handles tool.v1.request.execute."
            .into();
    }
    failed(report, report.tool_name().unwrap_or("tool"), router(report))
}

fn of_call(report: &Report, tool: &str) -> String {
    match report.reason.as_str() {
        "no-handler" => format!("No capsule provides a tool named {tool}."),
        "publish-denied" => refused(report, router(report), &format!("pass calls of {tool} on"), "tool.v1.execute.*"),
        _ => failed(report, tool, tool),
    }
}

fn of_result(report: &Report, tool: &str) -> String {
    match report.reason.as_str() {
        "no-handler" => format!("The result of {tool} was lost: no router is loaded that passes it on."),
        "publish-denied" => refused(report, tool, "publish its result", "tool.v1.execute.*.result"),
        _ => format!("The result of {tool} was lost: {}", failed(report, tool, router(report))),
    }
}

fn router(report: &Report) -> &str {
    report.capsule.as_deref().unwrap_or("the router")
}

/// What `who` did with a call of `tool`.
fn failed(report: &Report, tool: &str, who: &str) -> String {
    let what = match report.reason.as_str() {
        "trap" => format!("{who} crashed"),
        "deny" => format!("{who} refused the call"),
        "timeout" => format!("{who} took too long and was stopped"),
        "cancelled" => format!("The call of {tool} was cancelled"),
        "no-instance" => format!("{who} could not be started, try again later"),
        "quarantined" => format!("{who} failed too often and is out of service"),
        "queue-full" => format!("{who} is busy, try again"),
        "loop" => format!("{who} was called in an endless loop"),
        "guest-fault" => format!("{who} is broken, what it passed to the host cannot be read"),
        other => format!("{who} failed ({other})"),
    };
    with_gist(what, report)
}

/// A publish that was refused: for want of a row in the manifest, or for what was to be published.
fn refused(report: &Report, who: &str, what: &str, row: &str) -> String {
    let detail = &report.detail;
    if ["[publish]", "Capsule.toml", "capability-denied"].iter().any(|sign| detail.contains(sign)) || detail.is_empty()
    {
        let whose = report.capsule.as_deref().map_or("its".into(), |capsule| format!("{capsule}'s"));
        return format!("{who} may not {what}: add \"{row}\" to [publish] in {whose} Capsule.toml.");
    }
    with_gist(format!("{who} could not {what}"), report)
}

fn with_gist(what: String, report: &Report) -> String {
    match report.gist() {
        gist if gist.is_empty() => format!("{what}."),
        gist => format!("{what}: {gist}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const REQUEST: &str = "tool.v1.request.execute";
    const CALL: &str = "tool.v1.execute.x";
    const RESULT: &str = "tool.v1.execute.x.result";
    const FAILURES: [&str; 10] = [
        "trap",
        "deny",
        "timeout",
        "cancelled",
        "no-instance",
        "quarantined",
        "queue-full",
        "loop",
        "guest-fault",
        "new",
    ];

    fn call() -> Value {
        json!({"type": "tool_execute_request", "call_id": "c1", "tool_name": "x", "arguments": {}})
    }

    fn result() -> Value {
        let result = json!({"call_id": "c1", "content": "hi", "is_error": false});
        json!({"type": "tool_execute_result", "call_id": "c1", "result": result})
    }

    fn report(topic: &str, reason: &str, payload: Value) -> Report {
        Report {
            reason: reason.into(),
            detail: "why".into(),
            topic: topic.into(),
            capsule: (reason != "no-handler").then(|| "cap".into()),
            published: vec![],
            payload,
            refused: false,
        }
    }

    fn text(report: &Report) -> String {
        let answer = answer(report).expect("an answer");
        assert_eq!(answer.call_id, "c1");
        answer.text
    }

    fn refused(topic: &str, detail: &str, payload: Value) -> Report {
        Report { detail: detail.into(), ..report(topic, "publish-denied", payload) }
    }

    const NO_ROW: &str = "capsule 'cap' may not publish 't': add to its Capsule.toml: [publish] \"t\" = {}";

    #[test]
    fn every_failure_of_a_request_a_call_or_a_result_is_answered_and_names_the_detail() {
        for (topic, payload) in [(REQUEST, call()), (CALL, call()), (RESULT, result())] {
            for reason in FAILURES {
                let text = text(&report(topic, reason, payload.clone()));
                assert!(text.ends_with(": why"), "{topic} {reason}: {text}");
            }
        }
    }

    #[test]
    fn what_nobody_handles_is_answered_with_what_is_missing() {
        let about = |topic, payload| text(&report(topic, "no-handler", payload));
        assert!(about(REQUEST, call()).starts_with("No router is loaded"));
        assert_eq!(about(CALL, call()), "No capsule provides a tool named x.");
        assert_eq!(about(RESULT, result()), "The result of x was lost: no router is loaded that passes it on.");
    }

    #[test]
    fn the_words_say_who_failed_and_how() {
        assert_eq!(text(&report(CALL, "trap", call())), "x crashed: why");
        assert_eq!(text(&report(CALL, "deny", call())), "x refused the call: why");
        assert_eq!(text(&report(CALL, "cancelled", call())), "The call of x was cancelled: why");
        assert_eq!(text(&report(REQUEST, "deny", call())), "cap refused the call: why");
        assert_eq!(text(&report(RESULT, "trap", result())), "The result of x was lost: cap crashed: why");
    }

    #[test]
    fn a_failure_without_a_detail_is_told_without_one() {
        let report = Report { detail: String::new(), ..report(CALL, "timeout", call()) };
        assert_eq!(text(&report), "x took too long and was stopped.");
    }

    #[test]
    fn a_call_that_went_on_is_not_answered_whatever_failed_after() {
        for (topic, payload) in [(REQUEST, call()), (CALL, call()), (RESULT, result())] {
            for reason in FAILURES.into_iter().chain(["publish-denied"]) {
                for went_on in [CALL, RESULT, "tool.v1.execute.result"] {
                    let published = vec!["log.v1.line".into(), went_on.into()];
                    let report = Report { published, ..report(topic, reason, payload.clone()) };
                    assert_eq!(answer(&report), None, "{topic} {reason} {went_on}");
                }
            }
        }
    }

    #[test]
    fn what_a_handler_published_elsewhere_does_not_count() {
        let published = vec![REQUEST.into(), "tool.v1.response.describe.self".into(), "a".into()];
        let report = Report { published, ..report(CALL, "trap", call()) };
        assert_eq!(text(&report), "x crashed: why");
    }

    #[test]
    fn nothing_is_done_about_the_topic_of_results() {
        for reason in FAILURES.into_iter().chain(["no-handler", "publish-denied"]) {
            for payload in [call(), result()] {
                assert_eq!(answer(&report("tool.v1.execute.result", reason, payload)), None);
            }
        }
    }

    #[test]
    fn without_a_call_id_there_is_nothing_to_answer() {
        for payload in [Value::Null, json!([]), json!("c1"), json!({"call_id": 1}), json!({"tool_name": "x"})] {
            assert_eq!(answer(&report(CALL, "trap", payload)), None);
        }
    }

    #[test]
    fn a_tool_that_may_not_publish_its_result_is_answered_for_with_the_row_to_add() {
        let expected =
            "x may not publish its result: add \"tool.v1.execute.*.result\" to [publish] in cap's Capsule.toml.";
        assert_eq!(text(&refused(RESULT, NO_ROW, call())), expected);
        assert_eq!(text(&refused(RESULT, "", call())), expected);
    }

    #[test]
    fn a_result_that_is_refused_for_what_it_is_is_answered_with_the_reason() {
        let report = refused(RESULT, "its payload has 2000000 bytes; 1048576 are allowed", call());
        let expected = "x could not publish its result: its payload has 2000000 bytes; 1048576 are allowed";
        assert_eq!(text(&report), expected);
    }

    #[test]
    fn a_router_that_may_not_pass_a_call_on_is_answered_for() {
        let expected = "cap may not pass calls of x on: add \"tool.v1.execute.*\" to [publish] in cap's Capsule.toml.";
        assert_eq!(text(&refused(CALL, NO_ROW, call())), expected);
    }

    #[test]
    fn a_tool_that_may_not_call_another_can_still_answer_its_own_call() {
        for topic in [REQUEST, "tool.v1.execute.y", "tool.v1.execute.y.result"] {
            assert_eq!(answer(&refused(topic, NO_ROW, call())), None, "{topic}");
        }
    }

    #[test]
    fn a_publish_that_was_refused_for_want_of_room_is_told_from_an_event_that_had_none() {
        for reason in ["queue-full", "loop"] {
            let about = |topic, payload| Report { refused: true, ..report(topic, reason, payload) };
            for (topic, payload) in [(REQUEST, call()), ("tool.v1.execute.y", call()), (CALL, result())] {
                assert_eq!(answer(&about(topic, payload)), None, "{topic} {reason}");
            }
            assert_eq!(text(&about(CALL, call())), text(&report(CALL, reason, call())));
            assert!(text(&about(RESULT, call())).starts_with("The result of x was lost"));
        }
    }

    #[test]
    fn a_tool_that_handles_the_result_of_another_leaves_that_call_alone() {
        for topic in [REQUEST, "tool.v1.execute.y", "tool.v1.execute.y.result", CALL, RESULT] {
            assert_eq!(answer(&refused(topic, NO_ROW, result())), None, "{topic}");
        }
    }
}
