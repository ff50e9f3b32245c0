//! What is kept between events, per principal:
//!
//! | key | value |
//! |---|---|
//! | `react.turn.<session>` | the turn that runs there; none when nothing does |
//! | `react.context.<session>` | what the turn sends with each request: system prompt, tools, prefix |
//! | `react.queue.<session>` | prompts that wait for the turn to end |
//! | `react.req2sess.<request>` | the answer under way, with its session; none when it is complete or no longer wanted |
//! | `react.work.<request>.text.<n>` | what the model said before |
//! | `react.work.<request>.calls`, `….result.<n>` | the calls it made, and their results |
//! | `react.call2sess.<call>` | the session of a call without a result |
//! | `react.summary.<session>` | what stands for the beginning of a conversation that does not fit |
//! | `react.windows` | what servers said of the contexts of their models |
//! | `react.host` | the host that runs, or ran |

use astrid_sdk::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::calls::{Batch, ToolResult};
use crate::prompt::Prompt;
use crate::stream::{Answer, Piece, Stream};
use crate::turn::{Stop, Turn};

const TURN: &str = "react.turn.";
const KEY_BYTES: usize = 256;

/// What is sent with each request of a turn.
#[derive(Deserialize, Serialize)]
pub(crate) struct Context {
    pub(crate) system: String,
    pub(crate) tools: Box<RawValue>,
    pub(crate) prefix: String,
    /// How many messages the prompt builder was given, and of how many.
    #[serde(default)]
    pub(crate) messages: usize,
    #[serde(default)]
    pub(crate) total: Option<u64>,
}

/// A turn that cannot go on because the store does not serve.
fn failed(error: SysError) -> Stop {
    Stop(format!("The state of the conversation could not be kept: {error}"))
}

/// A value, None when there is none or it cannot be read. The latter is said in the log.
fn read<T: DeserializeOwned>(key: &str) -> Option<T> {
    kv::get_json_opt(key).unwrap_or_else(|error| {
        log::error(format!("{key} cannot be read: {error}"));
        None
    })
}

fn write<T: Serialize>(key: &str, value: &T) -> Result<(), Stop> {
    kv::set_json(key, value).map_err(failed)
}

/// Remove a key. What stays because of a failure does no harm: every reader checks whom it belongs to.
fn remove(key: &str) {
    if let Err(error) = kv::delete(key) {
        log::warn(format!("{key} could not be removed: {error}"));
    }
}

// Turns.

fn turn_key(session_id: &str) -> String {
    format!("{TURN}{session_id}")
}

fn context_key(session_id: &str) -> String {
    format!("react.context.{session_id}")
}

/// The turn that runs in a session. One of another version of this capsule is given up.
pub(crate) fn turn(session_id: &str) -> Option<Turn> {
    let turn = read::<Turn>(&turn_key(session_id))?;
    if turn.is_known() && turn.session_id == session_id {
        return Some(turn);
    }
    log::warn(format!("the turn of session {session_id:?} is of another version of react"));
    None
}

pub(crate) fn save(turn: &Turn) -> Result<(), Stop> {
    write(&turn_key(&turn.session_id), turn)
}

/// The sessions in which a turn runs.
pub(crate) fn sessions() -> Vec<String> {
    let mut sessions = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        match kv::list_keys_page(TURN, cursor.as_deref(), 0) {
            Ok(page) => {
                sessions.extend(page.keys.iter().filter_map(|key| key.strip_prefix(TURN)).map(str::to_owned));
                cursor = page.next_cursor;
            }
            Err(error) => {
                log::error(format!("the turns cannot be listed: {error}"));
                cursor = None;
            }
        }
        if cursor.is_none() {
            return sessions;
        }
    }
}

/// Whether something stands where the turn of a session is kept, be it readable or not.
pub(crate) fn has_turn(session_id: &str) -> bool {
    kv::get_bytes_opt(&turn_key(session_id)).is_ok_and(|value| value.is_some())
}

pub(crate) fn forget_turn(session_id: &str) {
    remove(&turn_key(session_id));
    remove(&context_key(session_id));
}

pub(crate) fn context(session_id: &str) -> Result<Context, Stop> {
    read(&context_key(session_id)).ok_or_else(|| Stop::new("The state of the conversation is gone. Try again."))
}

pub(crate) fn save_context(session_id: &str, context: &Context) -> Result<(), Stop> {
    write(&context_key(session_id), context)
}

/// Remove what a turn kept beside itself.
pub(crate) fn forget_work(turn: &Turn) {
    forget_request(&turn.request_id);
    for call in turn.calls.iter().filter(|call| !call.answered) {
        forget_call(&call.id);
    }
}

// Prompts that wait.

fn queue_key(session_id: &str) -> String {
    format!("react.queue.{session_id}")
}

pub(crate) fn queue(session_id: &str) -> Vec<Prompt> {
    read(&queue_key(session_id)).unwrap_or_default()
}

/// Forget prompts that wait and cannot be read, if there are such; whether there were.
pub(crate) fn drop_unreadable_queue(session_id: &str) -> bool {
    let key = queue_key(session_id);
    let unreadable =
        kv::get_json_opt::<Vec<Prompt>>(&key).is_err() && kv::get_bytes_opt(&key).is_ok_and(|kept| kept.is_some());
    if unreadable {
        remove(&key);
    }
    unreadable
}

pub(crate) fn save_queue(session_id: &str, prompts: &[Prompt]) -> Result<(), Stop> {
    if prompts.is_empty() {
        remove(&queue_key(session_id));
        return Ok(());
    }
    write(&queue_key(session_id), &prompts)
}

// Requests to a model.

fn stream_key(request_id: &str) -> String {
    format!("react.req2sess.{request_id}")
}

fn work_key(request_id: &str, what: &str) -> String {
    format!("react.work.{request_id}.{what}")
}

pub(crate) fn stream(request_id: &str) -> Option<Stream> {
    if request_id.len() > KEY_BYTES / 2 {
        return None;
    }
    read(&stream_key(request_id))
}

pub(crate) fn save_stream(request_id: &str, stream: &Stream) -> Result<(), Stop> {
    write(&stream_key(request_id), stream)
}

/// Keep a piece of an answer.
pub(crate) fn add_to_stream(request_id: &str, stream: &mut Stream, piece: Piece) -> Result<(), Stop> {
    if let Some(sealed) = stream.push(piece) {
        write(&work_key(request_id, &format!("text.{}", stream.sealed)), &sealed)?;
        stream.sealed += 1;
    }
    save_stream(request_id, stream)
}

/// End an answer, and give all that was said.
pub(crate) fn take_answer(request_id: &str, stream: Stream) -> Answer {
    let mut answer = Answer { cut: stream.cut, ..Answer::default() };
    let pieces = (0..stream.sealed).map_while(|n| read(&work_key(request_id, &format!("text.{n}"))));
    pieces.for_each(|pieces| answer.add(pieces));
    answer.add(stream.tail);
    forget_request(request_id);
    answer
}

fn forget_request(request_id: &str) {
    remove(&stream_key(request_id));
    let prefix = work_key(request_id, "");
    if let Err(error) = kv::clear_prefix(&prefix) {
        log::warn(format!("{prefix}* could not be removed: {error}"));
    }
}

// Calls of tools.

fn call_key(call_id: &str) -> String {
    format!("react.call2sess.{call_id}")
}

pub(crate) fn session_of_call(call_id: &str) -> Option<String> {
    if call_id.len() > KEY_BYTES / 2 {
        return None;
    }
    read(&call_key(call_id))
}

pub(crate) fn save_call(call_id: &str, session_id: &str) -> Result<(), Stop> {
    write(&call_key(call_id), &session_id)
}

pub(crate) fn forget_call(call_id: &str) {
    remove(&call_key(call_id));
}

pub(crate) fn save_batch(request_id: &str, batch: &Batch) -> Result<(), Stop> {
    write(&work_key(request_id, "calls"), batch)
}

pub(crate) fn batch(request_id: &str) -> Option<Batch> {
    read(&work_key(request_id, "calls"))
}

pub(crate) fn save_result(request_id: &str, n: usize, result: &ToolResult) -> Result<(), Stop> {
    write(&work_key(request_id, &format!("result.{n}")), result)
}

pub(crate) fn result(request_id: &str, n: usize) -> Option<ToolResult> {
    read(&work_key(request_id, &format!("result.{n}")))
}

/// Keep something that makes the next turns faster. It may as well be lost.
pub(crate) fn remember(key: &str, value: &str) {
    let done = if value.is_empty() { kv::delete(key) } else { kv::set_bytes(key, value.as_bytes()) };
    if let Err(error) = done {
        log::warn(format!("{key} could not be kept: {error}"));
    }
}

pub(crate) fn remembered(key: &str) -> String {
    match kv::get_bytes(key) {
        Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
        Err(error) => {
            log::warn(format!("{key} cannot be read: {error}"));
            String::new()
        }
    }
}
