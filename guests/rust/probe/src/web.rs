//! http, both versions.

use crate::Said;
use crate::bindings::astrid::http1_0_0::host as v10;
use crate::bindings::astrid::http1_1_0::host as v11;

macro_rules! request {
    ($version:ident, $url:expr, $method:expr, $body:expr) => {
        $version::HttpRequestData {
            url: $url,
            method: $method,
            headers: vec![$version::KeyValuePair { key: "x-probe".into(), value: "yes".into() }],
            body: $body,
        }
    };
}

macro_rules! streamed {
    ($said:ident, $stream:ident) => {
        $said.tell("[method]http-stream.status", $stream.status());
        $said.tell("[method]http-stream.headers", $stream.headers());
        let readable = $said.note("[method]http-stream.subscribe-readable", $stream.subscribe_readable());
        $said.tell("[method]pollable.block", readable.block());
        $said.tell("[method]http-stream.read-chunk", $stream.read_chunk());
        $said.tell("[method]http-stream.read-chunk", $stream.read_chunk());
    };
}

pub fn http10(said: &mut Said, server: &str) {
    use v10::HttpMethod::{Get, Other, Post};
    said.tell("http-request", v10::http_request(&request!(v10, format!("{server}/a"), Get, None)));
    let posted = request!(v10, format!("{server}/b"), Post, Some(b"a body".to_vec()));
    said.tell("http-request", v10::http_request(&posted));
    let strange = request!(v10, "gopher://example.org".into(), Other("BREW".into()), None);
    said.tell("http-request", v10::http_request(&strange));
    let started = v10::http_stream_start(&request!(v10, format!("{server}/c"), Get, None));
    if let Ok(stream) = said.note("http-stream-start", started) {
        streamed!(said, stream);
        said.tell("[method]http-stream.close", stream.close());
        said.tell("[method]http-stream.read-chunk", stream.read_chunk());
    }
    let started = v10::http_stream_start(&request!(v10, format!("{server}/d"), Get, None));
    if let Ok(stream) = said.note("http-stream-start", started) {
        let body = said.note("[method]http-stream.body-stream", stream.body_stream());
        said.tell("[method]input-stream.blocking-read", body.blocking_read(5));
    }
}

pub fn http11(said: &mut Said, server: &str) {
    use v11::HttpMethod::{Get, Put};
    said.tell("http-request", v11::http_request(&request!(v11, format!("{server}/a"), Get, None)));
    let options = options();
    let asked = v11::http_request_opts(&request!(v11, format!("{server}/b"), Get, None), &options);
    said.tell("http-request-opts", asked);
    let secure = v11::RequestOptions { https_only: Some(true), ..options.clone() };
    let refused = v11::http_request_opts(&request!(v11, format!("{server}/b"), Get, None), &secure);
    said.tell("http-request-opts", refused);
    let started = v11::http_stream_start(&request!(v11, format!("{server}/c"), Get, None));
    if let Ok(stream) = said.note("http-stream-start", started) {
        streamed!(said, stream);
        said.tell("[method]http-stream.trailers", stream.trailers());
        said.tell("[method]http-stream.close", stream.close());
    }
    let started = v11::http_stream_start_opts(&request!(v11, format!("{server}/d"), Get, None), &options);
    if let Ok(stream) = said.note("http-stream-start-opts", started) {
        let body = said.note("[method]http-stream.body-stream", stream.body_stream());
        said.tell("[method]input-stream.blocking-read", body.blocking_read(5));
    }
    let started = v11::http_upload_start(&request!(v11, format!("{server}/e"), Put, None), &options);
    if let Ok(upload) = said.note("http-upload-start", started) {
        uploaded(said, &upload);
    }
}

fn uploaded(said: &mut Said, upload: &v11::HttpUpload) {
    let writable = said.note("[method]http-upload.subscribe-writable", upload.subscribe_writable());
    said.tell("[method]pollable.block", writable.block());
    {
        let sink = said.note("[method]http-upload.body-sink", upload.body_sink());
        said.tell("[method]output-stream.blocking-write-and-flush", sink.blocking_write_and_flush(b"upload"));
    }
    if let Ok(stream) = said.note("[method]http-upload.finish", upload.finish()) {
        said.tell("[method]http-stream.status", stream.status());
        said.tell("[method]http-stream.read-chunk", stream.read_chunk());
    }
}

fn options() -> v11::RequestOptions {
    v11::RequestOptions {
        timeouts: Some(v11::TimeoutConfig {
            connect_ms: Some(5000),
            first_byte_ms: None,
            between_bytes_ms: Some(5000),
            total_ms: Some(9000),
        }),
        redirect: Some(v11::RedirectPolicy::Error),
        max_redirects: Some(3),
        max_response_bytes: Some(1000),
        max_decompressed_bytes: None,
        auto_decompress: Some(true),
        https_only: Some(false),
        integrity: None,
    }
}
