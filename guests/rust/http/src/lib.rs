//! A tool that fetches URLs. The host says which may be, and follows redirects.

mod cut;
mod error;

use std::collections::BTreeMap;

use astrid_sdk::prelude::*;
use cut::{cut, sent};
use error::HttpError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of a body is returned.
const BODY_BYTES: usize = 200 << 10;
/// The room in a result: a message has at most 1 MiB, and what came is not all that is in it.
const SENT_BYTES: usize = (1 << 20) - (16 << 10);

#[derive(Default)]
pub struct Http;

#[derive(Deserialize, JsonSchema)]
pub struct FetchUrl {
    /// What to fetch: an http or https URL.
    url: String,
    /// GET by default.
    #[serde(default = "get")]
    method: String,
    /// The headers to send, by name.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The text to send.
    body: Option<String>,
}

fn get() -> String {
    "GET".into()
}

#[derive(Serialize)]
pub struct Fetched<'a> {
    status: u16,
    headers: BTreeMap<&'a str, &'a str>,
    body: &'a str,
    truncated: bool,
}

/// Fetches what a URL names.
#[capsule]
impl Http {
    /// Makes an HTTP request and follows redirects. Returns a JSON object: status, headers, body (its first 200 KiB as
    /// text) and truncated, which is true when there was more of the body.
    #[astrid::tool("fetch_url")]
    fn fetch_url(&self, args: FetchUrl) -> Result<serde_json::Value, HttpError> {
        let mut request = http::Request::new(&args.method, &args.url);
        for (name, value) in &args.headers {
            request = request.header(name, value);
        }
        if let Some(body) = args.body {
            request = request.body(body);
        }
        let response = http::send(&request).map_err(|error| HttpError::new(&args.url, &error))?;
        let headers: BTreeMap<_, _> = response.headers().iter().map(|(name, value)| (&**name, &**value)).collect();
        let text = String::from_utf8_lossy(response.bytes());
        let room = SENT_BYTES.saturating_sub(sent(&serde_json::to_string(&headers)?));
        let body = cut(&text, BODY_BYTES, room);
        let truncated = body.len() < text.len();
        Ok(serde_json::to_value(Fetched { status: response.status(), headers, body, truncated })?)
    }
}
