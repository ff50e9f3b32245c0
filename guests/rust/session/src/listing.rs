//! Lists of conversations, and searches in them, page by page.

use astrid_sdk::prelude::*;
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::matching::Matches;
use crate::message::size;
use crate::request::Wanted;
use crate::store;
use crate::thread::Thread;

/// So many conversations are looked at for one page.
const SCANNED: usize = 200;
/// So much of messages a search reads, and then the rest of the conversation that it is in.
const SEARCHED_BYTES: usize = 8 << 20;

/// Conversations in the order of their ids, and what the next page begins after.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) entries: Vec<Value>,
    pub(crate) next_cursor: Option<String>,
}

/// A page of summaries, of at most `most_bytes` together (but one at least).
pub(crate) fn list(wanted: Wanted<'_>, most_bytes: usize) -> Result<Listed, SessionError> {
    let mut bytes = 0;
    scan(wanted, |session_id, thread| {
        let summary = thread.summary(session_id);
        let more = size(&summary);
        if bytes > 0 && bytes + more > most_bytes {
            return Step::Before;
        }
        bytes += more;
        Step::Entry(summary)
    })
}

/// A page of the conversations that a text is in, whatever its capitals. An empty text is in none.
pub(crate) fn search(query: &str, wanted: Wanted<'_>) -> Result<Listed, SessionError> {
    if query.is_empty() {
        return Ok(Listed::default());
    }
    let mut bytes = 0;
    scan(wanted, |session_id, thread| {
        if bytes > SEARCHED_BYTES {
            return Step::Before;
        }
        let mut matches = Matches::of(query);
        for page in &thread.pages {
            bytes += page.bytes;
            store::read_page(page).iter().flatten().for_each(|message| matches.look_at(message));
        }
        bytes += thread.messages.iter().map(size).sum::<usize>();
        thread.messages.iter().for_each(|message| matches.look_at(message));
        match matches.snippet() {
            None => Step::Nothing,
            Some(snippet) => Step::Entry(json!({
                "session_id": session_id,
                "title": thread.title,
                "snippet": snippet,
                "match_count": matches.count(),
                "updated_at": thread.updated_at,
            })),
        }
    })
}

enum Step {
    Entry(Value),
    Nothing,
    /// The page ends before this conversation.
    Before,
}

/// One that cannot be read is left out, and named in the log: it shall not keep the others from being found.
fn scan(wanted: Wanted<'_>, mut look: impl FnMut(&str, &Thread) -> Step) -> Result<Listed, SessionError> {
    let (ids, more) = store::ids(wanted.cursor, SCANNED)?;
    let mut listed = Listed::default();
    let mut last: Option<&String> = None;
    for id in &ids {
        let step = match store::read(id) {
            Ok(Some(thread)) if wanted.include_archived || !thread.archived => look(id, &thread),
            Ok(_) => Step::Nothing,
            Err(error) => {
                log::warn(error);
                Step::Nothing
            }
        };
        match step {
            Step::Entry(entry) => listed.entries.push(entry),
            Step::Nothing => {}
            Step::Before => break,
        }
        last = Some(id);
        if listed.entries.len() == wanted.limit {
            break;
        }
    }
    if more || last != ids.last() {
        listed.next_cursor = last.map(|id| store::cursor_after(id));
    }
    Ok(listed)
}
