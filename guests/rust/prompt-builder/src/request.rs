//! What is asked for, and what is answered.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// `prompt_builder.v1.assemble`.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) request_id: String,
    pub(crate) session_id: Option<String>,
    #[serde(default)]
    pub(crate) system_prompt: String,
    #[serde(default)]
    pub(crate) messages: Value,
    #[serde(default)]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) provider: String,
}

/// `prompt_builder.v1.response.assemble`.
#[derive(Debug, Serialize)]
pub(crate) struct Response<'a> {
    pub(crate) system_prompt: &'a str,
    /// Stands before the last text of the user, for this request alone.
    pub(crate) user_context_prefix: &'a str,
    pub(crate) request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<&'a str>,
    pub(crate) tools: &'a [Map<String, Value>],
    pub(crate) messages: &'a [Value],
}

/// Read a request, which may be in `data`.
///
/// # Errors
///
/// What is wrong with it, as the response that says so: with its ids as far as they can be read.
pub(crate) fn read(mut payload: Value) -> Result<Request, Value> {
    if payload.get("request_id").is_none()
        && let Some(data) = payload.get_mut("data")
    {
        payload = data.take();
    }
    let request_id = payload.get("request_id").cloned();
    let session_id = payload.get("session_id").cloned();
    let refused = |why: String| failure(&why, request_id.as_ref(), session_id.as_ref());
    let request: Request =
        serde_json::from_value(payload).map_err(|error| refused(format!("invalid request: {error}")))?;
    match request.request_id.as_str() {
        "" => Err(refused("missing request_id".into())),
        id if id.contains('*') => {
            Err(refused(format!("request_id is no pattern: it may not have a '*' as {id:?} has")))
        }
        _ => Ok(request),
    }
}

/// The response of a request that came to nothing.
pub(crate) fn failure(why: &str, request_id: Option<&Value>, session_id: Option<&Value>) -> Value {
    let mut response = json!({ "error": why });
    for (key, value) in [("request_id", request_id), ("session_id", session_id)] {
        if let Some(value) = value.filter(|value| value.is_string()) {
            response[key] = value.clone();
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_only_its_id() {
        let request = read(json!({"request_id": "r"})).unwrap();
        assert_eq!((request.request_id.as_str(), request.session_id), ("r", None));
        assert_eq!((request.system_prompt.as_str(), request.messages), ("", Value::Null));
        let request = read(json!({"data": {"request_id": "r", "session_id": "s", "model": "m"}})).unwrap();
        assert_eq!((request.session_id.as_deref(), request.model.as_str()), (Some("s"), "m"));
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_its_ids() {
        let refused = |payload: Value| read(payload).unwrap_err();
        let response = refused(json!({"request_id": "r", "session_id": "s", "model": 1}));
        assert!(response["error"].as_str().unwrap().starts_with("invalid request"));
        assert_eq!((&response["request_id"], &response["session_id"]), (&json!("r"), &json!("s")));
        assert_eq!(refused(json!({"session_id": "s", "request_id": ""}))["error"], "missing request_id");
        for payload in [json!({}), json!([]), json!(null), json!({"request_id": 1}), json!({"request_id": "*"})] {
            assert!(refused(payload)["error"].is_string());
        }
    }
}
