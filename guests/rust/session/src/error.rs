//! What went wrong, in words that a person or a model can act on.

use std::fmt;

use astrid_sdk::SysError;

#[derive(Debug)]
pub struct SessionError(String);

impl SessionError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What is kept of a conversation is not what this capsule writes. It is left as it is.
    pub(crate) fn unreadable(session_id: &str, why: impl fmt::Display) -> Self {
        Self(format!("The session {session_id:?} cannot be read: {why}. Start another one, or delete it."))
    }

    pub(crate) fn contended(session_id: &str, attempts: usize) -> Self {
        Self(format!("The session {session_id:?} was changed by others {attempts} times meanwhile: try again."))
    }
}

impl From<SysError> for SessionError {
    fn from(error: SysError) -> Self {
        let text = error.to_string();
        Self(match text.rsplit_once("ErrorCode::") {
            Some((_, "TooLarge")) => "This is too large to be kept.".to_owned(),
            Some((_, "RateLimited")) => "Too much was asked for in one second: try again.".to_owned(),
            Some((_, "Quota")) => "There is no room left for conversations.".to_owned(),
            _ => format!("Conversations cannot be reached: {text}"),
        })
    }
}

impl From<serde_json::Error> for SessionError {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("This cannot be written as JSON: {error}"))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SessionError {}
