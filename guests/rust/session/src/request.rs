//! What requests ask for.

use serde_json::Value;

use crate::error::SessionError;

const DEFAULT_SESSION: &str = "default";
/// What a key of the store has room for, after `session.data.`.
const SESSION_ID_BYTES: usize = 240;

/// The conversation a request is about: `default` where it names none.
pub(crate) fn session_id(request: &Value) -> Result<&str, SessionError> {
    match request.get("session_id") {
        None | Some(Value::Null) => Ok(DEFAULT_SESSION),
        Some(Value::String(id)) if id.is_empty() => Ok(DEFAULT_SESSION),
        Some(Value::String(id)) => checked(id),
        Some(other) => Err(SessionError::new(format!("session_id must be a text, not {other}."))),
    }
}

/// A session's id as it is given, unless no conversation can have it.
pub(crate) fn checked(id: &str) -> Result<&str, SessionError> {
    if id.is_empty() || id.len() > SESSION_ID_BYTES || id.contains('\0') {
        let length = id.len();
        return Err(SessionError::new(format!(
            "A session's id has 1 to {SESSION_ID_BYTES} bytes and no NUL character; the one given has {length} bytes."
        )));
    }
    Ok(id)
}

/// By what a request is answered: the last segment of the topic of its reply. Without one nobody can be answered.
pub(crate) fn correlation_id(request: &Value) -> Result<&str, SessionError> {
    match request.get("correlation_id").and_then(Value::as_str) {
        Some(id) if !id.is_empty() && !id.contains('.') => Ok(id),
        _ => Err(SessionError::new("correlation_id must be a text without dots, and not empty.")),
    }
}

/// A page of a list: where it begins, how long it is at most, and whether archived conversations are in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) cursor: Option<&'a str>,
    pub(crate) limit: usize,
    pub(crate) include_archived: bool,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(request: &'a Value, limits: Limits) -> Self {
        Self {
            cursor: request.get("cursor").and_then(Value::as_str),
            limit: limits.of(request.get("limit").and_then(Value::as_u64)),
            include_archived: request.get("include_archived").and_then(Value::as_bool).unwrap_or(false),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    usual: usize,
    most: usize,
}

/// Of conversations in a list.
pub(crate) const LISTED: Limits = Limits { usual: 50, most: 200 };
/// Of conversations that a search finds.
pub(crate) const FOUND: Limits = Limits { usual: 20, most: 100 };

impl Limits {
    pub(crate) fn of(self, given: Option<u64>) -> usize {
        let most = self.most;
        given.map_or(self.usual, |limit| usize::try_from(limit).unwrap_or(most).clamp(1, most))
    }
}

/// What an update changes. None leaves as it is; a text that is None is taken away.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Patches {
    pub(crate) title: Option<Option<String>>,
    pub(crate) meta: Option<Option<String>>,
    pub(crate) archived: Option<bool>,
}

impl Patches {
    /// By presence: a field that is missing, null or of another type changes nothing, an empty text takes away.
    pub(crate) fn of(request: &Value) -> Self {
        let text = |key: &str| {
            let given = request.get(key).and_then(Value::as_str)?;
            Some((!given.is_empty()).then(|| given.to_owned()))
        };
        Self { title: text("title"), meta: text("meta"), archived: request.get("archived").and_then(Value::as_bool) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_that_names_no_session_is_about_the_default_one() {
        for request in [json!({}), json!({"session_id": null}), json!({"session_id": ""}), json!("x")] {
            assert_eq!(session_id(&request).unwrap(), "default");
        }
        assert_eq!(session_id(&json!({"session_id": "a.b"})).unwrap(), "a.b");
    }

    #[test]
    fn a_session_id_that_nothing_can_be_kept_under_is_refused() {
        for id in [json!(5), json!("a\0b"), json!("x".repeat(241))] {
            assert!(session_id(&json!({"session_id": id})).is_err(), "{id}");
        }
    }

    #[test]
    fn a_correlation_id_is_one_segment() {
        assert_eq!(correlation_id(&json!({"correlation_id": "c-1"})).unwrap(), "c-1");
        for request in [json!({}), json!({"correlation_id": ""}), json!({"correlation_id": "a.b"})] {
            assert!(correlation_id(&request).is_err(), "{request}");
        }
    }

    #[test]
    fn limits_are_kept_to() {
        for (given, listed, found) in
            [(json!(null), 50, 20), (json!(0), 1, 1), (json!(7), 7, 7), (json!(1u64 << 40), 200, 100)]
        {
            let request = json!({"limit": given});
            assert_eq!(Wanted::of(&request, LISTED).limit, listed, "{given}");
            assert_eq!(Wanted::of(&request, FOUND).limit, found, "{given}");
        }
    }

    #[test]
    fn an_update_changes_by_presence() {
        let nothing = json!({"title": null, "meta": 5, "archived": "yes"});
        assert_eq!(Patches::of(&nothing), Patches::default());
        let expected = Patches { title: Some(None), meta: Some(Some("m".into())), archived: Some(false) };
        assert_eq!(Patches::of(&json!({"title": "", "meta": "m", "archived": false})), expected);
    }
}
