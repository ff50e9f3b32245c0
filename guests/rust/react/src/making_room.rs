//! A turn that needs room before its model can answer: the model has summed up what was said before, or has not, or the
//! server refused the conversation as too long.

use astrid_sdk::prelude::*;

use crate::context::{self, room, summary};
use crate::ids::new_id;
use crate::turn::{Stop, Turn};
use crate::{ending, generation, session, store};

/// The model has summed up what was said before. An empty summary is none.
pub(crate) fn with_summary(mut turn: Turn, text: &str) {
    if text.trim().is_empty() {
        return without_summary(turn, "it is empty");
    }
    if let Some(pending) = turn.fitting.pending.take() {
        context::summed_up(&turn, &pending, text);
    }
    again(turn);
}

/// There will be no summary: what it was to stand for is left out.
pub(crate) fn without_summary(mut turn: Turn, why: &str) {
    log::warn(format!("session {:?} goes on without a summary of its beginning: {why}", turn.session_id));
    ending::stop_provider(&turn);
    if let Some(pending) = turn.fitting.pending.take() {
        context::left_out(&turn, summary::read(&turn.session_id), &pending);
    }
    again(turn);
}

/// The server refused the conversation as too long: send less, once.
pub(crate) fn refused(mut turn: Turn, why: &str) {
    if turn.fitting.refused > 0 {
        let text = in_vain(&turn, why);
        return ending::end(turn, Stop(text));
    }
    let sent = turn.fitting.sent;
    let window = context_window::window_told_by(why);
    if let Some(window) = window {
        room::learn_window(&turn, window);
    }
    // Its count may be another than the estimate: less is sent in any case.
    turn.fitting.most = Some(match window {
        Some(window) => (window / 4 * 3).min(sent / 10 * 8),
        None => sent / 10 * 6,
    });
    turn.fitting.refused += 1;
    turn.fitting.asked = false;
    log::info(format!("session {:?} is too long for the model and is shortened: {why}", turn.session_id));
    again(turn);
}

/// What a person can do when nothing of the conversation can be left out any more.
fn in_vain(turn: &Turn, why: &str) -> String {
    let (sent, fixed) = (turn.fitting.sent, turn.fitting.fixed);
    format!(
        "The conversation does not fit into the model's context, also after it was shortened to about {sent} tokens, of \
         which {fixed} are the system prompt and the tools. {why} Say it shorter, begin a new session, choose a model with \
         a larger context, or load fewer capsules. If the model takes more, or less, than is known here: `astrid-host \
         config set openai-compat.context_window TOKENS`."
    )
}

/// Ask the model again, in a request of its own.
fn again(mut turn: Turn) {
    let session_id = turn.session_id.clone();
    turn.request_id = new_id();
    let step = session::history(&session_id, &[])
        .and_then(|said| generation::request(&mut turn, &store::context(&session_id)?, said));
    ending::settle(turn, step);
}
