//! Where conversations are kept: a thread under `session.data.<id>`, and each of its pages under a key of its own.
//!
//! A page is written before the thread that names it, never changed, and deleted after the thread names it no more: so
//! a thread that is read names pages that are there, and one compare-and-swap decides a change.

use astrid_sdk::prelude::*;
use serde_json::Value;

use crate::error::SessionError;
use crate::thread::{Page, SCHEMA, Thread, Turned};

const THREADS: &str = "session.data.";
const PAGES: &str = "session.page.";
const ATTEMPTS: usize = 8;
/// So many keys the store lists at once.
const COUNTED: usize = 1024;

/// A conversation, None where there is none of this id.
pub(crate) fn read(session_id: &str) -> Result<Option<Thread>, SessionError> {
    Ok(read_with_bytes(session_id)?.map(|(thread, _)| thread))
}

fn read_with_bytes(session_id: &str) -> Result<Option<(Thread, Vec<u8>)>, SessionError> {
    let Some(bytes) = kv::get_bytes_opt(&thread_key(session_id))? else {
        return Ok(None);
    };
    let thread: Thread = serde_json::from_slice(&bytes).map_err(|error| SessionError::unreadable(session_id, error))?;
    if thread.schema_version > SCHEMA {
        let version = thread.schema_version;
        let why = format!("it was written by a newer version (schema {version}; {SCHEMA} is known here)");
        return Err(SessionError::unreadable(session_id, why));
    }
    Ok(Some((thread, bytes)))
}

/// The messages of a page. None, and a line in the log, where it cannot be read.
pub(crate) fn read_page(page: &Page) -> Option<Vec<Value>> {
    let read = || -> Result<Vec<Value>, SessionError> {
        match kv::get_bytes_opt(&page_key(page))? {
            Some(bytes) => Ok(serde_json::from_slice(&bytes)?),
            None => Err(SessionError::new("it is not there")),
        }
    };
    match read() {
        Ok(messages) => Some(messages),
        Err(error) => {
            log::error(format!("The page {} of a session, with {} messages, is lost: {error}", page.id, page.messages));
            None
        }
    }
}

/// Change a conversation, and make it first where there is none. Returns what it is then.
///
/// `change` runs again, on what there is by then, when somebody else changed it meanwhile. Fails after eight times, or
/// when `change` does; nothing is changed then.
pub(crate) fn change(session_id: &str, change: impl Fn(&mut Thread) -> Turned) -> Result<Thread, SessionError> {
    for _ in 0..ATTEMPTS {
        let (mut thread, before) = match read_with_bytes(session_id)? {
            Some((thread, bytes)) => (thread, Some(bytes)),
            None => (Thread::default(), None),
        };
        let turned = change(&mut thread);
        if swap(session_id, &mut thread, before.as_deref(), turned)? {
            return Ok(thread);
        }
    }
    Err(SessionError::contended(session_id, ATTEMPTS))
}

/// Like `change`, but None where there is no conversation of this id: none is made.
pub(crate) fn change_existing(
    session_id: &str,
    change: impl Fn(&mut Thread) -> Result<(), SessionError>,
) -> Result<Option<Thread>, SessionError> {
    for _ in 0..ATTEMPTS {
        let Some((mut thread, before)) = read_with_bytes(session_id)? else {
            return Ok(None);
        };
        change(&mut thread)?;
        if swap(session_id, &mut thread, Some(&before), Turned::default())? {
            return Ok(Some(thread));
        }
    }
    Err(SessionError::contended(session_id, ATTEMPTS))
}

/// Keep a new conversation. Fails where there is one of this id.
pub(crate) fn create(session_id: &str, mut thread: Thread) -> Result<Thread, SessionError> {
    match swap(session_id, &mut thread, None, Turned::default())? {
        true => Ok(thread),
        false => Err(SessionError::new(format!("There is a session {session_id:?} already."))),
    }
}

/// Whether the thread was still what it had been, and is now what it is to be.
fn swap(session_id: &str, thread: &mut Thread, before: Option<&[u8]>, turned: Turned) -> Result<bool, SessionError> {
    thread.schema_version = SCHEMA;
    for (page, messages) in &turned.written {
        kv::set_bytes(&page_key(page), &serde_json::to_vec(messages)?)?;
    }
    let swapped = kv::cas(&thread_key(session_id), before, &serde_json::to_vec(thread)?);
    if matches!(swapped, Ok(true)) {
        if !turned.dropped.is_empty() {
            log::warn(format!("The session {session_id:?} is too long: its oldest messages are dropped."));
        }
        turned.dropped.iter().for_each(delete_page);
    } else {
        turned.written.iter().for_each(|(page, _)| delete_page(page));
    }
    Ok(swapped?)
}

/// Whether there was a conversation of this id. It is gone then, with all its messages, even if it could not be read.
pub(crate) fn delete(session_id: &str) -> Result<bool, SessionError> {
    let Some(bytes) = kv::get_bytes_opt(&thread_key(session_id))? else {
        return Ok(false);
    };
    kv::delete(&thread_key(session_id))?;
    match serde_json::from_slice::<Thread>(&bytes) {
        Ok(thread) => thread.pages.iter().for_each(delete_page),
        Err(error) => log::warn(format!("Which pages the session {session_id:?} had cannot be read: {error}")),
    }
    Ok(true)
}

/// Nobody reads it any more: that it stays is no reason to fail.
fn delete_page(page: &Page) {
    if let Err(error) = kv::delete(&page_key(page)) {
        log::warn(format!("The page {} of a session is not needed, but stays: {error}", page.id));
    }
}

/// At most `limit` ids of conversations, sorted, after the one that `cursor` stands for; and whether there are more.
pub(crate) fn ids(cursor: Option<&str>, limit: usize) -> Result<(Vec<String>, bool), SessionError> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let page = kv::list_keys_page(THREADS, cursor, limit)?;
    let ids = page.keys.iter().filter_map(|key| key.strip_prefix(THREADS)).map(str::to_owned).collect();
    Ok((ids, page.next_cursor.is_some()))
}

/// What a list goes on from, after this conversation.
pub(crate) fn cursor_after(session_id: &str) -> String {
    thread_key(session_id)
}

/// How many conversations there are; None for more than the store counts at once.
pub(crate) fn total() -> Result<Option<usize>, SessionError> {
    let page = kv::list_keys_page(THREADS, None, COUNTED as u32)?;
    Ok(page.next_cursor.is_none().then_some(page.keys.len()))
}

fn thread_key(session_id: &str) -> String {
    format!("{THREADS}{session_id}")
}

fn page_key(page: &Page) -> String {
    format!("{PAGES}{}", page.id)
}
