//! What went wrong, in words that a model can act on.

use std::fmt;

use astrid_sdk::SysError;

use crate::nearest::nearest;

const SHOWN: usize = 5;

#[derive(Debug)]
pub struct NoteError(String);

impl NoteError {
    /// There is no note under this key; `keys` are those that there are.
    pub(crate) fn unknown(key: &str, keys: &[String]) -> Self {
        let alike = nearest(key, keys, SHOWN);
        let hint = match (alike.as_slice(), keys) {
            ([], []) => "There are no notes yet: save one with note_save.".to_owned(),
            ([], _) => "note_list tells the keys of all notes.".to_owned(),
            (alike, _) => format!("Was one of these meant? {}", quoted(alike)),
        };
        Self(format!("There is no note {key:?}. {hint}"))
    }

    pub(crate) fn key(key: &str, most: usize) -> Self {
        let length = key.len();
        Self(format!("A note's key has 1 to {most} bytes and no NUL character; the one given has {length} bytes."))
    }

    pub(crate) fn not_text(key: &str) -> Self {
        Self(format!("What is kept under {key:?} is not text in UTF-8."))
    }

    pub(crate) fn store(error: SysError) -> Self {
        let text = error.to_string();
        Self(match text.rsplit_once("ErrorCode::") {
            Some((_, "TooLarge")) => "The note is too large to be kept: save it in parts.".to_owned(),
            Some((_, "Quota")) => "There is no room for more notes.".to_owned(),
            _ => format!("The notes cannot be reached: {text}"),
        })
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(key: &str, keys: &[&str]) -> String {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        NoteError::unknown(key, &keys).to_string()
    }

    #[test]
    fn an_unknown_key_is_told_with_those_like_it() {
        let text = unknown("tod", &["groceries", "todo"]);
        assert_eq!(text, r#"There is no note "tod". Was one of these meant? "todo""#);
    }

    #[test]
    fn an_unknown_key_is_told_with_how_to_find_the_others() {
        assert_eq!(unknown("a", &["xyz", "uvw"]), r#"There is no note "a". note_list tells the keys of all notes."#);
        assert_eq!(unknown("a", &[]), r#"There is no note "a". There are no notes yet: save one with note_save."#);
    }

    #[test]
    fn the_stores_errors_are_told_in_words() {
        let told = |case: &str| NoteError::store(SysError::HostError(format!("ErrorCode::{case}"))).to_string();
        assert_eq!(told("TooLarge"), "The note is too large to be kept: save it in parts.");
        assert!(told("InvalidKey").ends_with("ErrorCode::InvalidKey"));
    }
}
