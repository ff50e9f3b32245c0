//! What a server wants back with a tool call: signatures of its thoughts, its reasoning. It is kept here, in the store of
//! the principal, and goes back with the call's id to the same model at the same server, and to no other.

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids;

const KEYS: &str = "kept.";
/// So many calls are kept at least, and about twice as many at most; the newest ones.
const MOST: usize = 512;
/// So much of a call at most: of what is longer the texts are cut.
const BYTES: usize = 64 << 10;

/// What goes back with one call.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// Who sent it.
    pub(crate) by: String,
    /// Fields of the call, of its function, and of the message that it begins.
    pub(crate) call: Map<String, Value>,
    pub(crate) function: Map<String, Value>,
    pub(crate) message: Map<String, Value>,
}

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.call.is_empty() && self.function.is_empty() && self.message.is_empty()
    }

    /// Without what is too long to be kept.
    fn bounded(mut self) -> Self {
        for field in self.message.values_mut() {
            if let Value::String(text) = field {
                text.truncate(text.floor_char_boundary(BYTES));
            }
        }
        for fields in [&mut self.call, &mut self.function, &mut self.message] {
            fields.retain(|_, value| value.is_string() || value.to_string().len() <= BYTES);
        }
        self
    }
}

/// Keep what goes back with a call. That it cannot be kept is said in the log: the server may refuse the next request.
pub(crate) fn keep(id: &str, by: &str, kept: Kept) {
    let Some(name) = ids::kept_by(id) else { return };
    let kept = Kept { by: by.to_owned(), ..kept.bounded() };
    if let Err(error) = kv::set_json(&format!("{KEYS}{name}"), &kept) {
        log::warn(format!("what goes back to the model provider with a tool call could not be kept: {error}"));
    }
    // Ids begin with their time. Looking after each call would cost more than it gives.
    if name.ends_with(['0', '8']) {
        forget_the_oldest();
    }
}

/// What goes back with a call, if its id says that something does, and if this model sent it.
pub(crate) fn of(id: &str, by: &str) -> Option<Kept> {
    let name = ids::kept_by(id)?;
    match kv::get_json_opt::<Kept>(&format!("{KEYS}{name}")) {
        Ok(kept) => kept.filter(|kept| kept.by == by),
        Err(error) => {
            log::warn(format!("what goes back to the model provider with a tool call cannot be read: {error}"));
            None
        }
    }
}

fn forget_the_oldest() {
    let forget = || -> Result<(), SysError> {
        let page = kv::list_keys_page(KEYS, None, MOST as u32)?;
        let Some(cursor) = page.next_cursor else { return Ok(()) };
        let newer = kv::list_keys_page(KEYS, Some(&cursor), MOST as u32)?.keys.len();
        page.keys.iter().take(newer).try_for_each(|key| kv::delete(key).map(drop))
    };
    if let Err(error) = forget() {
        log::warn(format!("what old tool calls kept could not be removed: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_is_an_end_to_what_is_kept_of_a_call() {
        let long = Value::from("é".repeat(BYTES));
        let kept = Kept {
            message: Map::from_iter([
                ("reasoning_content".into(), long.clone()),
                ("reasoning_details".into(), json!([long])),
            ]),
            call: Map::from_iter([("extra_content".into(), json!({"a": 1}))]),
            ..Kept::default()
        };
        let kept = kept.bounded();
        assert_eq!(kept.message["reasoning_content"].as_str().map(str::len), Some(BYTES));
        assert!(!kept.message.contains_key("reasoning_details"));
        assert_eq!(kept.call["extra_content"], json!({"a": 1}));
    }
}
