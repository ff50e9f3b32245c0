//! The stream of events that a request is answered with. Whoever listens may be slower than the model: a publish that is
//! refused for that is tried again for a while.

use std::time::Duration;

use astrid_sdk::prelude::*;
use astrid_sdk::types::StreamEvent;
use serde_json::json;

use crate::finish::Finish;

const TOPIC: &str = "llm.v1.stream.openai-compat";
/// Tells of an answer that was cut off, before its `Done`: the events of a stream have no word for it.
const CUT: &str = "llm.v1.finish.openai-compat";
const WAIT: Duration = Duration::from_millis(100);

pub(crate) struct Events<'a> {
    pub(crate) request_id: &'a str,
    /// How long a publish is tried.
    pub(crate) patience: Duration,
}

impl Events<'_> {
    /// Tell that the answer was cut off. That nobody hears it is said in the log.
    pub(crate) fn publish_cut(&self, cut: &Finish) {
        let finish = json!({
            "request_id": self.request_id, "finish_reason": cut.reason, "only_reasoning": cut.reasoned && !cut.spoke,
        });
        if let Err(error) = ipc::publish_json(CUT, &finish) {
            log::warn(format!("that the answer was cut off ({}) could not be told: {error}", cut.reason));
        }
    }

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
