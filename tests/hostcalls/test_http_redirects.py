"""astrid:http, redirects: each hop is checked like the first, and what is secret stays with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from http_functions import Asked, Handler, answer, functions, options, request, serving, talking

from astrid_host.errors import HostError
from astrid_host.hostcalls.http.requests import WHOLE, read_request

SECRETS = [("Authorization", "Bearer x"), ("Cookie", "a=b"), ("X-Api-Key", "k"), ("X-Vault-Token", "t")]
HARMLESS = [("Accept", "text/html"), ("Range", "bytes=0-9"), ("If-None-Match", "x"), ("User-Agent", "u")]


def redirect(location: str, status: int = 302) -> Handler:
    return answer(b"", f"location: {location}", status=f"{status} Found")


def moved(table: dict[str, str], status: int = 302) -> Handler:
    """Redirect what is in the table; say of the rest what it was asked."""

    async def handler(stream: Any, asked: Asked) -> None:
        to = table.get(asked.target)
        found = answer(f"{asked.method} {asked.target}".encode()) if to is None else redirect(to, status)
        await found(stream, asked)

    return handler


FOLLOWED = [
    (301, "post", "GET", b""),
    (302, "post", "GET", b""),
    (303, "put", "GET", b""),
    (303, "head", "HEAD", b""),
    (307, "post", "POST", b"body"),
    (308, "put", "PUT", b"body"),
    (302, "get", "GET", b""),
]


@pytest.mark.parametrize(("status", "method", "then", "body"), FOLLOWED)
async def test_a_redirect_keeps_or_changes_the_method(status: int, method: str, then: str, body: bytes) -> None:
    async with talking(moved({"/a": "b?c"}, status)) as (http, server):
        sent = None if method in ("get", "head") else b"body"
        response = await http("http-request", request(server.url("/a"), method, [("Content-Type", "x")], sent))
    last = server.asked[-1]
    assert (last.method, last.target, last.body) == (then, "/b?c", body)
    assert ("content-type" in last.headers) == bool(body)
    assert (response.meta.final_url, response.meta.redirect_count) == (server.url("/b?c"), 1)


async def test_a_response_without_a_location_is_no_redirect() -> None:
    async with talking(answer(b"x", status="302 Found")) as (http, server):
        assert (await http("http-request", request(server.url()))).status == 302


async def test_secrets_stay_with_their_origin() -> None:
    async with serving(answer(b"other")) as other:
        async with serving(moved({"/a": "/b", "/b": other.url("/c", "x.example")})) as server:

            async def resolve(name: str, port: int) -> Sequence[str]:
                return ["127.0.0.1"]

            allow = f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"
            async with functions(*allow, resolve=resolve) as http:
                url = server.url("/a").replace("//", "//user:pass@")
                response = await http("http-request", request(url, headers=SECRETS + HARMLESS))
    assert response.body == b"other"
    secret, harmless = ({name.lower() for name, _ in pairs} for pairs in (SECRETS, HARMLESS))
    assert secret | harmless <= set(server.asked[1].headers)
    headers = other.asked[0].headers
    assert headers["host"] == f"x.example:{other.port}"
    assert set(headers) == harmless | {"host", "accept-encoding"}


async def test_a_body_that_goes_on_to_another_origin_is_still_described() -> None:
    async with serving(answer(b"other")) as other, serving(redirect(other.url("/b"), 307)) as server:
        async with functions(f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}") as http:
            headers = [("Content-Type", "text/x"), ("Content-Encoding", "x"), ("X-Signature", "s")]
            await http("http-request", request(server.url(), "post", headers, b"body"))
    asked = other.asked[0]
    assert (asked.body, asked.headers["content-type"], asked.headers["content-encoding"]) == (b"body", "text/x", "x")
    assert "x-signature" not in asked.headers


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_goes_from_https_to_https_only(status: int) -> None:
    given = read_request(request("https://a.example/", "post", body=b"secret"), WHOLE)
    assert given.redirected(status, "https://b.example/") is not None
    with pytest.raises(HostError) as caught:
        given.redirected(status, "http://a.example/")
    assert caught.value.case == "scheme-denied"
    without = given.redirected(303, "http://a.example/")
    assert without is not None
    assert without.body is None


async def test_whom_to_log_in_as_is_not_for_a_server_to_say() -> None:
    async def handler(stream: Any, asked: Asked) -> None:
        to = server.url("/b").replace("//", "//them:pass@")
        await (redirect(to) if asked.target == "/a" else answer(b"x"))(stream, asked)

    async with talking(handler) as (http, server):
        await http("http-request", request(server.url("/a")))
        await http("http-request", request(server.url("/a").replace("//", "//us:pass@")))
    assert "authorization" not in server.asked[1].headers
    assert server.asked[3].headers["authorization"] == server.asked[2].headers["authorization"]


async def test_no_error_tells_the_password_or_query_of_where_a_redirect_leads() -> None:
    async with talking(redirect("http://user:pa55@example.org/a?key=pa55")) as (http, server):
        for given in (options(redirect="error"), options(max_redirects=0), options(https_only=False)):
            failure = await http.failure("http-request-opts", request(server.url()), given)
            assert "pa55" not in failure.detail


async def test_all_hops_have_the_time_of_one() -> None:
    async def handler(stream: Any, asked: Asked) -> None:
        await trio.sleep(0.02)
        await redirect("/again")(stream, asked)

    async with talking(handler) as (http, server):
        given = options(connect=20, first=30)
        assert await http.case("http-stream-start-opts", request(server.url()), given) == "timeout"
    assert len(server.asked) < 5


REFUSED = [
    ("http://169.254.169.254/latest/", "airlock-rejected", "redirect-blocked"),
    ("http://[::1]/", "airlock-rejected", "redirect-blocked"),
    ("//metadata.google.internal/", "capability-denied", "redirect-blocked"),
    ("http://inside.example/", "airlock-rejected", "redirect-blocked"),
    ("file:///etc/passwd", "invalid-request", "redirect-blocked"),
    ("http://a b/", "invalid-request", "redirect-blocked"),
]


@pytest.mark.parametrize(("location", "first", "second"), REFUSED)
async def test_a_redirect_to_where_none_may_go_is_refused(location: str, first: str, second: str) -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return ["192.168.7.7"]

    net = ("127.0.0.1", "169.254.169.254", "::1", "inside.example")
    async with serving(redirect(location)) as server:
        for version, case in (("1.0", first), ("1.1", second)):
            async with functions(f"127.0.0.1:{server.port}", version=version, net=net, resolve=resolve) as http:
                for function in ("http-request", "http-stream-start"):
                    assert await http.case(function, request(server.url())) == case
    assert len(server.asked) == 4


async def test_a_redirect_to_another_port_needs_the_operators_leave_too() -> None:
    async with serving(answer(b"secret")) as other, talking(redirect(other.url())) as (http, server):
        assert await http.case("http-request", request(server.url())) == "redirect-blocked"
    assert other.asked == []


@pytest.mark.parametrize(("version", "case"), [("1.0", "protocol"), ("1.1", "too-many-redirects")])
async def test_more_than_ten_redirects_are_too_many(version: str, case: str) -> None:
    async with talking(redirect("/again"), version) as (http, server):
        assert await http.case("http-request", request(server.url())) == case
    assert len(server.asked) == 11


async def test_options_bound_redirects() -> None:
    async with talking(redirect("/again")) as (http, server):
        for given, most in ((0, 1), (2, 3), (1_000, 11)):
            server.asked.clear()
            failure = await http.case("http-request-opts", request(server.url()), options(max_redirects=given))
            assert (failure, len(server.asked)) == ("too-many-redirects", most)


async def test_options_say_what_a_redirect_is() -> None:
    async with talking(redirect("/b")) as (http, server):
        asked = request(server.url("/a"))
        assert await http.case("http-request-opts", asked, options(redirect="error")) == "redirect-blocked"
        response = await http("http-request-opts", asked, options(redirect="manual"))
        assert (response.status, response.meta.redirect_count) == (302, 0)
        stream = await http("http-stream-start-opts", asked, options(redirect="manual"))
        assert await http("[method]http-stream.status", stream) == 302
        stream.close()


async def test_an_upload_that_becomes_a_get_announces_no_body() -> None:
    async def handler(stream: Any, asked: Asked) -> None:
        moved = answer(b"", "location: /b", status="303 See Other")
        await (answer(b"x") if asked.target == "/b" else moved)(stream, asked)

    async with talking(handler) as (http, server):
        upload = await http("http-upload-start", request(server.url("/a"), "post"), options())
        await http("[method]output-stream.write", upload.sink, b"abc")
        stream = await http("[method]http-upload.finish", upload)
        assert await http("[method]http-stream.read-chunk", stream) == b"x"
    assert [asked.method for asked in server.asked] == ["POST", "GET"]
    assert {"transfer-encoding", "content-length"}.isdisjoint(server.asked[1].headers)
