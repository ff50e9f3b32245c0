//! Keeps conversations: what was said is kept as it came, and handed out as far as it fits into a message of the bus.
//!
//! Every request but `append` is answered exactly once, on `session.v1.response.<what>.<correlation_id>`: with
//! `{"correlation_id", "error"}` where it failed, so that nobody waits in vain, and denied as well, so that the host
//! says so. The host keeps the conversations of each principal apart.

mod command;
mod error;
mod history;
mod limits;
mod listing;
mod matching;
mod message;
mod reply;
mod request;
mod store;
mod thread;

use astrid_sdk::prelude::*;
use error::SessionError;
use history::{History, Newest};
use limits::{history_bytes, session_bytes};
use listing::Listed;
use reply::answer;
use request::{FOUND, LISTED, Patches, Wanted, session_id};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use thread::{Thread, Turned};
use uuid::Uuid;

/// What a result of a tool may have. It is JSON within JSON, and more of it would be of no use to a model.
const TOOL_BYTES: usize = 256 << 10;

#[derive(Default)]
pub struct Session;

#[derive(Deserialize, JsonSchema)]
pub struct ListThreads {
    /// With archived conversations. Without them by default.
    include_archived: Option<bool>,
    /// How many at most: 50 by default, 200 at most.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<u64>,
    /// To go on with a list that was cut: the next_cursor that it came with.
    cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct GetThread {
    /// The conversation's session_id, as list_threads and search_conversations tell it.
    session_id: String,
    /// How many messages at most, the newest ones. As many as fit by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<u64>,
    /// How many of the newest messages to leave out, to go on to older ones. None by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    offset: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct SearchConversations {
    /// The text to search for, whatever its capitals. No wildcards.
    query: String,
    /// How many conversations at most: 20 by default, 100 at most.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<u64>,
    /// To go on with a search that was cut: the next_cursor that it came with.
    cursor: Option<String>,
    /// With archived conversations. Without them by default.
    include_archived: Option<bool>,
}

/// Keeps conversations: their messages, and what there is to know of them.
#[capsule]
impl Session {
    /// Add messages to a conversation. Nothing is answered; what is not kept is denied, so that the kernel reports it.
    #[astrid::interceptor("handle_append")]
    fn handle_append(&self, request: Value) -> Result<(), SessionError> {
        appended(session_id(&request)?, &message::messages(&request, "messages")?).map(drop)
    }

    /// Hand out a conversation, after adding what is to be added. `omitted` says how many messages did not fit. Whoever
    /// knows the messages up to a number says so with `after`, counted from 0 over all that the conversation ever had, and
    /// is told as well the number of the first message and how many there are.
    #[astrid::interceptor("handle_get_messages")]
    fn handle_get_messages(&self, request: Value) -> Result<(), SessionError> {
        answer("get_messages", &request, || {
            let id = session_id(&request)?;
            let thread = appended(id, &message::messages(&request, "append_before_read")?)?;
            let after = request.get("after").and_then(Value::as_u64);
            let from = after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX));
            let History { messages, omitted, shortened, begins } =
                history::turns(&thread, from, history_bytes(), store::read_page);
            let mut reply = json!({"messages": messages, "omitted": omitted, "shortened": shortened});
            if after.is_some() {
                (reply["begins"], reply["total"]) = (begins.into(), history::total(&thread).into());
            }
            Ok(reply)
        })
    }

    /// Begin another conversation that follows one, which stays as it is.
    #[astrid::interceptor("handle_clear")]
    fn handle_clear(&self, request: Value) -> Result<(), SessionError> {
        answer("clear", &request, || {
            let old = session_id(&request)?;
            let new = Uuid::new_v4().to_string();
            let thread = store::create(&new, Thread::child_of(old, now()?))?;
            tell("created", &new, thread.summary(&new));
            Ok(json!({"new_session_id": new, "old_session_id": old}))
        })
    }

    #[astrid::interceptor("handle_list")]
    fn handle_list(&self, request: Value) -> Result<(), SessionError> {
        answer("list", &request, || {
            let Listed { entries, next_cursor } = listing::list(Wanted::of(&request, LISTED), history_bytes())?;
            Ok(json!({"sessions": entries, "next_cursor": next_cursor, "total": store::total()?}))
        })
    }

    #[astrid::interceptor("handle_get_meta")]
    fn handle_get_meta(&self, request: Value) -> Result<(), SessionError> {
        answer("get_meta", &request, || {
            let id = session_id(&request)?;
            Ok(json!({"session": store::read(id)?.map(|thread| thread.summary(id))}))
        })
    }

    #[astrid::interceptor("handle_update")]
    fn handle_update(&self, request: Value) -> Result<(), SessionError> {
        answer("update", &request, || Ok(json!({"session": updated(session_id(&request)?, &Patches::of(&request))?})))
    }

    #[astrid::interceptor("handle_delete")]
    fn handle_delete(&self, request: Value) -> Result<(), SessionError> {
        answer("delete", &request, || Ok(json!({"deleted": deleted(session_id(&request)?)?})))
    }

    #[astrid::interceptor("handle_search")]
    fn handle_search(&self, request: Value) -> Result<(), SessionError> {
        answer("search", &request, || {
            let query = request.get("query").and_then(Value::as_str).unwrap_or_default();
            let Listed { entries, next_cursor } = listing::search(query, Wanted::of(&request, FOUND))?;
            Ok(json!({"results": entries, "next_cursor": next_cursor}))
        })
    }

    /// Run the command `session`. Other commands are for others to answer.
    #[astrid::interceptor("handle_command")]
    fn handle_command(&self, request: Value) -> Result<(), SessionError> {
        let line = request.get("text").and_then(Value::as_str).unwrap_or_default();
        let Some(arguments) = command::arguments(line) else {
            return Ok(());
        };
        let text = command::run(&arguments).unwrap_or_else(|error| error.to_string());
        let id = request.get("session_id").and_then(Value::as_str).unwrap_or("default");
        let response = json!({"type": "agent_response", "text": text, "is_final": true, "session_id": id});
        Ok(ipc::publish_json("agent.v1.response", &response)?)
    }

    /// Lists past conversations, in no order of time: the session_id, title, beginning and end of each, and when it was
    /// (in seconds since 1970). To find one by what was said in it, use search_conversations. Where next_cursor is not null
    /// there may be more: go on with it as cursor.
    #[astrid::tool("list_threads")]
    fn list_threads(&self, args: ListThreads) -> Result<Value, SessionError> {
        let include_archived = args.include_archived.unwrap_or(false);
        let wanted = Wanted { cursor: args.cursor.as_deref(), limit: LISTED.of(args.limit), include_archived };
        let Listed { entries, next_cursor } = listing::list(wanted, TOOL_BYTES)?;
        Ok(json!({"sessions": entries, "next_cursor": next_cursor}))
    }

    /// Returns the messages of a past conversation, the newest ones where they are many: say how many with limit. omitted is
    /// how many older ones there are: go on to them with offset.
    #[astrid::tool("get_thread")]
    fn get_thread(&self, args: GetThread) -> Result<Value, SessionError> {
        let thread = store::read(request::checked(&args.session_id)?)?.unwrap_or_default();
        let number = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
        let newest = Newest { skipped: args.offset.map_or(0, number), limit: args.limit.map_or(usize::MAX, number) };
        let History { messages, omitted, .. } = history::newest(&thread, newest, TOOL_BYTES, store::read_page);
        Ok(json!({"session_id": args.session_id, "messages": messages, "omitted": omitted}))
    }

    /// Searches past conversations for a text: returns those it is in, with what is around it where it is first. Where
    /// next_cursor is not null there may be more: go on with it as cursor.
    #[astrid::tool("search_conversations")]
    fn search_conversations(&self, args: SearchConversations) -> Result<Value, SessionError> {
        let include_archived = args.include_archived.unwrap_or(false);
        let wanted = Wanted { cursor: args.cursor.as_deref(), limit: FOUND.of(args.limit), include_archived };
        let Listed { entries, next_cursor } = listing::search(&args.query, wanted)?;
        Ok(json!({"results": entries, "next_cursor": next_cursor}))
    }
}

/// The conversation with these messages at its end. Where there are none to add, nothing is written.
fn appended(session_id: &str, messages: &[Value]) -> Result<Thread, SessionError> {
    if messages.is_empty() {
        return Ok(store::read(session_id)?.unwrap_or_default());
    }
    let (now, most_bytes) = (now()?, session_bytes());
    store::change(session_id, |thread| -> Turned {
        thread.touch(now);
        thread.append(messages, most_bytes)
    })
}

/// The summary of a conversation that was changed, None where there is none.
fn updated(session_id: &str, patches: &Patches) -> Result<Option<Value>, SessionError> {
    let now = now()?;
    let changed = store::change_existing(session_id, |thread| {
        thread.touch(now);
        thread.patch(patches)
    })?;
    Ok(changed.map(|thread| {
        let summary = thread.summary(session_id);
        tell("updated", session_id, summary.clone());
        summary
    }))
}

/// Whether there was such a conversation.
fn deleted(session_id: &str) -> Result<bool, SessionError> {
    let deleted = store::delete(session_id)?;
    if deleted {
        tell("deleted", session_id, Value::Null);
    }
    Ok(deleted)
}

/// Tell whoever shows conversations. It is done by now: that nobody can be told is no reason to fail.
fn tell(kind: &str, session_id: &str, summary: Value) {
    let event = json!({"kind": kind, "session_id": session_id, "summary": summary});
    if let Err(error) = ipc::publish_json(&format!("session.v1.event.{kind}"), &event) {
        log::warn(format!("That the session {session_id:?} was {kind} could not be told: {error}"));
    }
}

/// Seconds since 1970.
fn now() -> Result<u64, SessionError> {
    Ok(time::now()?.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}
