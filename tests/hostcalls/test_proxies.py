"""Proxies: used where the operator says so, never for this machine, and no way around the airlock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio

from astrid_host import BUNDLED, open_host
from astrid_host.hostcalls.http.proxies import Proxies
from astrid_host.hostcalls.http.urls import read_url

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
NOT_FOUND = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Heard:
    """A proxy that keeps the heads of what it was asked."""

    url: str = ""
    heads: list[str] = field(default_factory=list)


@asynccontextmanager
async def proxy(answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") -> AsyncIterator[Heard]:
    heard = Heard()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := await stream.receive_some()):
                    return
                head += more
            heard.heads.append(head.decode())
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners: Any = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        heard.url = f"http://user:pass@127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        try:
            yield heard
        finally:
            nursery.cancel_scope.cancel()


async def fetched(url: str, **options: Any) -> Any:
    """What `fetch_url` of the bundled capsule gives, in a host that uses proxies; an error is its text."""
    capsules = [BUNDLED / "router", BUNDLED / "http"]
    async with open_host(capsules, state_dir=":memory:", proxy_from_env=True, **options) as host:
        result = await host.tools.execute("fetch_url", {"url": url}, principal="default")
    return result.content if result.is_error else json.loads(result.content)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_what_does_not_resolve_here_is_left_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy() as heard:
        monkeypatch.setenv("HTTP_PROXY", heard.url)
        assert (await fetched("http://site.invalid/a?b=1"))["body"] == "ok"
    [head] = heard.heads
    assert head.startswith("GET http://site.invalid/a?b=1 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpwYXNz" in head
    assert "\r\nhost: site.invalid" in head.lower()


async def test_https_goes_through_a_tunnel_and_a_proxy_that_refuses_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy(NOT_FOUND) as heard:
        monkeypatch.setenv("HTTPS_PROXY", heard.url)
        await fetched("https://site.invalid/a")
    [head] = heard.heads
    assert head.startswith("CONNECT site.invalid:443 HTTP/1.1\r\n")
    assert "/a" not in head.partition("\r\n")[0].removeprefix("CONNECT")[:-8]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "http://localhost:9/x", "http://10.0.0.1/x", "http://169.254.169.254/"]
)
async def test_the_airlock_holds_behind_a_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    async with proxy() as heard:
        monkeypatch.setenv("ALL_PROXY", heard.url)
        assert "ok" not in str(await fetched(url))
    assert not heard.heads


async def test_without_the_operators_word_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy() as heard:
        monkeypatch.setenv("HTTP_PROXY", heard.url)
        async with open_host([BUNDLED / "router", BUNDLED / "http"], state_dir=":memory:") as host:
            result = await host.tools.execute("fetch_url", {"url": "http://site.invalid/"}, principal="default")
    assert result.is_error
    assert not heard.heads


def test_which_proxy_a_url_is_asked_through() -> None:
    proxies = Proxies({"http": "one:1", "all": "http://all:2", "no": "no.example,.sub.example,10.0.0.1"})
    for url, host in {
        "http://a.example": "one",
        "https://a.example": "all",
        "http://no.example": None,
        "https://x.sub.example:8": None,
        "http://10.0.0.1": None,
        "http://localhost": None,
        "http://[::1]:1": None,
        "http://127.9.9.9": None,
    }.items():
        found = proxies.of(read_url(url))
        assert (found and found.host) == host, url
    assert Proxies({"http": "http://p", "no": "*"}).of(read_url("http://a.example")) is None
    assert Proxies({}).of(read_url("http://a.example")) is None


@pytest.mark.parametrize("given", ["socks5://a:1", "https://a:1", "http://", "http://a:99999"])
def test_a_proxy_that_cannot_be_used_is_told(given: str) -> None:
    with pytest.raises(ValueError, match="proxy: ALL_PROXY"):
        Proxies({"all": given})
