//! The request itself. The SDK's own keeps one value for each header's name, so a repeated header would lose all but one.

use astrid_sdk::SysError;
use astrid_sys::astrid::http::host::{HttpMethod, HttpRequestData, HttpResponseData, KeyValuePair, http_request};

use crate::FetchUrl;
use crate::error::HttpError;

/// Make the request that was asked for.
pub(crate) fn send(args: &FetchUrl) -> Result<HttpResponseData, HttpError> {
    let headers = args.headers.iter().map(|(key, value)| KeyValuePair { key: key.clone(), value: value.clone() });
    let request = HttpRequestData {
        url: args.url.clone(),
        method: method(&args.method),
        headers: headers.collect(),
        body: args.body.as_ref().map(|body| body.clone().into_bytes()),
    };
    http_request(&request).map_err(|error| HttpError::new(&args.url, &SysError::HostError(format!("{error:?}"))))
}

fn method(name: &str) -> HttpMethod {
    match &*name.to_ascii_uppercase() {
        "GET" => HttpMethod::Get,
        "HEAD" => HttpMethod::Head,
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "DELETE" => HttpMethod::Delete,
        "CONNECT" => HttpMethod::Connect,
        "OPTIONS" => HttpMethod::Options,
        "TRACE" => HttpMethod::Trace,
        "PATCH" => HttpMethod::Patch,
        other => HttpMethod::Other(other.to_owned()),
    }
}
