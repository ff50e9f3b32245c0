//! Requests to the model, and what it answers.

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::config::{GENERATION_TIMEOUT, MAX_RESPONSE_BYTES};
use crate::context::{self, Fitting, Next};
use crate::ids::now_ms;
use crate::session::History;
use crate::store::{self, Context};
use crate::stream::{Answer, Cut, Piece, Stream, StreamEvent};
use crate::turn::{Ending, Phase, Stop, Turn};
use crate::{assembly, ending, history, making_room, session, tools};

/// Events that carry nothing that is kept are noted so often, as a sign of life.
const SIGN_OF_LIFE_MS: u64 = 1000;

/// `llm_request`.
#[derive(Serialize)]
#[serde(tag = "type", rename = "llm_request")]
struct Request<'a> {
    request_id: &'a str,
    model: &'a str,
    messages: Vec<Box<RawValue>>,
    tools: &'a RawValue,
    system: &'a str,
}

/// `llm_stream_event`.
#[derive(Deserialize)]
pub(crate) struct Event {
    request_id: String,
    event: StreamEvent,
}

/// `llm.v1.finish.<provider>`: an answer was cut off. It comes before the answer's `Done`.
#[derive(Deserialize)]
pub(crate) struct Finish {
    request_id: String,
    finish_reason: String,
    #[serde(default)]
    only_reasoning: bool,
}

/// Keep how an answer was cut off, until it is complete.
pub(crate) fn cut(finish: Finish) {
    let Finish { request_id, finish_reason: reason, only_reasoning } = finish;
    let Some(mut stream) = store::stream(&request_id) else { return };
    stream.cut = Some(Cut { reason, only_reasoning });
    if let Err(Stop(why)) = store::save_stream(&request_id, &stream) {
        log::warn(why);
    }
}

/// Ask the model: for a summary first, where what was said does not fit.
pub(crate) fn request(turn: &mut Turn, context: &Context, said: History) -> Result<(), Stop> {
    match context::next(turn, context, said) {
        Next::Answer(messages) => {
            let messages = assembly::prefixed(messages, context)?;
            ask(turn, messages, &context.tools, &context.system)
        }
        Next::Summary(question) => {
            let message = to_raw_value(&question).map_err(|error| Stop(error.to_string()))?;
            ask(turn, vec![message], &assembly::empty_list(), context::summary::SYSTEM)
        }
    }
}

fn ask(turn: &mut Turn, messages: Vec<Box<RawValue>>, tools: &RawValue, system: &str) -> Result<(), Stop> {
    let now = now_ms();
    let until = now.saturating_add(GENERATION_TIMEOUT.get_ms());
    let mut stream = Stream::new(&turn.session_id, now, until, MAX_RESPONSE_BYTES.get());
    stream.quiet = turn.fitting.pending.is_some();
    turn.enter(Phase::Streaming, now);
    store::save(turn)?;
    store::save_stream(&turn.request_id, &stream)?;
    let request = Request { request_id: &turn.request_id, model: &turn.model, messages, tools, system };
    ipc::publish_json(&turn.topic, &request)
        .map_err(|error| Stop(format!("The provider {} could not be asked: {error}", turn.provider())))
}

/// Take what a provider sends. What belongs to no answer under way is left alone.
pub(crate) fn receive(event: Event) {
    let Event { request_id, event } = event;
    let Some(mut stream) = store::stream(&request_id) else { return };
    let now = now_ms();
    let silent = now.saturating_sub(stream.last_ms);
    stream.last_ms = now;
    let kept = match event {
        StreamEvent::Done => return done(&request_id, stream),
        StreamEvent::Error(why) => return failed(&request_id, stream, &format!("LLM error: {why}")),
        StreamEvent::TextDelta(text) if text.is_empty() => Ok(()),
        StreamEvent::TextDelta(text) => {
            store::add_to_stream(&request_id, &mut stream, Piece::Text(text.clone())).map(|()| {
                if !stream.quiet {
                    ending::publish_delta(&stream.session_id, &text)
                }
            })
        }
        StreamEvent::ToolCallStart { id, name } => keep(&request_id, &mut stream, Piece::Start(id, name)),
        StreamEvent::ToolCallDelta { id, args_delta } => {
            keep(&request_id, &mut stream, Piece::Arguments(id, args_delta))
        }
        StreamEvent::ToolCallEnd { id } => keep(&request_id, &mut stream, Piece::End(id)),
        StreamEvent::Usage(usage) => {
            stream.input_tokens = usage.get("input_tokens").and_then(Value::as_u64);
            store::save_stream(&request_id, &stream)
        }
        StreamEvent::ReasoningDelta(_) if silent < SIGN_OF_LIFE_MS => Ok(()),
        StreamEvent::ReasoningDelta(_) => store::save_stream(&request_id, &stream),
    };
    let endless = stream.bytes > stream.max_bytes || now >= stream.until_ms;
    if endless || kept.is_err() {
        give_up(&request_id, stream, kept.err());
    }
}

fn keep(request_id: &str, stream: &mut Stream, piece: Piece) -> Result<(), Stop> {
    store::add_to_stream(request_id, stream, piece)
}

/// The turn that an answer belongs to. Without one nobody wants the answer, and it is forgotten.
fn turn_of(request_id: &str, stream: Stream) -> Option<(Turn, Stream)> {
    let turn = store::turn(&stream.session_id).filter(|turn| turn.awaits(Phase::Streaming, request_id));
    if turn.is_none() {
        store::take_answer(request_id, stream);
        return None;
    }
    turn.map(|turn| (turn, stream))
}

/// End a turn whose model does not come to an end, or whose answer cannot be kept.
fn give_up(request_id: &str, stream: Stream, why: Option<Stop>) {
    let Some((turn, stream)) = turn_of(request_id, stream) else { return };
    if turn.fitting.pending.is_some() {
        let why = why.map_or_else(|| "it is too long, or takes too long".to_owned(), |Stop(why)| why);
        return making_room::without_summary(turn, &why);
    }
    let too_long = || {
        let most = stream.max_bytes;
        Stop(format!("Stopped: the answer of the model has more than {most} bytes (react.max_response_bytes)."))
    };
    let is_long = stream.bytes > stream.max_bytes;
    let stop = why.unwrap_or_else(|| if is_long { too_long() } else { turn.endless() });
    ending::end(turn, stop);
}

/// End a turn whose provider failed. What it said before is kept.
pub(crate) fn failed(request_id: &str, stream: Stream, why: &str) {
    let Some((turn, stream)) = turn_of(request_id, stream) else { return };
    if turn.fitting.pending.is_some() {
        return making_room::without_summary(turn, why);
    }
    let said = stream.bytes > 0;
    ending::keep_text(&turn, store::take_answer(request_id, stream).text);
    if context_window::is_told_by(why) && !said {
        return making_room::refused(turn, why);
    }
    ending::end(turn, Stop::new(why));
}

/// The answer is complete: it is the final one, or tools are to be called.
fn done(request_id: &str, stream: Stream) {
    let Some((mut turn, stream)) = turn_of(request_id, stream) else { return };
    if let Some(counted) = stream.input_tokens {
        context::room::learn_count(&turn, counted);
    }
    let answer = store::take_answer(request_id, stream);
    if turn.fitting.pending.is_some() {
        let spoilt = answer.cut.as_ref().is_some_and(Cut::spoils_all);
        return making_room::with_summary(turn, if spoilt { "" } else { &answer.text });
    }
    turn.fitting = Fitting::default();
    if answer.calls.is_empty() {
        let ending = final_answer(&turn, answer);
        return ending::end(turn, ending);
    }
    let step = tools::call(&mut turn, answer);
    ending::settle(turn, step);
}

/// A final answer is given also when it could not be kept, and as far as it came when it was cut off.
fn final_answer(turn: &Turn, answer: Answer) -> Ending {
    let cut = answer.cut.as_ref().map(|cut| cut.reason.as_str());
    if let Some(cut) = cut {
        ending::tell_cut(&turn.session_id, cut);
    }
    if answer.text.trim().is_empty() {
        let empty = || "The model returned an empty answer. Try again, or say it differently.".into();
        return Stop(answer.cut.as_ref().map_or_else(empty, Cut::told)).into();
    }
    if let Err(Stop(why)) = session::add(&turn.session_id, &[history::cut(&answer.text, cut)]) {
        log::error(format!("the answer in session {:?} is not in its history: {why}", turn.session_id));
    }
    Ending::Answered(answer.text)
}
