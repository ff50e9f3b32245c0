//! The wish of whoever asked not to be answered any more: `{"request_id"}` on `llm.v1.request.cancel.openai-compat`.
//! Events for a handler wait while it is at work, so it is listened to from within, beside the server's answer.

use std::cell::Cell;
use std::time::Duration;

use astrid_sdk::prelude::*;
use astrid_sys::astrid::io::poll::Pollable;
use astrid_sys::astrid::ipc::host::{self, IpcEnvelope, Subscription};
use serde_json::Value;

const TOPIC: &str = "llm.v1.request.cancel.openai-compat";

/// Listens for the cancelling of one request, from when it is made until it is dropped.
pub(crate) struct Cancelling {
    // Dropped in this order: what is ready belongs to the subscription.
    ready: Pollable,
    subscription: Subscription,
    request_id: String,
    asked: Cell<bool>,
}

impl Cancelling {
    /// None, and a line in the log, when one cannot listen: the request is then answered to its end.
    pub(crate) fn of(request_id: &str) -> Option<Self> {
        let subscription = host::subscribe(TOPIC)
            .inspect_err(|error| log::warn(format!("a request cannot be cancelled: {TOPIC} is not heard: {error:?}")))
            .ok()?;
        let ready = subscription.subscribe_readiness();
        Some(Self { ready, subscription, request_id: request_id.to_owned(), asked: Cell::new(false) })
    }

    /// Ready when there is something to hear; the answer to `asked` may have changed then.
    pub(crate) fn ready(&self) -> &Pollable {
        &self.ready
    }

    /// Whether the request has been cancelled. Does not wait.
    pub(crate) fn asked(&self) -> bool {
        while !self.asked.get() {
            match self.subscription.poll() {
                Ok(envelope) if envelope.messages.is_empty() => break,
                Ok(envelope) => self.hear(&envelope),
                Err(error) => {
                    log::warn(format!("{TOPIC} is not heard: {error:?}"));
                    break;
                }
            }
        }
        self.asked.get()
    }

    /// Wait, and tell whether the request has been cancelled meanwhile.
    pub(crate) fn asked_within(&self, wait: Duration) -> bool {
        let end = time::monotonic() + wait;
        while !self.asked() {
            let left = end.saturating_sub(time::monotonic());
            if left.is_zero() {
                break;
            }
            let milliseconds = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            match self.subscription.recv(milliseconds) {
                Ok(envelope) => self.hear(&envelope),
                Err(error) => {
                    log::warn(format!("{TOPIC} is not heard: {error:?}"));
                    break;
                }
            }
        }
        self.asked.get()
    }

    fn hear(&self, envelope: &IpcEnvelope) {
        for message in &envelope.messages {
            let payload = serde_json::from_str::<Value>(&message.payload).unwrap_or_default();
            if payload["request_id"].as_str() == Some(&self.request_id) {
                self.asked.set(true);
            }
        }
    }
}
