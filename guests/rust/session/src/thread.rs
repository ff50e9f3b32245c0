//! A conversation as it is kept: what is known of it, where its older messages are, and the newest ones themselves.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::SessionError;
use crate::message::{clipped, role, size, text};
use crate::request::Patches;

/// 0 to 2 are those of Astrid's session, which keeps all messages in one value; from 3 on older ones are in pages.
pub(crate) const SCHEMA: u32 = 3;
const PAGE_BYTES: usize = 64 << 10;
const META_BYTES: usize = 8 << 10;
const TITLE_BYTES: usize = 1 << 10;
const PREVIEW_CHARACTERS: usize = 80;

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Thread {
    pub(crate) schema_version: u32,
    pub(crate) parent_session_id: Option<String>,
    /// Seconds since 1970, like `updated_at`.
    pub(crate) created_at: Option<u64>,
    pub(crate) updated_at: Option<u64>,
    pub(crate) title: Option<String>,
    pub(crate) archived: bool,
    pub(crate) meta: Option<String>,
    /// Of what is in pages; what `messages` tell is added when it is asked for.
    pub(crate) preview: Option<String>,
    pub(crate) last_message_preview: Option<String>,
    /// The oldest first.
    pub(crate) pages: Vec<Page>,
    /// How many messages the conversation once had before those in pages.
    pub(crate) dropped: usize,
    pub(crate) messages: Vec<Value>,
}

/// A part of a conversation that does not change any more, under a key of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Page {
    pub(crate) id: String,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// What a change makes of pages: those to write before the thread is, and those to delete after it.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    pub(crate) written: Vec<(Page, Vec<Value>)>,
    pub(crate) dropped: Vec<Page>,
}

impl Thread {
    pub(crate) fn child_of(parent: &str, now: u64) -> Self {
        let parent_session_id = Some(parent.to_owned());
        Self { parent_session_id, schema_version: SCHEMA, ..Self::default() }.touched(now)
    }

    fn touched(mut self, now: u64) -> Self {
        self.touch(now);
        self
    }

    pub(crate) fn touch(&mut self, now: u64) {
        self.created_at.get_or_insert(now);
        self.updated_at = Some(now);
    }

    /// How many messages are kept.
    pub(crate) fn count(&self) -> usize {
        self.pages.iter().map(|page| page.messages).sum::<usize>() + self.messages.len()
    }

    /// Add messages at the end. What is full of older ones becomes a page; where pages have more than `most_bytes`
    /// together, the oldest are dropped.
    pub(crate) fn append(&mut self, messages: &[Value], most_bytes: usize) -> Turned {
        let mut turned = Turned::default();
        let mut bytes: usize = self.messages.iter().map(size).sum();
        for message in messages {
            let more = size(message);
            if bytes + more > PAGE_BYTES && !self.messages.is_empty() {
                turned.written.push(self.turn(bytes));
                bytes = 0;
            }
            bytes += more;
            self.messages.push(message.clone());
        }
        self.drop_oldest(most_bytes.saturating_sub(bytes), &mut turned);
        turned
    }

    fn turn(&mut self, bytes: usize) -> (Page, Vec<Value>) {
        self.preview = self.preview();
        self.last_message_preview = self.last_message_preview();
        let messages = std::mem::take(&mut self.messages);
        let page = Page { id: Uuid::new_v4().to_string(), messages: messages.len(), bytes };
        self.pages.push(page.clone());
        (page, messages)
    }

    fn drop_oldest(&mut self, most_bytes: usize, turned: &mut Turned) {
        let mut bytes: usize = self.pages.iter().map(|page| page.bytes).sum();
        while bytes > most_bytes && !self.pages.is_empty() {
            let page = self.pages.remove(0);
            bytes -= page.bytes;
            self.dropped += page.messages;
            turned.written.retain(|(written, _)| written.id != page.id);
            turned.dropped.push(page);
        }
    }

    /// Change what a client may change.
    ///
    /// Fails, and changes nothing, where a text is longer than may be.
    pub(crate) fn patch(&mut self, patches: &Patches) -> Result<(), SessionError> {
        for (name, patch, most) in [("meta", &patches.meta, META_BYTES), ("title", &patches.title, TITLE_BYTES)] {
            if let Some(Some(text)) = patch
                && text.len() > most
            {
                let length = text.len();
                return Err(SessionError::new(format!("A session's {name} has at most {most} bytes, not {length}.")));
            }
        }
        if let Some(title) = &patches.title {
            self.title.clone_from(title);
        }
        if let Some(meta) = &patches.meta {
            self.meta.clone_from(meta);
        }
        if let Some(archived) = patches.archived {
            self.archived = archived;
        }
        Ok(())
    }

    /// What a list tells of a conversation: the record `session-summary` of the interface.
    pub(crate) fn summary(&self, session_id: &str) -> Value {
        json!({
            "session_id": session_id,
            "title": self.title,
            "preview": self.preview(),
            "last_message_preview": self.last_message_preview(),
            "message_count": self.count(),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "archived": self.archived,
            "parent_session_id": self.parent_session_id,
            "meta": self.meta,
        })
    }

    fn preview(&self) -> Option<String> {
        let first = || self.messages.iter().find(|message| role(message) == "user").and_then(text);
        self.preview.clone().or_else(|| first().map(previewed))
    }

    fn last_message_preview(&self) -> Option<String> {
        let last = self.messages.iter().rev().find_map(text);
        last.map(previewed).or_else(|| self.last_message_preview.clone())
    }
}

fn previewed(text: &str) -> String {
    clipped(text.trim(), PREVIEW_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn grown(count: usize, most_bytes: usize) -> (Thread, Vec<Page>, Vec<Page>) {
        let (mut written, mut dropped) = (Vec::new(), Vec::new());
        let mut thread = Thread::default();
        for number in 0..count {
            let turned = thread.append(&[user(&format!("{number} {}", "x".repeat(30 << 10)))], most_bytes);
            written.extend(turned.written.into_iter().map(|(page, _)| page));
            dropped.extend(turned.dropped);
        }
        (thread, written, dropped)
    }

    #[test]
    fn what_is_full_becomes_a_page() {
        let (thread, written, dropped) = grown(7, usize::MAX);
        assert_eq!(thread.pages.iter().map(|page| page.messages).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!((thread.messages.len(), thread.count(), thread.dropped), (1, 7, 0));
        assert_eq!((written, dropped), (thread.pages.clone(), vec![]));
        assert!(thread.pages.iter().all(|page| page.bytes <= PAGE_BYTES));
    }

    #[test]
    fn the_oldest_pages_of_a_long_conversation_are_dropped_and_counted() {
        let (thread, written, dropped) = grown(9, 150 << 10);
        assert_eq!(written.len(), 4);
        assert_eq!([dropped, thread.pages.clone()].concat(), written);
        assert_eq!(thread.count() + thread.dropped, 9);
        assert!(thread.dropped > 0);
    }

    #[test]
    fn a_page_that_would_be_dropped_at_once_is_not_written() {
        let mut thread = Thread::default();
        let messages: Vec<Value> = (0..9).map(|_| user(&"x".repeat(30 << 10))).collect();
        let turned = thread.append(&messages, 100 << 10);
        let written: Vec<Page> = turned.written.into_iter().map(|(page, _)| page).collect();
        assert_eq!(written, thread.pages);
        assert_eq!((thread.count(), thread.dropped), (3, 6));
    }

    #[test]
    fn a_message_of_any_size_has_its_place() {
        let mut thread = Thread::default();
        let turned = thread.append(&[user("a"), user(&"x".repeat(900 << 10)), user("b")], usize::MAX);
        assert_eq!(turned.written.len(), 2);
        assert_eq!((thread.count(), thread.messages.len()), (3, 1));
    }

    #[test]
    fn previews_outlive_the_turning_of_pages() {
        let long = "y".repeat(60 << 10);
        let mut thread = Thread::default();
        thread.append(&[json!({"role": "assistant", "content": "welcome"}), user(" first \n")], usize::MAX);
        thread.append(&[json!({"role": "assistant", "content": "last text"})], usize::MAX);
        let calls = json!({"role": "assistant", "content": [{"id": "1", "name": "x", "arguments": {"a": long}}]});
        thread.append(&[calls.clone(), calls], usize::MAX);
        let summary = thread.summary("s");
        assert_eq!(thread.pages.len(), 1);
        assert_eq!((&summary["preview"], &summary["last_message_preview"]), (&json!("first"), &json!("last text")));
        assert_eq!(summary["message_count"], 5);
    }

    #[test]
    fn a_summary_of_nothing_has_all_its_fields() {
        let summary = Thread::default().summary("s");
        let expected = json!({
            "session_id": "s", "title": null, "preview": null, "last_message_preview": null, "message_count": 0,
            "created_at": null, "updated_at": null, "archived": false, "parent_session_id": null, "meta": null,
        });
        assert_eq!(summary, expected);
    }

    #[test]
    fn a_patch_changes_what_it_names_or_nothing() {
        let mut thread = Thread { title: Some("old".into()), meta: Some("m".into()), ..Thread::default() };
        let archived = Patches { archived: Some(true), ..Patches::default() };
        thread.patch(&archived).unwrap();
        assert_eq!((thread.title.as_deref(), thread.meta.as_deref(), thread.archived), (Some("old"), Some("m"), true));
        let before = thread.clone();
        let too_long = Patches { title: Some(None), meta: Some(Some("x".repeat(META_BYTES + 1))), archived: None };
        assert!(thread.patch(&too_long).unwrap_err().to_string().contains("at most 8192 bytes"));
        assert_eq!(thread, before);
        let most = Patches { title: Some(None), meta: Some(Some("x".repeat(META_BYTES))), archived: None };
        thread.patch(&most).unwrap();
        assert_eq!((thread.title, thread.meta.map(|meta| meta.len())), (None, Some(META_BYTES)));
    }

    #[test]
    fn the_first_touch_creates_and_the_last_one_updates() {
        let thread = Thread::child_of("p", 5).touched(7);
        assert_eq!((thread.created_at, thread.updated_at), (Some(5), Some(7)));
        assert_eq!(thread.parent_session_id.as_deref(), Some("p"));
    }

    #[test]
    fn what_astrids_session_wrote_is_read() {
        let thread: Thread = serde_json::from_str(r#"{"messages":[{"role":"user","content":"hi"}]}"#).unwrap();
        assert_eq!((thread.schema_version, thread.count()), (0, 1));
    }
}
