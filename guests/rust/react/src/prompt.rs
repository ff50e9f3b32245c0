//! Prompts: each begins a turn, waits for the one that runs in its session, or is refused. Whatever happens, it ends
//! in one final answer.

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{self, MAX_QUEUED_PROMPTS};
use crate::ending;
use crate::history;
use crate::ids::{new_id, now_ms};
use crate::turn::{Phase, Stop, Turn};
use crate::{session, store};

/// `user_input`, as far as it matters here. Text may be missing when the context says what to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Prompt {
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default = "default_session")]
    pub(crate) session_id: String,
    #[serde(default)]
    context: Option<Value>,
}

pub(crate) fn default_session() -> String {
    "default".into()
}

impl Prompt {
    fn context(&self, key: &str) -> Option<&str> {
        self.context.as_ref()?.get(key)?.as_str()
    }

    fn wanted_model(&self) -> Option<String> {
        self.context("model").filter(|model| !model.trim().is_empty()).map(str::to_owned)
    }

    pub(crate) fn is_cancel(&self) -> bool {
        self.context("action") == Some("cancel_turn")
    }
}

/// Take a prompt.
pub(crate) fn take(prompt: Prompt) {
    if prompt.is_cancel() {
        return ending::cancel(&prompt.session_id);
    }
    if prompt.text.trim().is_empty() {
        // Other actions come without text, for others.
        if prompt.context("action").is_none() {
            ending::answer(&prompt.session_id, "The prompt is empty.");
        }
        return;
    }
    let session_id = prompt.session_id.clone();
    ending::check(&session_id);
    let mut waiting = store::queue(&session_id);
    let most = MAX_QUEUED_PROMPTS.get();
    if waiting.len() as u64 >= most && store::turn(&session_id).is_some() {
        let busy = format!("The agent is busy in this session, and {most} prompts wait already. Try again later.");
        return ending::answer(&session_id, &busy);
    }
    waiting.push(prompt);
    if store::turn(&session_id).is_some() {
        if let Err(Stop(why)) = store::save_queue(&session_id, &waiting) {
            ending::answer(&session_id, &why);
        }
        return;
    }
    begin_one_of(&session_id, waiting);
}

/// Begin the turn of the next prompt that waits in a session, when none runs there.
pub(crate) fn go_on(session_id: &str) {
    let waiting = store::queue(session_id);
    if !waiting.is_empty() && store::turn(session_id).is_none() {
        begin_one_of(session_id, waiting);
    }
}

/// Begin the first turn that can be begun; those before end at once. The others wait.
fn begin_one_of(session_id: &str, waiting: Vec<Prompt>) {
    let mut waiting = waiting.into_iter();
    while let Some(prompt) = waiting.next() {
        // Kept before it is begun: what is begun twice would be answered twice.
        let kept = store::save_queue(session_id, waiting.as_slice());
        let mut turn = Turn::new(session_id, new_id(), prompt.wanted_model());
        match kept.and_then(|()| begin(&mut turn, &prompt)) {
            Ok(()) => return,
            Err(stop) => ending::close(turn, stop),
        }
        if store::turn(session_id).is_some() {
            return; // its answer could not be published yet
        }
    }
}

/// Add the prompt to the history and ask for the system prompt.
fn begin(turn: &mut Turn, prompt: &Prompt) -> Result<(), Stop> {
    session::messages(&turn.session_id, &[history::user(&prompt.text)])?;
    turn.enter(Phase::Identity, now_ms());
    store::save(turn)?;
    let request = json!({
        "workspace_root": config::text("workspace_root"),
        "session_id": turn.session_id,
        "request_id": turn.request_id,
    });
    ipc::publish_json("spark.v1.request.build", &request)
        .map_err(|error| Stop(format!("The identity capsule could not be asked: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> Prompt {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_missing_has_defaults() {
        let prompt = prompt(r#"{"type":"user_input","text":"hi"}"#);
        assert_eq!((prompt.session_id.as_str(), prompt.wanted_model(), prompt.is_cancel()), ("default", None, false));
    }

    #[test]
    fn the_context_may_name_a_model_or_an_action() {
        let of = |context: &str| prompt(&format!(r#"{{"text":"hi","session_id":"s","context":{context}}}"#));
        assert_eq!(of(r#"{"model":"m"}"#).wanted_model(), Some("m".into()));
        assert_eq!(of(r#"{"model":" "}"#).wanted_model(), None);
        assert!(of(r#"{"action":"cancel_turn"}"#).is_cancel());
        for context in ["null", "1", "[]", "\"cancel_turn\"", r#"{"model":1,"action":2}"#] {
            assert_eq!((of(context).wanted_model(), of(context).is_cancel()), (None, false), "{context}");
        }
    }
}
