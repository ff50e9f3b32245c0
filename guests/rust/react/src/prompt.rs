//! Prompts: each begins a turn, waits for the one that runs in its session, or is refused. Whatever happens, it ends
//! in one final answer.

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{self, MAX_QUEUED_PROMPTS};
use crate::ending;
use crate::history;
use crate::ids::{instance, new_id, now_ms};
use crate::turn::{Phase, Stop, Turn};
use crate::{session, store};

/// `user_input`, as far as it matters here. Text may be missing when the context says what to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) session_id: String,
    #[serde(default)]
    context: Option<Value>,
}

/// What is no prompt. Whoever sent it waits for an answer all the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Unreadable {
    session_id: String,
    why: String,
}

impl Unreadable {
    pub(crate) fn refuse(&self) {
        ending::refuse(&self.session_id, &format!("The prompt cannot be read: {}.", self.why));
    }
}

pub(crate) fn default_session() -> String {
    "default".into()
}

impl Prompt {
    /// Read a payload. What is missing or null has its default.
    pub(crate) fn read(payload: &Value) -> Result<Self, Unreadable> {
        let text = |key: &str| match payload.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("its {key} is no string")),
        };
        let session_id = text("session_id");
        let unreadable = |why: String| {
            let session_id = session_id.clone().ok().flatten().unwrap_or_else(default_session);
            Unreadable { session_id, why }
        };
        if !payload.is_object() {
            return Err(unreadable("it is no object".into()));
        }
        let prompt = text("text").map_err(&unreadable)?.unwrap_or_default();
        let session_id = session_id.clone().map_err(&unreadable)?.unwrap_or_else(default_session);
        Ok(Self { text: prompt, session_id, context: payload.get("context").cloned() })
    }

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

/// Take what may be a prompt.
pub(crate) fn read_and_take(payload: &Value) {
    match Prompt::read(payload) {
        Ok(prompt) => take(prompt),
        Err(unreadable) => unreadable.refuse(),
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
            ending::refuse(&prompt.session_id, "The prompt is empty.");
        }
        return;
    }
    let session_id = prompt.session_id.clone();
    ending::check(&session_id);
    let mut waiting = store::queue(&session_id);
    let most = MAX_QUEUED_PROMPTS.get();
    if waiting.len() as u64 >= most && store::turn(&session_id).is_some() {
        let busy = format!("The agent is busy in this session, and {most} prompts wait already. Try again later.");
        return ending::refuse(&session_id, &busy);
    }
    waiting.push(prompt);
    if store::turn(&session_id).is_some() {
        if let Err(Stop(why)) = store::save_queue(&session_id, &waiting) {
            ending::refuse(&session_id, &why);
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
        turn.begun_by = instance().into();
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
    session::add(&turn.session_id, &[history::user(&prompt.text)])?;
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
        Prompt::read(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn what_is_missing_has_defaults() {
        let prompt = prompt(r#"{"type":"user_input","text":"hi"}"#);
        assert_eq!((prompt.session_id.as_str(), prompt.wanted_model(), prompt.is_cancel()), ("default", None, false));
    }

    #[test]
    fn null_is_the_same_as_missing() {
        let prompt = prompt(r#"{"text":null,"session_id":null,"context":null}"#);
        assert_eq!((prompt.text.as_str(), prompt.session_id.as_str()), ("", "default"));
    }

    #[test]
    fn what_cannot_be_read_is_told_where_it_came_from_if_that_is_known() {
        for (payload, session, why) in [
            (r#"{"text":7,"session_id":"s"}"#, "s", "its text is no string"),
            (r#"{"text":[],"session_id":7}"#, "default", "its text is no string"),
            (r#"{"text":"hi","session_id":7}"#, "default", "its session_id is no string"),
            (r#""hi""#, "default", "it is no object"),
            ("[1]", "default", "it is no object"),
            ("null", "default", "it is no object"),
        ] {
            let expected = Unreadable { session_id: session.into(), why: why.into() };
            assert_eq!(Prompt::read(&serde_json::from_str(payload).unwrap()), Err(expected), "{payload}");
        }
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
