//! Asking everybody at once.

use std::time::Duration;

use astrid_sdk::time::monotonic;
use astrid_sdk::{SysError, ipc, log};

use crate::answers::{Answer, one_of_each, read};
use crate::collecting::{Collected, Windows, collect};
use crate::metadata::{Asked, Capsules};

const DESCRIBE: &str = "tool.v1.request.describe";
const DESCRIBED: &str = "tool.v1.response.describe.*";
const SETTLED: &str = "astrid.v1.dispatch.settled.tool.v1.request.describe";
const MOST: usize = 4096;
/// Somebody else's describe for the same principal may settle while ours is under way. When fewer answered than handlers
/// ended well, ours is given this long to settle.
const OURS: Duration = Duration::from_millis(50);

/// What was heard until the window closed.
#[derive(Debug)]
pub struct Heard {
    /// One of each capsule, in the order they came.
    pub answers: Vec<Answer>,
    /// None: the host did not say.
    pub capsules: Option<Capsules>,
    /// Every capsule that describes tools did so.
    pub complete: bool,
}

impl Heard {
    /// The names of capsules that provide tools and did not describe any.
    #[must_use]
    pub fn silent(&self) -> Vec<&str> {
        let capsules = self.capsules.iter().flat_map(|capsules| &capsules.0);
        let silent = capsules.filter(|capsule| {
            !capsule.tools.is_empty() && self.answers.iter().all(|answer| answer.source_id != capsule.source_id)
        });
        silent.map(|capsule| capsule.name.as_str()).collect()
    }
}

/// Ask every capsule for its tools, on behalf of the caller, and the host for its capsules. Takes at most `window`.
///
/// # Errors
///
/// The host's, when it does not let us ask or listen.
pub fn describe(asker: &str, window: Duration) -> Result<Heard, SysError> {
    let begun = monotonic();
    let left = || (begun + window).saturating_sub(monotonic());
    let answers = ipc::subscribe(DESCRIBED)?;
    let settled = ipc::subscribe(SETTLED)?;
    // First: what it says must not be newer than what the capsules say.
    let metadata = Asked::publish(asker)?;
    ipc::publish(DESCRIBE, "{}")?;
    let mut collected = collect(&answers, &settled, windows(window))?;
    let mut heard = read_all(&collected);
    if collected.settled.is_some_and(|settled| heard.len() < settled.done) {
        let more = collect(&answers, &settled, windows(left().min(OURS)))?;
        heard = one_of_each(heard.into_iter().chain(read_all(&more)).collect());
        collected.settled = more.settled.or(collected.settled);
        collected.dropped += more.dropped;
    }
    let complete = collected.settled.is_some_and(|told| told.failed + told.skipped == 0) && collected.dropped == 0;
    Ok(Heard { answers: heard, capsules: metadata.answered(left())?, complete })
}

fn windows(time: Duration) -> Windows {
    Windows { first: time, quiet: time, total: time, most: MOST }
}

fn read_all(collected: &Collected) -> Vec<Answer> {
    let answers = collected.messages.iter().filter_map(|message| {
        let answer = read(&message.source_id, &message.payload);
        if answer.is_none() {
            log::warn(format!("{} does not describe its tools as a list of tools", message.source_id));
        }
        answer
    });
    one_of_each(answers.collect())
}
