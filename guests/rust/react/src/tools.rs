//! Calls of tools, and their results.

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::calls::{Batch, ToolCall, ToolResult, prepare};
use crate::config::MAX_ITERATIONS;
use crate::ids::{new_call_id, new_id, now_ms};
use crate::stream::Answer;
use crate::turn::{Call, Phase, Stop, Turn};
use crate::{ending, generation, history, session, store};

/// `tool_execute_request`.
#[derive(Serialize)]
#[serde(tag = "type", rename = "tool_execute_request")]
struct Request<'a> {
    call_id: &'a str,
    tool_name: &'a str,
    arguments: &'a RawValue,
}

/// `tool_execute_result`. Of a content that is no text the JSON counts.
#[derive(Deserialize)]
pub(crate) struct Outcome {
    call_id: String,
    result: Content,
}

#[derive(Deserialize)]
struct Content {
    content: Value,
    #[serde(default)]
    is_error: bool,
}

/// Call all tools at once. Calls that are not to be run have their result already, and the others go on.
pub(crate) fn call(turn: &mut Turn, answer: Answer) -> Result<(), Stop> {
    let ready = prepare(answer.calls, answer.cut.as_ref(), new_id);
    let (calls, results): (Vec<ToolCall>, Vec<Option<ToolResult>>) = ready.into_iter().unzip();
    let ids: Option<Vec<String>> = calls.iter().map(|_| new_call_id()).collect();
    let ids = ids.ok_or_else(|| Stop::new("There are no random numbers for the ids of tool calls."))?;
    turn.calls = ids.into_iter().map(|id| Call { id, answered: false }).collect();
    turn.enter(Phase::Tools, now_ms());
    let batch = Batch { text: answer.text, calls, cut: answer.cut.map(|cut| cut.reason) };
    store::save_batch(&turn.request_id, &batch)?;
    for (n, result) in results.into_iter().enumerate() {
        match result {
            Some(result) => take(turn, n, &result)?,
            None => store::save_call(&turn.calls[n].id, &turn.session_id)?,
        }
    }
    store::save(turn)?; // before they are called: results may be there at once
    for (n, call) in batch.calls.iter().enumerate().filter(|(n, _)| !turn.calls[*n].answered).collect::<Vec<_>>() {
        let call_id = turn.calls[n].id.clone();
        let request = Request { call_id: &call_id, tool_name: &call.name, arguments: &call.arguments };
        if let Err(error) = ipc::publish_json("tool.v1.request.execute", &request) {
            log::error(format!("the tool {} could not be called: {error}", call.name));
            take(turn, n, &ToolResult::error(&call_id, format!("{} could not be called: {error}", call.name)))?;
            store::save(turn)?;
        }
    }
    go_on_when_complete(turn)
}

/// Keep the result of a call.
fn take(turn: &mut Turn, n: usize, result: &ToolResult) -> Result<(), Stop> {
    store::save_result(&turn.request_id, n, result)?;
    turn.calls[n].answered = true;
    store::forget_call(&turn.calls[n].id);
    Ok(())
}

/// Take the result of a call. What belongs to no call under way is left alone: results of all calls come here.
pub(crate) fn receive(outcome: Outcome) {
    let Outcome { call_id, result } = outcome;
    let Some(session_id) = store::session_of_call(&call_id) else { return };
    let Some(mut turn) = store::turn(&session_id).filter(|turn| turn.phase == Phase::Tools) else { return };
    let Some(n) = turn.calls.iter().position(|call| call.id == call_id && !call.answered) else { return };
    let content = match result.content {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let result = ToolResult { call_id, content, is_error: result.is_error };
    turn.enter(Phase::Tools, now_ms()); // the others have time as long as something comes
    let step =
        take(&mut turn, n, &result).and_then(|()| store::save(&turn)).and_then(|()| go_on_when_complete(&mut turn));
    ending::settle(turn, step);
}

/// Ask the model again when all results are there.
fn go_on_when_complete(turn: &mut Turn) -> Result<(), Stop> {
    if turn.calls.iter().any(|call| !call.answered) {
        return Ok(());
    }
    turn.iteration = turn.iteration.saturating_add(1);
    let most = MAX_ITERATIONS.get();
    if turn.iteration >= most {
        return Err(Stop(format!(
            "Stopped: the maximum of {most} iterations was reached before the model came to an answer (react.max_iterations)."
        )));
    }
    let lost = || Stop::new("The state of the conversation is gone. Try again.");
    let batch = store::batch(&turn.request_id).ok_or_else(lost)?;
    let messages = history::batch(&batch, &ending::results(turn));
    // A session that is only slow takes them all the same: a turn that ends here does not add them once more.
    store::forget_work(turn);
    turn.calls.clear();
    let said = session::history(&turn.session_id, &messages)?;
    turn.request_id = new_id();
    generation::request(turn, &store::context(&turn.session_id)?, said)
}
