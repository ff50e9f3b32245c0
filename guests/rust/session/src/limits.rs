//! Limits that the operator may set.

use astrid_sdk::prelude::*;

/// How much of a conversation is handed out at once.
pub(crate) fn history_bytes() -> usize {
    // The bus takes 1 MiB, and the messages are not all that is in a reply.
    of("history_bytes", 768 << 10).clamp(4 << 10, 1000 << 10)
}

/// How much of a conversation is kept, a page at least.
pub(crate) fn session_bytes() -> usize {
    of("session_bytes", 16 << 20).max(64 << 10)
}

fn of(key: &str, usual: usize) -> usize {
    let given = match env::var(key) {
        Ok(given) => given,
        Err(error) => {
            log::warn(format!("{key} cannot be read, {usual} it is: {error}"));
            return usual;
        }
    };
    match given.trim() {
        "" => usual,
        text => text.parse().unwrap_or_else(|_| {
            log::warn(format!("{key} must be a number of bytes, not {text:?}: {usual} it is."));
            usual
        }),
    }
}
