//! Collecting the responses to an event until its handlers have ended.

use std::time::Duration;

use astrid_sdk::SysError;
use astrid_sdk::ipc::{Message, Subscription};
use astrid_sdk::time::monotonic;
use serde::Deserialize;

/// How often responses are looked for while the handlers are at work: one subscription can be waited on at a time.
const LOOK: Duration = Duration::from_millis(20);

/// How long responses are waited for where the host does not tell that the handlers have ended.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Until the first one.
    pub first: Duration,
    /// After each one, until the next.
    pub quiet: Duration,
    /// For all of them.
    pub total: Duration,
    /// How many are taken.
    pub most: usize,
}

/// What the host tells when all handlers of an event have ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Settled {
    /// How many handlers ended well.
    pub done: usize,
    /// How many did not.
    pub failed: usize,
    /// How many were not called.
    pub skipped: usize,
}

/// What came while it was waited for.
#[derive(Debug, Default)]
pub struct Collected {
    pub messages: Vec<Message>,
    /// None: a window closed before the host told.
    pub settled: Option<Settled>,
    /// Responses that had to give way to later ones.
    pub dropped: u64,
}

/// Collect responses until the handlers have ended, or a window closes. Both subscriptions must be older than the event.
///
/// # Errors
///
/// The host's, when it does not let us receive any more.
pub fn collect(responses: &Subscription, settled: &Subscription, windows: Windows) -> Result<Collected, SysError> {
    let mut collected = Collected::default();
    let begun = monotonic();
    let mut last = None;
    loop {
        let until = deadline(begun, last, windows);
        let left = until.saturating_sub(monotonic());
        if let Some(told) = receive(settled, left.min(LOOK))? {
            // Where it cannot be read, all that is known is that it is over.
            collected.settled = Some(serde_json::from_str(&told.payload).unwrap_or_default());
        }
        if drain(responses, &mut collected, windows.most)? {
            last = Some(monotonic());
        }
        let over = collected.settled.is_some() || collected.messages.len() >= windows.most;
        if over || monotonic() >= deadline(begun, last, windows) {
            return Ok(collected);
        }
    }
}

fn deadline(begun: Duration, last: Option<Duration>, windows: Windows) -> Duration {
    let next = last.map_or(begun + windows.first, |last| last + windows.quiet);
    next.min(begun + windows.total)
}

/// Take what has come; whether anything had.
fn drain(responses: &Subscription, collected: &mut Collected, most: usize) -> Result<bool, SysError> {
    let before = collected.messages.len();
    while collected.messages.len() < most {
        let came = responses.poll()?;
        collected.dropped += came.dropped;
        if came.messages.is_empty() {
            break;
        }
        collected.messages.extend(came.messages);
    }
    Ok(collected.messages.len() > before)
}

/// The next message, if there is one in time.
pub(crate) fn receive(subscription: &Subscription, time: Duration) -> Result<Option<Message>, SysError> {
    // Rounded up, or the last fraction of a millisecond would be spent asking again and again.
    let milliseconds = u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    Ok(subscription.recv(milliseconds)?.messages.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows {
        first: Duration::from_millis(250),
        quiet: Duration::from_millis(100),
        total: Duration::from_millis(2000),
        most: 50,
    };

    fn closes(last: Option<u64>) -> u128 {
        let begun = Duration::from_millis(5000);
        (deadline(begun, last.map(|last| begun + Duration::from_millis(last)), WINDOWS) - begun).as_millis()
    }

    #[test]
    fn the_first_response_has_more_time_than_each_that_follows_and_all_have_a_bound() {
        assert_eq!(closes(None), 250);
        assert_eq!(closes(Some(10)), 110);
        assert_eq!(closes(Some(1950)), 2000);
    }

    #[test]
    fn what_the_host_tells_may_have_more_fields_and_fewer() {
        let settled: Settled = serde_json::from_str(r#"{"topic":"t","seq":3,"done":2,"failed":1}"#).unwrap();
        assert_eq!(settled, Settled { done: 2, failed: 1, skipped: 0 });
    }
}
