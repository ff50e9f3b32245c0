//! What is under way on behalf of one principal: its calls run in several instances at once, and these see each other only
//! through the store.
//!
//! Whoever begins something does it; the others wait until it is over, which is published when somebody waits. Each entry
//! has an end, so that nothing stays when its instance does not come back.

use std::time::{Duration, UNIX_EPOCH};

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};

const KEY: &str = "under_way";
const OVER: &str = "gatekeeper.v1.event.over";
/// Each miss means that another instance went ahead, and there are 64 at most.
const TRIES: usize = 256;

/// Whose turn it is.
#[derive(Debug, PartialEq)]
pub(crate) enum Begun {
    /// Ours: it must be ended.
    Ours,
    /// Another's, until that time at most.
    Others(u64),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Entry {
    id: String,
    /// Milliseconds since 1970.
    until: u64,
    awaited: bool,
}

/// Begin something that takes `time` at most, unless it is under way.
///
/// # Errors
///
/// The store's.
pub(crate) fn begin(id: &str, time: Duration, waits: bool) -> Result<Begun, SysError> {
    let now = now()?;
    change(|entries| begin_in(entries, id, now, after(now, time), waits))
}

/// End it, and tell who waits.
///
/// # Errors
///
/// The store's; it ends with its time then.
pub(crate) fn end(id: &str) -> Result<(), SysError> {
    let now = now()?;
    let awaited = change(|entries| (end_in(entries, id, now), true))?;
    if awaited { ipc::publish_json(OVER, &serde_json::json!({ "id": id })) } else { Ok(()) }
}

/// Hears when something is over. Must be there before `begin` says that others are at it.
pub(crate) struct Ends(ipc::Subscription);

impl Ends {
    pub(crate) fn subscribe() -> Result<Self, SysError> {
        Ok(Self(ipc::subscribe(OVER)?))
    }

    /// Wait until it is over, or its time is.
    pub(crate) fn wait(&self, id: &str, until: u64) -> Result<(), SysError> {
        loop {
            let left = until.saturating_sub(now()?);
            let came = if left > 0 { self.0.recv(left)?.messages } else { vec![] };
            let Some(message) = came.first() else {
                return Ok(());
            };
            let told: Result<Over, _> = serde_json::from_str(&message.payload);
            if told.is_ok_and(|told| told.id == id) {
                return Ok(());
            }
        }
    }
}

#[derive(Deserialize)]
struct Over {
    id: String,
}

/// Change the entries as one step. What the store has, if it cannot be read, counts as nothing.
fn change<T>(change: impl Fn(&mut Vec<Entry>) -> (T, bool)) -> Result<T, SysError> {
    for _ in 0..TRIES {
        let kept = kv::get_bytes_opt(KEY)?;
        let mut entries = kept.as_deref().and_then(|kept| serde_json::from_slice(kept).ok()).unwrap_or_default();
        let (told, changed) = change(&mut entries);
        if !changed || kv::cas(KEY, kept.as_deref(), &serde_json::to_vec(&entries)?)? {
            return Ok(told);
        }
    }
    Err(SysError::ApiError("too many calls are decided at the same time".into()))
}

fn begin_in(entries: &mut Vec<Entry>, id: &str, now: u64, until: u64, waits: bool) -> (Begun, bool) {
    // A clock that was set back would keep entries for longer than anything takes.
    let limit = until.max(after(now, Duration::from_secs(3600)));
    entries.retain(|entry| entry.until > now && entry.until <= limit);
    if let Some(entry) = entries.iter_mut().find(|entry| entry.id == id) {
        let news = waits && !entry.awaited;
        entry.awaited |= waits;
        return (Begun::Others(entry.until), news);
    }
    entries.push(Entry { id: id.to_owned(), until, awaited: false });
    (Begun::Ours, true)
}

/// Whether somebody waits for it.
fn end_in(entries: &mut Vec<Entry>, id: &str, now: u64) -> bool {
    let awaited = entries.iter().any(|entry| entry.id == id && entry.awaited);
    entries.retain(|entry| entry.until > now && entry.id != id);
    awaited
}

fn now() -> Result<u64, SysError> {
    let since = time::now()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_does_it_and_the_others_wait_until_it_is_over() {
        let mut entries = vec![];
        assert_eq!(begin_in(&mut entries, "a", 0, 100, false), (Begun::Ours, true));
        assert_eq!(begin_in(&mut entries, "b", 0, 100, false), (Begun::Ours, true));
        assert_eq!(begin_in(&mut entries, "a", 1, 101, false), (Begun::Others(100), false));
        assert_eq!(begin_in(&mut entries, "a", 1, 101, true), (Begun::Others(100), true));
        assert_eq!(begin_in(&mut entries, "a", 1, 101, true), (Begun::Others(100), false));
        assert!(end_in(&mut entries, "a", 2));
        assert!(!end_in(&mut entries, "b", 2));
        assert_eq!(begin_in(&mut entries, "a", 3, 600, true), (Begun::Ours, true));
    }

    #[test]
    fn what_does_not_end_is_over_with_its_time() {
        let mut entries = vec![];
        begin_in(&mut entries, "a", 0, 100, false);
        assert_eq!(begin_in(&mut entries, "a", 99, 300, true).0, Begun::Others(100));
        assert_eq!(begin_in(&mut entries, "a", 100, 300, true).0, Begun::Ours);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nobody() {
        let mut entries = vec![];
        begin_in(&mut entries, "a", 9_000_000_000, 9_000_000_100, false);
        assert_eq!(begin_in(&mut entries, "a", 0, 100, true).0, Begun::Ours);
    }
}
