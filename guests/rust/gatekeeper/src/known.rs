//! What is known of a tool: kept in the store, until the set of capsules changes.
//!
//! The host tells that by `astrid.v1.capsules_loaded`, but not every principal, and not those who come back later. So an
//! instance believes what was kept only after it has compared it with the capsules that are loaded, once in its life.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use astrid_sdk::prelude::*;
use describing::{Capsules, choose, describe, milliseconds};

use crate::flags::{Flag, Flags};
use crate::ledger::{self, Begun, Ends};

const KEY: &str = "flags";
const NAME: &str = "gatekeeper";
const DESCRIBING: &str = "describe";
/// What describing takes beyond its window, at most: then somebody else does it.
const MARGIN: Duration = Duration::from_millis(500);
/// How often it is tried to get the answer that somebody else asked for.
const ROUNDS: usize = 4;

/// The fingerprint of the capsules that this instance has seen.
static SEEN: Mutex<String> = Mutex::new(String::new());

/// What is known of a tool. Asks for it when that is not kept; what cannot be found out is unknown.
pub(crate) fn flag_of(tool: &str) -> Flag {
    find(tool).unwrap_or_else(|error| {
        log::warn(format!("it cannot be found out whether {tool} changes anything: {error}"));
        Flag::Unknown
    })
}

fn find(tool: &str) -> Result<Flag, SysError> {
    let mut last = None;
    if let Some(flags) = kept()?
        && is_current(&flags)?
    {
        match flags.of(tool) {
            Flag::Unknown if !flags.complete() => last = Some(flags),
            flag => return Ok(flag),
        }
    }
    let flags = described(last.as_ref())?;
    Ok(flags.map_or(Flag::Unknown, |flags| flags.of(tool)))
}

/// Drop what is known. A mark takes its place, so that nobody keeps what was found out before.
pub(crate) fn drop_all() -> Result<(), SysError> {
    kv::set_bytes(KEY, format!("!{}", time::monotonic().as_nanos()).as_bytes())
}

fn kept() -> Result<Option<Flags>, SysError> {
    Ok(kv::get_bytes_opt(KEY)?.and_then(Flags::read))
}

fn is_current(flags: &Flags) -> Result<bool, SysError> {
    if seen(flags.fingerprint()) {
        return Ok(true);
    }
    let Some(capsules) = Capsules::ask(NAME, window())? else {
        return Ok(false);
    };
    see(capsules.fingerprint());
    Ok(seen(flags.fingerprint()))
}

fn seen(fingerprint: &str) -> bool {
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) == fingerprint
}

fn see(fingerprint: String) {
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) = fingerprint;
}

fn window() -> Duration {
    milliseconds("describe_timeout_ms", 500)
}

/// Describe, or wait for who is at it. `last` is what was kept and is not enough.
fn described(last: Option<&Flags>) -> Result<Option<Flags>, SysError> {
    let mut ends = None;
    for _ in 0..ROUNDS {
        match ledger::begin(DESCRIBING, window() + MARGIN, ends.is_some())? {
            Begun::Ours => {
                let flags = describe_unless_done(last);
                ledger::end(DESCRIBING)?;
                return flags.map(Some);
            }
            Begun::Others(until) => match &ends {
                None => ends = Some(Ends::subscribe()?),
                Some(ends) => {
                    ends.wait(DESCRIBING, until)?;
                    // It was asked for while we waited, so it is as new as anything that we could ask for.
                    if let Some(flags) = kept()? {
                        see(flags.fingerprint().to_owned());
                        return Ok(Some(flags));
                    }
                }
            },
        }
    }
    Ok(None)
}

fn describe_unless_done(last: Option<&Flags>) -> Result<Flags, SysError> {
    let before = kv::get_bytes_opt(KEY)?;
    if let Some(flags) = before.clone().and_then(Flags::read)
        && last != Some(&flags)
        && is_current(&flags)?
    {
        return Ok(flags); // somebody was faster
    }
    let heard = describe(NAME, window())?;
    for name in heard.silent() {
        log::warn(format!("{name} did not describe its tools in time"));
    }
    // Where the host does not tell its capsules, nobody else can know whether these flags are still true.
    let fingerprint = heard
        .capsules
        .as_ref()
        .map_or_else(|| format!("unknown since {}", time::monotonic().as_nanos()), Capsules::fingerprint);
    let flags = Flags::new(&heard, &choose(&heard), &fingerprint);
    if kv::cas(KEY, before.as_deref(), flags.text().as_bytes())? {
        see(fingerprint);
    } else {
        log::info("the capsules changed while they described their tools");
    }
    Ok(flags)
}
