//! From the system prompt to the assembled one: what goes to the model.

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::ids::now_ms;
use crate::prompt::default_session;
use crate::session::History;
use crate::store::{self, Context};
use crate::turn::{Phase, Stop, Turn};
use crate::{ending, generation, history, model, session};

/// `spark.v1.response.ready`. Not every identity capsule echoes the request.
#[derive(Deserialize)]
pub(crate) struct Identity {
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    request_id: Option<String>,
}

/// `prompt_builder.v1.response.assemble`. An error may come without saying which request it is about.
#[derive(Deserialize)]
pub(crate) struct Assembled {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(default)]
    system_prompt: Option<String>,
    #[serde(default)]
    user_context_prefix: Option<String>,
    #[serde(default)]
    tools: Option<Box<RawValue>>,
    #[serde(default)]
    messages: Option<Vec<Box<RawValue>>>,
}

/// The turn in that phase which an answer belongs to. Without a session it is the one that has waited longest.
fn turn_in(phase: Phase, session_id: Option<String>, request_id: Option<&str>) -> Option<Turn> {
    let is_it = |turn: &Turn| turn.awaits(phase, request_id.unwrap_or(&turn.request_id));
    if let Some(session_id) = session_id {
        return store::turn(&session_id).filter(is_it);
    }
    let turns = store::sessions().into_iter().filter_map(|session_id| store::turn(&session_id)).filter(is_it);
    turns.min_by_key(|turn| turn.entered_ms)
}

/// The system prompt is there: have the prompt assembled.
pub(crate) fn identity_is_there(identity: Identity) {
    let session_id = identity.session_id.unwrap_or_else(default_session);
    let Some(mut turn) = turn_in(Phase::Identity, Some(session_id), identity.request_id.as_deref()) else { return };
    let step = assemble(&mut turn, identity.prompt);
    ending::settle(turn, step);
}

fn assemble(turn: &mut Turn, system: String) -> Result<(), Stop> {
    let choice = model::choose(turn.wanted_model.as_deref())?;
    (turn.topic, turn.model) = (choice.topic, choice.model);
    let said = session::history(&turn.session_id, &[])?;
    let request = json!({
        "messages": said.messages,
        "system_prompt": system,
        "request_id": turn.request_id,
        "session_id": turn.session_id,
        "model": turn.model,
        "provider": turn.provider(),
    });
    let (messages, total) = (said.messages.len(), said.total);
    let nothing = Context { system, tools: RawValue::NULL.to_owned(), prefix: String::new(), messages, total };
    store::save_context(&turn.session_id, &nothing)?;
    turn.enter(Phase::PromptBuild, now_ms());
    store::save(turn)?;
    ipc::publish_json("prompt_builder.v1.assemble", &request)
        .map_err(|error| Stop(format!("The prompt builder could not be asked: {error}")))
}

/// The prompt is assembled: ask the model.
pub(crate) fn prompt_is_assembled(assembled: Assembled) {
    let (session_id, request_id) = (&assembled.session_id, &assembled.request_id);
    // What names neither is an error about whatever was asked first.
    let Some(mut turn) = (match (session_id, request_id, &assembled.error) {
        (None, None, None) => turn_in(Phase::PromptBuild, Some(default_session()), None),
        _ => turn_in(Phase::PromptBuild, session_id.clone(), request_id.as_deref()),
    }) else {
        return;
    };
    let step = match assembled.error {
        Some(why) => Err(Stop(format!("The prompt could not be assembled: {why}"))),
        None => send(&mut turn, assembled),
    };
    ending::settle(turn, step);
}

fn send(turn: &mut Turn, assembled: Assembled) -> Result<(), Stop> {
    let mut context = store::context(&turn.session_id)?;
    if let Some(system) = assembled.system_prompt {
        context.system = system;
    }
    if let Some(tools) = assembled.tools.filter(|tools| tools.get().starts_with('[')) {
        context.tools = tools;
    } else {
        context.tools = empty_list();
    }
    context.prefix = assembled.user_context_prefix.unwrap_or_default();
    store::save_context(&turn.session_id, &context)?;
    let said = match assembled.messages {
        Some(messages) if !messages.is_empty() => {
            let total = context.total.filter(|_| messages.len() == context.messages);
            History { messages, total }
        }
        _ => session::history(&turn.session_id, &[])?,
    };
    generation::request(turn, &context, said)
}

pub(crate) fn empty_list() -> Box<RawValue> {
    serde_json::value::to_raw_value::<[(); 0]>(&[]).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The messages as the model gets them.
pub(crate) fn prefixed(mut messages: Vec<Box<RawValue>>, context: &Context) -> Result<Vec<Box<RawValue>>, Stop> {
    history::prefix_last_user_message(&mut messages, &context.prefix)
        .map_err(|error| Stop(format!("The prompt could not be assembled: {error}")))?;
    Ok(messages)
}
