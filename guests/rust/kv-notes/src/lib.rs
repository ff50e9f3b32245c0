//! Notes: short texts under keys. The host keeps the notes of each principal apart.

mod error;
mod nearest;

use astrid_sdk::prelude::*;
use error::NoteError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// What the store's keys of notes begin with, so that notes never meet anything else that a capsule keeps there.
const PREFIX: &str = "note.";
const KEY_BYTES: usize = 200;
/// How many keys one list has, and how many bytes of them as JSON: a model has no use for more at once.
const LISTED: usize = 1000;
const MOST_LISTED: usize = 5000;
const LISTED_BYTES: usize = 256 << 10;
/// Among so many keys one is looked for that was probably meant.
const COMPARED: usize = 5000;

#[derive(Default)]
pub struct KvNotes;

#[derive(Deserialize, JsonSchema)]
pub struct NoteSave {
    /// What the note is found by later: 1 to 200 bytes.
    key: String,
    /// The note.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct NoteRead {
    /// What the note was saved under.
    key: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct NoteList {
    /// How many keys at most: 1000 by default, 5000 at most.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<u64>,
    /// To go on with a list that was cut: the last key that it had. Keys after this one are listed.
    after: Option<String>,
}

/// Keeps short texts under keys of one's own choice.
#[capsule]
impl KvNotes {
    /// Keeps a text under a key, in place of what was kept there before.
    #[astrid::tool("note_save", mutable)]
    fn note_save(&self, args: NoteSave) -> Result<String, NoteError> {
        kv::set_bytes(&stored(&args.key)?, args.text.as_bytes()).map_err(NoteError::store)?;
        Ok(format!("Saved the note {:?}.", args.key))
    }

    /// Returns the text that is kept under a key.
    #[astrid::tool("note_read")]
    fn note_read(&self, args: NoteRead) -> Result<String, NoteError> {
        match kv::get_bytes_opt(&stored(&args.key)?).map_err(NoteError::store)? {
            Some(bytes) => String::from_utf8(bytes).map_err(|_| NoteError::not_text(&args.key)),
            None => Err(NoteError::unknown(&args.key, &keys(None, COMPARED, usize::MAX)?.keys)),
        }
    }

    /// Lists the keys of notes, sorted, as a JSON array. A list that is cut is an object instead: {"keys": […], "more": true};
    /// to go on with it, call this again with the last of its keys as after.
    #[astrid::tool("note_list")]
    fn note_list(&self, args: NoteList) -> Result<Value, NoteError> {
        let limit = args.limit.map_or(LISTED, |limit| usize::try_from(limit).unwrap_or(MOST_LISTED));
        let Page { keys, more } = keys(args.after.as_deref(), limit.clamp(1, MOST_LISTED), LISTED_BYTES)?;
        Ok(if more { json!({"keys": keys, "more": true}) } else { json!(keys) })
    }
}

/// Where a note is kept.
fn stored(key: &str) -> Result<String, NoteError> {
    if key.is_empty() || key.len() > KEY_BYTES || key.contains('\0') {
        return Err(NoteError::key(key, KEY_BYTES));
    }
    Ok(format!("{PREFIX}{key}"))
}

/// A part of the keys, sorted, and whether more follow.
struct Page {
    keys: Vec<String>,
    more: bool,
}

/// At most `limit` of the keys that come after `after`, of at most `most_bytes` as JSON (but one at least).
fn keys(after: Option<&str>, limit: usize, most_bytes: usize) -> Result<Page, NoteError> {
    let mut cursor = after.map(|key| format!("{PREFIX}{key}"));
    let mut page = Page { keys: Vec::new(), more: false };
    let mut bytes = 0;
    loop {
        let wanted = u32::try_from(limit - page.keys.len() + 1).unwrap_or(u32::MAX);
        let found = kv::list_keys_page(PREFIX, cursor.as_deref(), wanted).map_err(NoteError::store)?;
        for key in found.keys.iter().filter_map(|key| key.strip_prefix(PREFIX)) {
            bytes += json!(key).to_string().len() + 1;
            if page.keys.len() == limit || (bytes > most_bytes && !page.keys.is_empty()) {
                page.more = true;
                return Ok(page);
            }
            page.keys.push(key.to_owned());
        }
        match found.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(page),
        }
    }
}
