"""astrid:http, whole responses: what goes out, what comes back, and each typed error."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from http_functions import OK, Asked, answer, functions, options, request, serving, talking

VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])


@VERSIONS
async def test_a_request_gives_status_headers_and_body(version: str) -> None:
    async with talking(answer(b"hello", "X-One: 1", "X-One: 2", status="404 Not Found"), version) as (http, server):
        response = await http("http-request", request(server.url("/a?b=c#d")))
    assert (response.status, response.body) == (404, b"hello")
    assert [(pair.key, pair.value) for pair in response.headers] == [
        ("content-length", "5"),
        ("x-one", "1"),
        ("x-one", "2"),
    ]
    asked = server.asked[0]
    assert (asked.method, asked.target) == ("GET", "/a?b=c")
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"


async def test_what_a_guest_says_goes_out_as_it_is() -> None:
    async with talking(answer()) as (http, server):
        headers = [("Accept", "text/html"), ("X-Name", "grüße"), ("Connection", "upgrade"), ("Content-Length", "9999")]
        await http("http-request", request(server.url("/x y/ü"), "PURGE", headers, b"\x00body"))
    asked = server.asked[0]
    assert (asked.method, asked.target, asked.body) == ("PURGE", "/x%20y/%C3%BC", b"\x00body")
    assert asked.headers["accept"] == "text/html"
    assert asked.headers["x-name"].encode("latin-1").decode() == "grüße"
    assert asked.headers["content-length"] == "5"
    assert "connection" not in asked.headers


async def test_what_a_guest_leaves_out_is_filled_in() -> None:
    async with talking(answer()) as (http, server):
        await http("http-request", request(server.url().replace("127", "us%3Aer:pa@127"), "post"))
    headers = server.asked[0].headers
    assert headers["user-agent"] == "astrid-host"
    assert headers["accept-encoding"] == "gzip, deflate, br"
    assert headers["content-length"] == "0"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"us:er:pa").decode()


async def test_a_response_says_what_it_cost() -> None:
    async with talking(answer(b"12345")) as (http, server):
        meta = (await http("http-request", request(server.url("/a")))).meta
    assert (meta.final_url, meta.redirect_count, meta.wire_bytes) == (server.url("/a"), 0, 5)
    assert 0 <= meta.elapsed_ms < 5000


async def test_a_chunked_body_is_put_together() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"transfer-encoding: chunked\r\n\r\n")
        for chunk in (b"3\r\nabc\r\n", b"1\r\nd\r\n", b"0\r\nx-trailer: 1\r\n\r\n"):
            await stream.send_all(chunk)

    async with talking(handler) as (http, server):
        assert (await http("http-request", request(server.url()))).body == b"abcd"


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"\r\nabc")

    async with talking(handler) as (http, server):
        assert (await http("http-request", request(server.url()))).body == b"abc"


async def test_a_head_has_no_body_however_long_it_says_that_would_be() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"content-length: 99999999\r\ncontent-encoding: gzip\r\n\r\n")

    async with talking(handler) as (http, server):
        assert (await http("http-request", request(server.url(), "head"))).body == b""


DENIED = [
    ([], "http://example.com/", "capability-denied"),
    (["example.com"], "http://example.org/", "capability-denied"),
    (["example.com"], "http://notexample.com/", "capability-denied"),
    (["example.com"], "http://example.com@evil.org/", "capability-denied"),
    (["*"], "http://127.0.0.1:1/", "airlock-rejected"),
    (["*"], "http://[::ffff:10.0.0.1]/", "airlock-rejected"),
    (["*"], "http://169.254.169.254/latest/meta-data/", "airlock-rejected"),
    (["*"], "http://localhost/", "airlock-rejected"),
    (["*"], "http://2130706433/", "airlock-rejected"),
    (["*"], "http://0x7f.1/", "airlock-rejected"),
    (["*"], "http://inside.example/", "airlock-rejected"),
    (["*"], "http://mixed.example/", "airlock-rejected"),
    (["*"], "http://nowhere.example/", "dns-error"),
    (["*"], "no url", "invalid-request"),
    (["*"], "http:///x", "invalid-request"),
]
TABLE = {
    "localhost": ["127.0.0.1"],
    "2130706433": ["127.0.0.1"],
    "0x7f.1": ["127.0.0.1"],
    "inside.example": ["10.1.2.3"],
    "mixed.example": ["93.184.216.34", "192.168.0.1"],
}


async def resolve(name: str, port: int) -> Sequence[str]:
    if name in TABLE:
        return TABLE[name]
    raise OSError("no such name")


@VERSIONS
@pytest.mark.parametrize("function", ["http-request", "http-stream-start"])
@pytest.mark.parametrize(("net", "url", "case"), DENIED)
async def test_what_may_not_be_asked_is_refused(
    version: str, function: str, net: list[str], url: str, case: str
) -> None:
    async with functions(version=version, net=net, resolve=resolve) as http:
        assert await http.case(function, request(url)) == case


async def test_a_refusal_names_the_line_to_write_and_the_option_to_give() -> None:
    async with functions(net=["a.example"], resolve=resolve) as http:
        failure = await http.failure("http-request", request("http://inside.example/"))
        assert '[capabilities] net = ["a.example", "inside.example"]' in failure.detail
    async with functions(resolve=resolve) as http:
        failure = await http.failure("http-request", request("http://inside.example:8080/"))
        assert "--allow-local inside.example:8080" in failure.detail


@pytest.mark.parametrize(("version", "case"), [("1.0", "invalid-request"), ("1.1", "scheme-denied")])
@pytest.mark.parametrize("url", ["ftp://example.com/", "file:///etc/passwd", "HTTPX://a", "unix:/x", "data:,x"])
async def test_other_schemes_are_refused(version: str, case: str, url: str) -> None:
    async with functions(version=version) as http:
        assert await http.case("http-request", request(url)) == case


async def test_https_only_refuses_http() -> None:
    async with functions() as http:
        given = options(https_only=True)
        assert await http.case("http-request-opts", request("http://example.com/"), given) == "scheme-denied"


async def test_nothing_is_looked_up_for_a_host_that_no_row_covers() -> None:
    async def asked(name: str, port: int) -> Sequence[str]:
        raise AssertionError(f"{name} was looked up")

    async with functions(net=["example.com"], resolve=asked) as http:
        assert await http.case("http-request", request("http://example.org/")) == "capability-denied"


async def test_the_connection_goes_to_the_address_that_was_checked_whatever_the_name_answers_next() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def rebinding(name: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with serving(answer(b"checked")) as server:
        async with functions(f"127.0.0.1:{server.port}", resolve=rebinding) as http:
            url = server.url(host="rebinding.example")
            assert (await http("http-request", request(url))).body == b"checked"
            assert len(answers) == 1
            assert await http.case("http-request", request(url)) == "airlock-rejected"
    assert server.asked[0].headers["host"] == f"rebinding.example:{server.port}"


async def test_nobody_there_is_a_connection_error() -> None:
    async with serving(answer()) as server:
        port = server.port
    async with functions(f"127.0.0.1:{port}") as http:
        failure = await http.failure("http-request", request(f"http://127.0.0.1:{port}/"))
    assert failure.case == "connection-error"
    assert "cannot be reached" in failure.detail


async def test_an_address_that_does_not_answer_makes_way_for_the_next() -> None:
    async def both(name: str, port: int) -> Sequence[str]:
        return ["::1", "127.0.0.1"]

    async with serving(answer(b"second")) as server:
        async with functions(f"two.example:{server.port}", resolve=both) as http:
            url = server.url(host="two.example")
            assert (await http("http-request", request(url))).body == b"second"


BROKEN = {
    "before the headers": (b"", "connection-error"),
    "inside the headers": (b"HTTP/1.1 200 OK\r\ncontent-", "connection-error"),
    "inside the body": (OK + b"content-length: 9\r\n\r\nabc", "connection-error"),
    "inside a chunk": (OK + b"transfer-encoding: chunked\r\n\r\n9\r\nabc", "connection-error"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "protocol"),
    "a bad chunk": (OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n", "protocol"),
    "another protocol": (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", "protocol"),
    "endless headers": (OK + b"x: y\r\n" * 20_000, "protocol"),
}


@pytest.mark.parametrize(("raw", "case"), BROKEN.values(), ids=BROKEN)
async def test_what_is_cut_off_or_no_http_is_told_apart(raw: bytes, case: str) -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(raw)

    async with talking(handler, "1.0") as (http, server):
        assert await http.case("http-request", request(server.url())) == case


def sri(body: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, body).digest()).decode()}"


INTEGRITY = [
    (sri(b"body"), None),
    (sri(b"body", "sha512"), None),
    (f"{sri(b'other')} {sri(b'body')}", None),
    (f"{sri(b'body')} {sri(b'other', 'sha384')}", "integrity-mismatch"),
    (sri(b"other"), "integrity-mismatch"),
    ("sha256-AAAA", "invalid-request"),
    ("md5-AAAA", "invalid-request"),
    ("", "invalid-request"),
]


@pytest.mark.parametrize(("integrity", "case"), INTEGRITY)
async def test_a_body_must_have_the_hash_that_was_asked_for(integrity: str, case: str | None) -> None:
    async with talking(answer(b"body")) as (http, server):
        given = options(integrity=integrity)
        if case is None:
            assert (await http("http-request-opts", request(server.url()), given)).body == b"body"
        else:
            assert await http.case("http-request-opts", request(server.url()), given) == case


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def handler(stream: Any, _asked: Asked) -> None:
        asked.set()
        await server.hung_up(stream)

    asked = trio.Event()
    async with talking(handler) as (http, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http, "http-request", request(server.url()))
            await asked.wait()
            nursery.cancel_scope.cancel()
        await server.gone.wait()


async def test_an_audit_names_method_and_address_but_no_secret() -> None:
    async with functions() as http:
        asked = request("https://user:pass@example.com:8443/a/b?key=secret#x", "post")
        assert http.audited("http-request", asked) == "POST https://example.com:8443/a/b"
        assert http.audited("http-request-opts", asked, options()) == "POST https://example.com:8443/a/b"
        assert http.audited("http-request", request("\x00?secret", "a b")) == "\x00"
