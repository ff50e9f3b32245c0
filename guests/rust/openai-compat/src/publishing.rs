//! The stream of events that a request is answered with. Whoever listens may be slower than the model: a publish that is
//! refused for that is tried again for a while.

use std::time::Duration;

use astrid_sdk::prelude::*;
use astrid_sdk::types::StreamEvent;
use serde_json::json;

const TOPIC: &str = "llm.v1.stream.openai-compat";
const WAIT: Duration = Duration::from_millis(100);

pub(crate) struct Events<'a> {
    pub(crate) request_id: &'a str,
    /// How long a publish is tried.
    pub(crate) patience: Duration,
}

impl Events<'_> {
    /// Publish an event. The error is of the last try: a later event must not be published then, or what was said would
    /// have a gap.
    pub(crate) fn publish(&self, event: &StreamEvent) -> Result<(), SysError> {
        let payload = json!({"type": "llm_stream_event", "request_id": self.request_id, "event": event});
        let text = serde_json::to_string(&payload)?;
        let end = time::monotonic() + self.patience;
        loop {
            match ipc::publish(TOPIC, &text) {
                Err(error) if may_pass(&error) && time::monotonic() < end => time::sleep(WAIT)?,
                outcome => return outcome,
            }
        }
    }
}

fn may_pass(error: &SysError) -> bool {
    let text = error.to_string();
    text.contains("Backpressure") || text.contains("RateLimited")
}
