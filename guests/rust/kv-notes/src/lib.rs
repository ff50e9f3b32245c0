//! Notes: short texts under keys. The host keeps the notes of each principal apart.

mod error;
mod nearest;

use astrid_sdk::prelude::*;
use error::NoteError;
use schemars::JsonSchema;
use serde::Deserialize;

/// What the store's keys of notes begin with, so that notes never meet anything else that a capsule keeps there.
const PREFIX: &str = "note.";
const KEY_BYTES: usize = 200;

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
pub struct NoteList {}

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
            None => Err(NoteError::unknown(&args.key, &keys()?)),
        }
    }

    /// Lists the keys of all notes, sorted, as a JSON array.
    #[astrid::tool("note_list")]
    fn note_list(&self, _args: NoteList) -> Result<Vec<String>, NoteError> {
        keys()
    }
}

/// Where a note is kept.
fn stored(key: &str) -> Result<String, NoteError> {
    if key.is_empty() || key.len() > KEY_BYTES || key.contains('\0') {
        return Err(NoteError::key(key, KEY_BYTES));
    }
    Ok(format!("{PREFIX}{key}"))
}

/// The keys of all notes, sorted.
fn keys() -> Result<Vec<String>, NoteError> {
    let mut keys = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = kv::list_keys_page(PREFIX, cursor.as_deref(), 0).map_err(NoteError::store)?;
        keys.extend(page.keys.iter().filter_map(|key| key.strip_prefix(PREFIX)).map(str::to_owned));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(keys),
        }
    }
}
