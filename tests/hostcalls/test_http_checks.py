"""astrid:http, what a guest may say: URLs with one reading only, headers that cannot break out, methods."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from http_functions import options, request
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.hostcalls.http.requests import (
    BODY_BYTES,
    STREAM,
    STREAM_1_1,
    WHOLE,
    WHOLE_1_1,
    method_of,
    read_request,
    terms_of,
)
from astrid_host.hostcalls.http.urls import join, outline, read_url
from astrid_host.stores.secrets import SecretStore

READ = [
    ("http://example.com", "http", "example.com", 80, "/"),
    ("HTTPS://Example.COM./a", "https", "example.com", 443, "/a"),
    ("http://example.com:8080?q", "http", "example.com", 8080, "/?q"),
    ("http://example.com:/x#frag", "http", "example.com", 80, "/x"),
    ("http://user:pw@example.com/x", "http", "example.com", 80, "/x"),
    ("http://a@b@example.com/x", "http", "example.com", 80, "/x"),
    ("http://[::1]:99/", "http", "::1", 99, "/"),
    ("http://[0:0:0:0:0:0:0:1]/", "http", "::1", 80, "/"),
    ("http://bücher.example/ü?ü", "http", "xn--bcher-kva.example", 80, "/%C3%BC?%C3%BC"),
    ('http://example.com/a b"<>`{}|^\\', "http", "example.com", 80, "/a%20b%22%3C%3E%60%7B%7D%7C%5E%5C"),
    ("http://example.com/%41%zz", "http", "example.com", 80, "/%41%zz"),
    ("http://example.com/a?b=c?d&e=[1]", "http", "example.com", 80, "/a?b=c?d&e=[1]"),
]
NONE = [
    "",
    "example.com",
    "//example.com/",
    "http:example.com",
    "http:/example.com",
    "http://",
    "http:///path",
    "http://exa mple.com/",
    "http://exam%70le.com/",
    "http://example.com\\@evil.org/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://example.com:8x/",
    "http://[::1/",
    "http://[fe80::1%eth0]/",
    "http://[v1.x]/",
    "http://[1.2.3.4]/",
    "http://-.example/",
    "http://.example/",
    "http://exa\tmple.com/",
    "http://example.com/\r\nHost: evil",
    "http://example.com/\x00",
    "http://*/",
    "http://ex*mple.com/",
    "http://\u202e.example/",
    "http://example.com/" + "a" * 20_000,
    "http://" + "a" * 254 + "/",
    "http://" + "ü" * 5_000 + "/",
]


@pytest.mark.parametrize(("text", "scheme", "host", "port", "path"), READ)
def test_a_url_is_read(text: str, scheme: str, host: str, port: int, path: str) -> None:
    url = read_url(text)
    assert (url.scheme, url.host, url.port, url.path) == (scheme, host, port, path)
    assert read_url(str(url))[:4] == url[:4]


@pytest.mark.parametrize("text", NONE)
def test_what_has_more_than_one_reading_is_no_url(text: str) -> None:
    with pytest.raises(HostError) as caught:
        read_url(text)
    assert caught.value.case == "invalid-request"


@given(st.text() | st.builds("http://{}".format, st.text()))
def test_whatever_a_guest_says_is_read_or_refused(text: str) -> None:
    outline(text)
    with contextlib.suppress(HostError):
        url = read_url(text)
        assert url.host.isascii()
        assert url.path.isascii()
        assert " " not in url.path
        assert read_url(str(url))[:4] == url[:4]


OUTLINES = [
    ("http://user:pa55@example.com/a?b#c", "http://example.com/a"),
    ("HTTP://user:p@55@example.com:80/a/@b", "HTTP://example.com:80/a/@b"),
    ("http://example.com/@name/x", "http://example.com/@name/x"),
    ("http://user@[::1]:80?x@y", "http://[::1]:80"),
    ("http://user:pa/55@example.com/", "http://example.com/"),
    ("http://user:pa?55@example.com/a?b", "http://example.com/a"),
    ("http://user:pa#55@example.com", "http://example.com"),
    ("http:user:pa55@example.com", "example.com"),
    ("//user:pa55@example.com/a", "example.com/a"),
    (" http://user:pa55@example.com/a", "example.com/a"),
    ("user:pa55@example.com", "example.com"),
    ("/a/@b?c", "/a/@b"),
    ("/\\user:pa55@b", "b"),
    ("file:///etc/x", "file:///etc/x"),
    ("http://example.com/" + "a" * 600, "http://example.com/" + "a" * 600),
    ("http://example.com/" + "a" * 20_000, "a URL of 20019 characters"),
]


@pytest.mark.parametrize(("text", "told"), OUTLINES)
def test_a_url_is_told_without_what_may_be_secret(text: str, told: str) -> None:
    assert outline(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "ftp://user:pa55word@example.com/",
        "http://user:pa55word@exa mple.com/",
        "http://user:pa55word@example.com:99999/",
        "http://user:pa55word/x@example.com/",
        "http://user:pa55word?x@example.com/",
        "http://user:pa55word\u2100@example.com/",
        "http:user:pa55word@example.com/",
        "http://user:pa55word@example.com/\r\n",
        "http://user:pa55word@[::1/",
        "http://example.com:8x/?key=pa55word",
    ],
)
def test_no_error_tells_a_password(text: str) -> None:
    with pytest.raises(HostError) as caught:
        read_url(text)
    assert "pa55" not in caught.value.detail


@pytest.mark.parametrize(
    "location", ["http://user:pa55word@[::1/", "//user:pa55word@example.com:8x/", "//u:pa55word\n@b/"]
)
def test_no_error_tells_the_password_of_where_a_redirect_leads(location: str) -> None:
    with pytest.raises(HostError) as caught:
        read_url(join(read_url("http://example.org/"), location))
    assert "pa55" not in caught.value.detail


def test_no_error_tells_a_header_that_was_given_as_a_name() -> None:
    with pytest.raises(HostError, match="'Authorization'") as caught:
        read_request(request("http://example.com/", headers=[("Authorization: Bearer pa55word", "")]), WHOLE)
    assert "pa55" not in caught.value.detail


def test_a_url_is_not_cut_where_a_secret_would_not_be_found_any_more() -> None:
    secrets, secret = SecretStore(None), "S3cr3t-" * 5
    secrets.hide(secret)
    for before in (0, 480, 490, 500, 8_160, 8_170, 16_340):
        assert "S3c" not in secrets.redacted("GET " + outline("http://example.com/" + "x" * before + secret)), before


def test_times_that_options_ask_for_have_bounds() -> None:
    most = 1 << 63
    for defaults in (WHOLE_1_1, STREAM_1_1):
        terms = terms_of(options(connect=most, first=most, between=most), defaults)
        assert (terms.connect_s, terms.headers_s, terms.between_s) == (300, 300, 300)
        asked = terms_of(options(connect=1_000, first=2_000, between=3_000), defaults)
        assert (asked.connect_s, asked.headers_s, asked.between_s) == (1, 2, 3)
    assert terms_of(options(total=most), WHOLE_1_1).total_s == 600


@given(st.text())
def test_whatever_a_server_redirects_to_is_read_or_refused(location: str) -> None:
    with contextlib.suppress(HostError):
        read_url(join(read_url("http://example.com/a/b"), location))


HEADERS = [
    ("", "x"),
    ("a b", "x"),
    ("a:b", "x"),
    ("a\r\nb", "x"),
    ("ü", "x"),
    ("a", "x\r\nb: c"),
    ("a", "x\ny"),
    ("a", "x\x00"),
    ("a", "x\x7f"),
    ("Host", "evil.example"),
    ("Content-Length", "-1"),
    ("Content-Length", "1, 2"),
    ("a", "x" * 70_000),
]


@pytest.mark.parametrize(("name", "value"), HEADERS)
def test_a_header_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(HostError) as caught:
        read_request(request("http://example.com/", headers=[(name, value)]), WHOLE)
    assert caught.value.case == "invalid-request"


def test_there_may_not_be_too_many_headers() -> None:
    read_request(request("http://example.com/", headers=[("a", "b")] * 256), WHOLE)
    with pytest.raises(HostError, match="257 headers"):
        read_request(request("http://example.com/", headers=[("a", "b")] * 257), WHOLE)


def test_the_host_header_may_be_given_as_it_is_anyway() -> None:
    made = read_request(request("http://example.com:81/", headers=[("HOST", "Example.com:81")]), WHOLE)
    assert [pair for pair in made.headers if pair[0] == "host"] == [("host", "example.com:81")]


@pytest.mark.parametrize("name", ["Transfer-Encoding", "Connection", "Upgrade", "Expect", "TE", "Keep-Alive"])
def test_what_frames_the_message_is_the_hosts_own(name: str) -> None:
    made = read_request(request("http://example.com/", "post", [(name, "chunked")], b"x"), WHOLE)
    assert name.lower() not in dict(made.headers)


METHODS = [
    (Variant("get"), "GET"),
    (Variant("delete"), "DELETE"),
    (Variant("other", "PROPFIND"), "PROPFIND"),
    (Variant("other", "get"), "get"),
]


@pytest.mark.parametrize(("method", "word"), METHODS)
def test_a_method_is_sent_as_it_is(method: Variant, word: str) -> None:
    assert method_of(method) == word


@pytest.mark.parametrize(
    "method",
    [Variant("connect"), *(Variant("other", word) for word in ("connect", "", "A B", "A\r\n", "Ä", "x" * 300))],
)
def test_a_method_that_cannot_be_sent_is_refused(method: Variant) -> None:
    with pytest.raises(HostError) as caught:
        method_of(method)
    assert caught.value.case == "invalid-request"


def test_a_body_may_have_ten_mib() -> None:
    def made(size: int) -> Any:
        given = request("http://example.com/", "post")
        return SimpleNamespace(**vars(given) | {"body": bytes(size)})

    read_request(made(BODY_BYTES), STREAM)
    with pytest.raises(HostError) as caught:
        read_request(made(BODY_BYTES + 1), STREAM)
    assert caught.value.case == "body-too-large"
