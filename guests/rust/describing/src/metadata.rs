//! Which capsules are loaded, and which tools each of them provides: the host knows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use astrid_sdk::time::monotonic;
use astrid_sdk::{SysError, ipc, log};
use serde::Deserialize;

use crate::collecting::receive;

/// What the host puts on what it publishes itself.
const KERNEL: &str = "00000000-0000-0000-0000-000000000000";
const REQUEST: &str = r#"{"type":"raw_json","method":"GetCapsuleMetadata","params":{}}"#;

/// A loaded capsule.
#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default)]
pub struct Capsule {
    pub name: String,
    pub version: String,
    pub source_id: String,
    /// Those whose calls the host brings to it.
    pub tools: Vec<Provided>,
}

/// A tool, as its capsule's manifest has it.
#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default)]
pub struct Provided {
    pub name: String,
    pub mutable: bool,
    /// It asks for approval itself.
    pub asks_approval: bool,
}

/// All loaded capsules, in load order.
#[derive(Clone, Debug, Default)]
pub struct Capsules(pub Vec<Capsule>);

impl Capsules {
    /// The same for the same capsules, another for others: of code, versions, order and flags.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The first capsule that provides a tool, and what its manifest says of it.
    #[must_use]
    pub fn provider(&self, tool: &str) -> Option<(&Capsule, &Provided)> {
        self.0.iter().find_map(|capsule| {
            let provided = capsule.tools.iter().find(|provided| provided.name == tool)?;
            Some((capsule, provided))
        })
    }

    /// Ask the host. None when it does not answer in time.
    ///
    /// # Errors
    ///
    /// The host's, when it does not let us ask.
    pub fn ask(asker: &str, time: Duration) -> Result<Option<Self>, SysError> {
        Asked::publish(asker)?.answered(time)
    }
}

/// The question, under way.
pub(crate) struct Asked(ipc::Subscription);

impl Asked {
    pub(crate) fn publish(asker: &str) -> Result<Self, SysError> {
        let answers = ipc::subscribe(&format!("astrid.v1.response.{asker}"))?;
        ipc::publish(&format!("astrid.v1.request.{asker}"), REQUEST)?;
        Ok(Self(answers))
    }

    /// What the host answered; nobody else is believed.
    pub(crate) fn answered(&self, time: Duration) -> Result<Option<Capsules>, SysError> {
        let until = monotonic() + time;
        loop {
            let left = until.saturating_sub(monotonic());
            let Some(message) = receive(&self.0, left)? else {
                return Ok(None);
            };
            if message.source_id == KERNEL {
                return Ok(read(&message.payload));
            }
            log::warn(format!("{} answers in place of the host on {}", message.source_id, message.topic));
        }
    }
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Capsule>,
}

fn read(payload: &str) -> Option<Capsules> {
    match serde_json::from_str::<Response>(payload) {
        Ok(response) => Some(Capsules(response.data)),
        Err(error) => {
            log::warn(format!("what the host says of its capsules cannot be read: {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"status":"Success","data":[
        {"name":"fs","version":"0.2.0","description":"d","source_id":"u1",
         "tools":[{"name":"read_file","mutable":false,"asks_approval":false},{"name":"write_file","mutable":true}]},
        {"name":"shell","version":"0.1.0","source_id":"u2","tools":[{"name":"run","mutable":true,"asks_approval":true},
         {"name":"read_file"}]},
        {"name":"router","source_id":"u3"}]}"#;

    #[test]
    fn the_first_capsule_that_binds_a_tool_provides_it() {
        let capsules = read(ANSWER).unwrap();
        assert_eq!(capsules.provider("read_file").unwrap().0.name, "fs");
        assert!(capsules.provider("run").unwrap().1.asks_approval);
        assert!(capsules.provider("gone").is_none());
    }

    #[test]
    fn the_fingerprint_changes_with_what_is_loaded() {
        let of = |text: &str| read(text).unwrap().fingerprint();
        assert_eq!(of(ANSWER), of(ANSWER));
        for (one, other) in [("u1", "u9"), ("0.2.0", "0.2.1"), (r#""asks_approval":true"#, r#""asks_approval":false"#)]
        {
            assert_ne!(of(ANSWER), of(&ANSWER.replace(one, other)), "{one}");
        }
    }
}
