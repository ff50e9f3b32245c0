//! What of a conversation goes to the model. The session keeps all of it; what is sent is derived anew for each request, so
//! that it fits into the model's context: old results of tools are shortened first, then the model sums up the oldest
//! exchanges, once for many turns. Where that fails they are left out, with a note in their place: making room never ends a
//! turn.

pub(crate) mod fitting;
pub(crate) mod message;
pub(crate) mod room;
pub(crate) mod summary;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::SUMMARIES;
use crate::session::History;
use crate::store::Context;
use crate::turn::Turn;
use crate::{compaction, history, model};
use message::{Kind, Message};
use room::Room;
use summary::Summary;

/// What a turn knows of the room for its next request.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Fitting {
    /// The summary that the model is asked for instead of an answer.
    pub(crate) pending: Option<Pending>,
    /// Whether a summary was asked for already.
    pub(crate) asked: bool,
    /// How often the server refused the conversation as too long, and how many tokens it may have since then.
    pub(crate) refused: u32,
    pub(crate) most: Option<u64>,
    /// How many tokens the last request was estimated to have, without any correction, and with it.
    pub(crate) estimated: u64,
    pub(crate) sent: u64,
    /// How many of them were for what is in every request.
    pub(crate) fixed: u64,
}

/// A summary that is to be made.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Pending {
    /// It stands for the messages before that number, so many of which are in none yet.
    pub(crate) until: u64,
    pub(crate) messages: u64,
    pub(crate) most_tokens: u64,
}

/// What is to be asked.
pub(crate) enum Next {
    /// The conversation, as it goes to the model.
    Answer(Vec<Box<RawValue>>),
    /// A summary, first.
    Summary(Value),
}

/// The numbers of messages, counted over all that a conversation ever had. None: somebody else than the session gave them.
struct Numbers {
    first: Option<u64>,
}

impl Numbers {
    fn of(&self, at: usize) -> Option<u64> {
        self.first.map(|first| first + at as u64)
    }
}

/// What the next request is. Notes in the turn what it is estimated to have.
pub(crate) fn next(turn: &mut Turn, context: &Context, said: History) -> Next {
    let room = Room::of(turn, model::limits());
    let fixed = context_window::tokens(&context.system)
        + context_window::tokens(context.tools.get())
        + context_window::tokens(&context.prefix)
        + 20;
    turn.fitting.fixed = room.corrected(fixed);
    let summary = summary::read(&turn.session_id);
    let (mut messages, numbers) = current(said, summary.as_ref());
    let most = room.tokens.map(|tokens| {
        let tokens = room.uncorrected(tokens);
        tokens.saturating_sub(fixed).max(tokens / 8)
    });
    let told = summary.as_ref().map(|summary| summary.told(&turn.session_id)).unwrap_or_default();
    let Some(most) = most else { return answer(turn, &room, fixed, told, messages) };
    let left = most.saturating_sub(context_window::tokens(&told));
    if fitting::total(&messages) > left {
        let raw = messages.iter().map(|message| message.raw.clone()).collect();
        if let Some(shorter) = compaction::by_engine(&turn.session_id, raw) {
            // Whoever shortens them knows what is missing, and is asked again next time.
            messages = shorter.into_iter().map(Message::new).collect();
            make_room(&mut messages, left, &Numbers { first: None }, None);
            return answer(turn, &room, fixed, told, messages);
        }
    }
    let cut = make_room(&mut messages, left, &numbers, Some(most));
    let Some((until, cut)) = cut else { return answer(turn, &room, fixed, told, messages) };
    let pending = Pending { until, messages: cut.len() as u64, most_tokens: (most / 8).clamp(60, 2000) };
    let question = (SUMMARIES.get() > 0 && !turn.fitting.asked)
        .then(|| summary::question(summary.as_ref(), &cut, &room, pending.most_tokens / 2))
        .flatten();
    if let Some(question) = question {
        let tokens = context_window::tokens(summary::SYSTEM) + context_window::tokens(&question.to_string());
        (turn.fitting.estimated, turn.fitting.sent) = (tokens, room.corrected(tokens));
        turn.fitting.pending = Some(pending);
        turn.fitting.asked = true;
        return Next::Summary(question);
    }
    let summary = left_out(turn, summary, &pending);
    answer(turn, &room, fixed, summary.told(&turn.session_id), messages)
}

/// The messages that no summary stands for, and what the user wants of the turn that runs.
fn current(said: History, summary: Option<&Summary>) -> (Vec<Message>, Numbers) {
    let messages: Vec<Message> = said.messages.into_iter().map(Message::new).collect();
    let first = said.total.map(|total| total.saturating_sub(messages.len() as u64));
    let until = summary.map_or(0, |summary| summary.until);
    let known = first.map_or(0, |first| usize::try_from(until.saturating_sub(first)).unwrap_or(0)).min(messages.len());
    let running = fitting::running(&messages);
    let kept = fitting::after(&messages, known);
    // What is kept of the turn that runs is numbered from its end.
    let first = first.map(|first| first + known as u64 - u64::from(known > running && !messages.is_empty()));
    (kept, Numbers { first })
}

/// Shorten messages until they have at most `left` tokens. What is cut off is returned, with the number of the first message
/// after it.
fn make_room(
    messages: &mut Vec<Message>,
    left: u64,
    numbers: &Numbers,
    most: Option<u64>,
) -> Option<(u64, Vec<Message>)> {
    fitting::shorten_old_results(messages, left);
    let mut cut_off = None;
    if fitting::total(messages) > left {
        // Half of the room stays free, so that this is not done again with the next request.
        let at = fitting::cut(messages, most.map_or(left, |most| (most / 2).min(left)));
        if at > 0 {
            let running = fitting::running(messages);
            let gone = messages[..at].iter().enumerate().filter(|(n, _)| at <= running || *n != running);
            let gone: Vec<Message> = gone.map(|(_, message)| message.clone()).collect();
            cut_off = numbers.of(at).map(|until| (until, gone));
            *messages = fitting::after(messages, at);
        }
    }
    fitting::squeeze(messages, left);
    cut_off
}

/// The messages as the model gets them.
fn answer(turn: &mut Turn, room: &Room, fixed: u64, told: String, mut messages: Vec<Message>) -> Next {
    if !told.is_empty() {
        match messages.first().map(|message| message.kind) {
            Some(Kind::User) => messages[0] = messages[0].clone().prefixed(&told),
            _ => messages.splice(..0, Message::of(&history::user(&told))).for_each(drop),
        }
    }
    let tokens = fixed + fitting::total(&messages);
    (turn.fitting.estimated, turn.fitting.sent) = (tokens, room.corrected(tokens));
    Next::Answer(messages.into_iter().map(|message| message.raw).collect())
}

/// A summary that could not be made: what it was to stand for is left out.
pub(crate) fn left_out(turn: &Turn, summary: Option<Summary>, pending: &Pending) -> Summary {
    let summary = summary.unwrap_or_default().without(pending.until, pending.messages);
    keep(turn, &summary);
    summary
}

/// The model's summary.
pub(crate) fn summed_up(turn: &Turn, pending: &Pending, text: &str) {
    let summary = summary::read(&turn.session_id).unwrap_or_default();
    keep(turn, &summary.with(pending.until, text, pending.most_tokens));
}

fn keep(turn: &Turn, summary: &Summary) {
    if let Err(why) = summary::keep(&turn.session_id, summary) {
        astrid_sdk::prelude::log::warn(why.0);
    }
}
