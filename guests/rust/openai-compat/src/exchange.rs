//! A request to the server, and its response as it comes.

use std::time::Duration;

use astrid_sdk::prelude::log;
use astrid_sys::astrid::io::poll::{Pollable, poll};

use crate::bindings::astrid::http::host::{
    self, ErrorCode, HttpMethod, HttpRequestData, HttpStream, KeyValuePair, RequestOptions, TimeoutConfig,
};
use crate::cancelling::Cancelling;
use crate::failure::retry_after;
use crate::settings::Settings;

/// What there is to say after waiting for more of a response.
pub(crate) enum More {
    Bytes(Vec<u8>),
    End,
    /// Nothing came yet; it is time to look at the clock.
    Nothing,
    Cancelled,
}

/// A response whose headers are there. Dropped, its connection is closed.
pub(crate) struct Response {
    // Dropped in this order: what is readable belongs to the stream.
    readable: Pollable,
    stream: HttpStream,
    pub(crate) status: u16,
    headers: Vec<KeyValuePair>,
}

/// Ask for a completion. `headers`: how long until the response begins, `silence`: between two pieces of it, `total`:
/// until its end.
pub(crate) fn ask(
    settings: &Settings,
    body: &[u8],
    headers: Duration,
    silence: Duration,
    total: Duration,
) -> Result<Response, ErrorCode> {
    let request = request(settings, HttpMethod::Post, "chat/completions", Some(body));
    let stream = host::http_stream_start_opts(&request, &options(headers, silence, total))?;
    let (status, headers) = (stream.status(), stream.headers());
    Ok(Response { readable: stream.subscribe_readable(), stream, status, headers })
}

/// Ask which models there are; the status and the whole response.
pub(crate) fn models(settings: &Settings) -> Result<(u16, Vec<u8>), ErrorCode> {
    let within = settings.discovery;
    let request = request(settings, HttpMethod::Get, "models", None);
    let response = host::http_request_opts(&request, &options(within, within, within))?;
    Ok((response.status, response.body))
}

impl Response {
    /// Whether the server answers in a stream of events, or at least does not say that it does not.
    pub(crate) fn is_stream(&self) -> bool {
        !self.header("content-type").is_some_and(|kind| kind.trim_start().starts_with("application/json"))
    }

    /// How long the server asks to wait before the next request.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(|name| self.header(name))
    }

    /// Wait for more, or for the request to be cancelled.
    pub(crate) fn more(&self, cancelling: Option<&Cancelling>) -> Result<More, ErrorCode> {
        if let Some(cancelling) = cancelling {
            if cancelling.asked() {
                return Ok(More::Cancelled);
            }
            match poll(&[&self.readable, cancelling.ready()]) {
                Ok(ready) if !ready.contains(&0) => return Ok(More::Nothing),
                Ok(_) => {}
                Err(error) => log::warn(format!("reading without listening: {error:?}")),
            }
        }
        let bytes = self.stream.read_chunk()?;
        Ok(if bytes.is_empty() { More::End } else { More::Bytes(bytes) })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|pair| pair.key.eq_ignore_ascii_case(name)).map(|pair| pair.value.as_str())
    }
}

fn request(settings: &Settings, method: HttpMethod, endpoint: &str, body: Option<&[u8]>) -> HttpRequestData {
    let mut headers = vec![pair("accept", "text/event-stream, application/json")];
    if !settings.api_key.is_empty() {
        headers.push(pair("authorization", &format!("Bearer {}", settings.api_key)));
        if settings.is_azure() {
            headers.push(pair("api-key", &settings.api_key));
        }
    }
    if body.is_some() {
        headers.push(pair("content-type", "application/json"));
    }
    HttpRequestData { url: settings.url(endpoint), method, headers, body: body.map(<[u8]>::to_vec) }
}

fn pair(key: &str, value: &str) -> KeyValuePair {
    KeyValuePair { key: key.into(), value: value.into() }
}

fn options(headers: Duration, silence: Duration, total: Duration) -> RequestOptions {
    let milliseconds = |time: Duration| Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
    RequestOptions {
        timeouts: Some(TimeoutConfig {
            connect_ms: milliseconds(headers.min(Duration::from_secs(30))),
            first_byte_ms: milliseconds(headers),
            between_bytes_ms: milliseconds(silence),
            total_ms: milliseconds(total),
        }),
        redirect: None,
        max_redirects: None,
        max_response_bytes: None,
        max_decompressed_bytes: None,
        auto_decompress: None,
        https_only: None,
        integrity: None,
    }
}
