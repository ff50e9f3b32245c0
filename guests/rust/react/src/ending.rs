//! How turns end: each in exactly one final answer, with whatever still works for it told to stop.

use astrid_sdk::prelude::*;
use serde_json::json;

use crate::calls::ToolResult;
use crate::config::MAX_RESULT_BYTES;
use crate::history;
use crate::ids::{instance, now_ms};
use crate::turn::{Ending, Limits, Phase, Stop, Turn};
use crate::{making_room, prompt, session, store};

/// Received by whoever wants to know how a turn ended.
const FAILED: &str = "agent.v1.event.turn_failed";
const CUT: &str = "agent.v1.event.turn_cut";
/// A final answer that cannot be published is tried again with each tick of the watchdog, so often.
const ATTEMPTS: u32 = 12;
/// So far ahead of now a turn may have gone on, where clocks differ.
const CLOCKS_DIFFER_MS: u64 = 1000;
/// A text of so many bytes fits into an event, however it is escaped.
const SHORT_BYTES: usize = 160 * 1024;

fn publish(topic: &str, session_id: &str, text: &str, is_final: bool) -> Result<(), SysError> {
    let event = json!({"type": "agent_response", "text": text, "is_final": is_final, "session_id": session_id});
    ipc::publish_json(topic, &event)
}

/// Pass on a part of an answer. What is lost of it stands in the final answer.
pub(crate) fn publish_delta(session_id: &str, text: &str) {
    if let Err(error) = publish("agent.v1.stream.delta", session_id, text, false) {
        log::warn(format!("a part of the answer in session {session_id:?} could not be shown: {error}"));
    }
}

/// Answer a prompt for which no turn was begun, because something failed.
pub(crate) fn refuse(session_id: &str, why: &str) {
    tell_failure(session_id, why);
    answer(session_id, why);
}

/// Tell that the final answer that comes next is none of the model's, for programs: a person reads it there.
fn tell_failure(session_id: &str, why: &str) {
    if let Err(error) = ipc::publish_json(FAILED, &json!({"session_id": session_id, "reason": why})) {
        log::warn(format!("that the turn in session {session_id:?} failed could not be told: {error}"));
    }
}

/// Answer a prompt for which no turn was begun.
fn answer(session_id: &str, text: &str) {
    if let Err(error) = publish_final(session_id, text) {
        log::error(format!("a prompt in session {session_id:?} is left without an answer, {text:?}: {error}"));
    }
}

/// Go on with a turn after a step of it, or end it.
pub(crate) fn settle(turn: Turn, step: Result<(), Stop>) {
    if let Err(stop) = step {
        end(turn, stop);
    }
}

/// End a turn and begin the next that waits in its session.
pub(crate) fn end(turn: Turn, ending: impl Into<Ending>) {
    let session_id = turn.session_id.clone();
    close(turn, ending);
    prompt::go_on(&session_id);
}

/// End a turn: stop what works for it, keep what was done, answer.
pub(crate) fn close(mut turn: Turn, ending: impl Into<Ending>) {
    match turn.phase {
        Phase::Streaming => stop_provider(&turn),
        Phase::Tools => stop_tools(&turn),
        Phase::Identity | Phase::PromptBuild | Phase::Answering => {}
    }
    store::forget_work(&turn);
    turn.calls.clear();
    turn.enter(Phase::Answering, now_ms());
    turn.answer = Some(match ending.into() {
        Ending::Answered(text) => text,
        Ending::Cancelled => "Cancelled.".into(),
        Ending::Failed(why) => {
            tell_failure(&turn.session_id, &why);
            why
        }
    });
    deliver(turn);
}

/// Publish the final answer of a turn and forget the turn; keep it when that fails.
fn deliver(mut turn: Turn) {
    let text = turn.answer.as_deref().unwrap_or("The answer to this prompt is lost. Try again.");
    let Err(error) = publish_final(&turn.session_id, text) else {
        return store::forget_turn(&turn.session_id);
    };
    turn.attempts = turn.attempts.saturating_add(1);
    let what = format!("the final answer in session {:?} could not be published", turn.session_id);
    if turn.attempts >= ATTEMPTS {
        log::error(format!("{what} in {ATTEMPTS} attempts and is given up, {text:?}: {error}"));
        return store::forget_turn(&turn.session_id);
    }
    log::warn(format!("{what} and will be tried again: {error}"));
    if let Err(Stop(why)) = store::save(&turn) {
        log::error(format!("{what}, nor kept, {:?}: {why}", turn.answer));
    }
}

/// Publish a final answer; only its beginning when it may be too long for an event.
fn publish_final(session_id: &str, text: &str) -> Result<(), SysError> {
    publish("agent.v1.response", session_id, text, true).or_else(|error| {
        if text.len() <= SHORT_BYTES {
            return Err(error);
        }
        log::warn(format!("an answer of {} bytes is shortened: {error}", text.len()));
        let start = &text[..text.floor_char_boundary(SHORT_BYTES)];
        publish("agent.v1.response", session_id, &format!("{start}\n[The beginning of {} bytes.]", text.len()), true)
    })
}

/// Tell the provider that nobody listens any more, and keep what was said so far. An answer that is complete or has
/// failed is not under way.
pub(crate) fn stop_provider(turn: &Turn) {
    let Some(stream) = store::stream(&turn.request_id) else { return };
    let topic = format!("llm.v1.request.cancel.{}", turn.provider());
    if let Err(error) = ipc::publish_json(&topic, &json!({ "request_id": turn.request_id })) {
        log::warn(format!("the provider {} could not be told to stop: {error}", turn.provider()));
    }
    let quiet = stream.quiet;
    let said = store::take_answer(&turn.request_id, stream).text;
    if !quiet {
        keep_text(turn, said);
    }
}

/// Tell that the final answer that comes next was cut off, for programs and for who shows it to a person.
pub(crate) fn tell_cut(session_id: &str, cut: &str) {
    if let Err(error) = ipc::publish_json(CUT, &json!({"session_id": session_id, "cut": cut})) {
        log::warn(format!("that the answer in session {session_id:?} was cut off could not be told: {error}"));
    }
}

/// Keep what was said of an answer that will not be complete.
pub(crate) fn keep_text(turn: &Turn, text: String) {
    if !text.trim().is_empty() {
        session::append(&turn.session_id, vec![history::assistant(&text)]);
    }
}

/// Tell the tools that still work to stop, and keep what was called and done: it may have changed something.
fn stop_tools(turn: &Turn) {
    let outstanding = turn.outstanding();
    if !outstanding.is_empty() {
        let cancel = json!({"type": "tool_cancel_request", "call_ids": outstanding});
        if let Err(error) = ipc::publish_json("tool.v1.request.cancel", &cancel) {
            log::warn(format!("{} tools could not be told to stop: {error}", outstanding.len()));
        }
    }
    if let Some(batch) = store::batch(&turn.request_id) {
        session::append(&turn.session_id, history::batch(&batch, &results(turn)));
    }
}

/// The results of a turn's calls, in their order. A call that has none was given up.
pub(crate) fn results(turn: &Turn) -> Vec<ToolResult> {
    let room = history::room(turn.calls.len(), MAX_RESULT_BYTES.get());
    let given_up = |id: &str| ToolResult::error(id, history::GIVEN_UP);
    let result = |(n, id): (usize, &str)| store::result(&turn.request_id, n).unwrap_or_else(|| given_up(id)).cut(room);
    turn.calls.iter().map(|call| call.id.as_str()).enumerate().map(result).collect()
}

/// End the turn that runs in a session, if one does.
pub(crate) fn cancel(session_id: &str) {
    if let Some(turn) = store::turn(session_id) {
        if turn.phase == Phase::Answering {
            return retry(turn);
        }
        log::info(format!("the turn in session {session_id:?} is cancelled"));
        end(turn, Ending::Cancelled);
    }
}

/// End the turn of a session if it has waited too long, its final answer is still due, or it cannot be read.
pub(crate) fn check(session_id: &str) {
    if store::drop_unreadable_queue(session_id) {
        refuse(session_id, "What waited here for the turn before it cannot be read any more. Say it again.");
    }
    let Some(mut turn) = store::turn(session_id) else { return give_up_unreadable(session_id) };
    if turn.phase == Phase::Answering {
        return retry(turn);
    }
    let now = now_ms();
    if turn.entered_ms > now.saturating_add(CLOCKS_DIFFER_MS) {
        turn.entered_ms = now; // its time would never be over: the clock was wrong then
        if let Err(Stop(why)) = store::save(&turn) {
            log::warn(why);
        }
    }
    let stream = match turn.phase {
        Phase::Streaming => store::stream(&turn.request_id)
            .filter(|stream| stream.last_ms <= now.saturating_add(CLOCKS_DIFFER_MS))
            .map(|stream| (stream.last_ms, stream.until_ms)),
        _ => None,
    };
    if let Some(stop) = turn.overdue(now, &Limits::configured(), stream) {
        if turn.fitting.pending.is_some() {
            return making_room::without_summary(turn, &stop.0);
        }
        log::warn(format!("the turn in session {session_id:?} ends: {}", stop.0));
        end(turn, stop);
    }
}

fn retry(turn: Turn) {
    let session_id = turn.session_id.clone();
    deliver(turn);
    prompt::go_on(&session_id);
}

/// A turn of another version of this capsule cannot go on.
fn give_up_unreadable(session_id: &str) {
    if store::has_turn(session_id) {
        store::forget_turn(session_id);
        refuse(session_id, "The agent was replaced during this turn. Try again.");
        prompt::go_on(session_id);
    }
}

/// Check all turns of the principal.
pub(crate) fn check_all() {
    for session_id in store::sessions() {
        check(&session_id);
    }
}

/// Events were lost: turns that may have needed one of them cannot end by themselves.
pub(crate) fn end_all_that_receive() {
    for session_id in store::sessions() {
        if let Some(turn) =
            store::turn(&session_id).filter(|turn| matches!(turn.phase, Phase::Streaming | Phase::Tools))
        {
            let why = "Response interrupted: the event bus was too full and lost a part of it. Try again.";
            if turn.fitting.pending.is_some() {
                making_room::without_summary(turn, why);
                continue;
            }
            end(turn, Stop::new(why));
        }
    }
}

/// This capsule is about to be unloaded: nobody would end these turns, nor those of the prompts that wait.
pub(crate) fn end_everything() {
    for session_id in store::sessions() {
        let text = "The agent was unloaded before it had answered.";
        let waiting = store::queue(&session_id);
        if let Err(Stop(why)) = store::save_queue(&session_id, &[]) {
            log::warn(why);
        }
        match store::turn(&session_id) {
            Some(turn) => close(turn, Stop::new(text)),
            None => give_up_unreadable(&session_id),
        }
        for _ in waiting {
            refuse(&session_id, text);
        }
    }
}

/// Another host than before is there: nobody works any more for turns that were begun under the one before.
pub(crate) fn end_what_the_host_left() {
    for session_id in store::sessions() {
        match store::turn(&session_id) {
            Some(turn) if turn.begun_by == instance() => {}
            Some(turn) if turn.phase == Phase::Answering => retry(turn),
            Some(turn) => end(turn, Stop::new("The host stopped during this turn.")),
            None => give_up_unreadable(&session_id),
        }
    }
}

/// Somebody was asked whether tools may run, and answered: their time begins again.
pub(crate) fn give_tools_time() {
    for session_id in store::sessions() {
        if let Some(mut turn) = store::turn(&session_id).filter(|turn| turn.phase == Phase::Tools) {
            turn.entered_ms = now_ms();
            if let Err(Stop(why)) = store::save(&turn) {
                log::warn(why);
            }
        }
    }
}

/// Begin a new session in place of one. A turn that runs in the old one ends.
pub(crate) fn clear(session_id: &str) -> Result<(), SysError> {
    let waiting = store::queue(session_id);
    if let Err(Stop(why)) = store::save_queue(session_id, &[]) {
        log::warn(why);
    }
    cancel(session_id);
    for _ in waiting {
        answer(session_id, "The session was cleared before this prompt was answered.");
    }
    let new = session::clear(session_id).map_err(SysError::ApiError)?;
    ipc::publish_json("agent.v1.session_changed", &json!({"old_session_id": session_id, "new_session_id": new}))
}
