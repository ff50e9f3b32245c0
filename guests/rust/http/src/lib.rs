//! A tool that fetches URLs. The host says which may be, and follows redirects.

mod charset;
mod cut;
mod error;
mod page;
mod request;

use std::collections::BTreeMap;

use astrid_sdk::prelude::*;
use charset::{decode, is_binary, is_html, kind_of};
use cut::{cut, sent};
use error::HttpError;
use page::{Format, told};
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
    /// How a page in HTML is told: raw, as it came (the default); text, what a reader sees; or markdown, with links. Text and
    /// markdown are much shorter.
    #[serde(default)]
    format: Format,
}

fn get() -> String {
    "GET".into()
}

#[derive(Serialize)]
pub struct Fetched<'a> {
    status: u16,
    headers: BTreeMap<&'a str, String>,
    body: &'a str,
    truncated: bool,
    /// What the body was decoded from, where that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    charset: Option<&'static str>,
    /// What there is to say of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Fetches what a URL names.
#[capsule]
impl Http {
    /// Makes an HTTP request and follows redirects. Returns a JSON object: status, headers (a repeated one has its values a
    /// line each), body (its first 200 KiB as text, decoded by its charset) and truncated, which is true when there was more
    /// of the body. For pages, ask for format text or markdown.
    #[astrid::tool("fetch_url")]
    fn fetch_url(&self, args: FetchUrl) -> Result<serde_json::Value, HttpError> {
        let response = request::send(&args)?;
        let headers = joined(response.headers.iter().map(|pair| (&*pair.key, &*pair.value)));
        let content_type = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let content_type = content_type.map_or("", |(_, value)| value.as_str());
        let bytes = &*response.body;
        let room = SENT_BYTES.saturating_sub(sent(&serde_json::to_string(&headers)?));
        if is_binary(bytes, content_type) {
            let kind = Some(kind_of(content_type)).filter(|kind| !kind.is_empty()).unwrap_or_else(|| "no kind".into());
            let note = Some(format!("The body is no text: {} bytes of {kind}. It is left out.", bytes.len()));
            let truncated = !bytes.is_empty();
            let fetched = Fetched { status: response.status, headers, body: "", truncated, charset: None, note };
            return Ok(serde_json::to_value(fetched)?);
        }
        let decoded = decode(bytes, content_type);
        let (text, is_told) = match args.format {
            Format::Raw => (decoded.text, true),
            format if is_html(&decoded.text, content_type) => {
                let (text, is_told) = told(&decoded.text, format);
                (text.into_owned().into(), is_told)
            }
            _ => (decoded.text, true),
        };
        let note = (!is_told).then(|| "The page could not be read as that format: it is as it came.".to_owned());
        let body = cut(&text, BODY_BYTES, room);
        let truncated = body.len() < text.len();
        let charset = (decoded.charset != "UTF-8").then_some(decoded.charset);
        Ok(serde_json::to_value(Fetched { status: response.status, headers, body, truncated, charset, note })?)
    }
}

/// Headers by name. One that comes more than once has a line for each of its values, in order.
fn joined<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<&'a str, String> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        match found.get_mut(name) {
            Some(values) => {
                values.push('\n');
                values.push_str(value);
            }
            None => {
                found.insert(name, value.to_owned());
            }
        }
    }
    found
}
