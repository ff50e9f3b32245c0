"""The host functions of astrid:http on a loop of their own, called as a guest would, and servers on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio
from named_functions import NamedFunctions

from astrid_host.abi import Variant
from astrid_host.bus import Bus
from astrid_host.engine import Engine
from astrid_host.hostcalls.addresses import Airlock, Resolve
from astrid_host.hostcalls.http import Http, Http10, Http11
from astrid_host.hostcalls.io import Background, Poll, Streams
from astrid_host.manifest import Capabilities, Manifest, Package
from astrid_host.scheduler import Scheduler

OK = b"HTTP/1.1 200 OK\r\n"
READ = "[method]http-stream.read-chunk"


class Asked:
    """A request as a server got it."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = dict(line.split(": ", 1) for line in lines)
        self.body = body


Handler = Callable[[Any, Asked], Awaitable[None]]


class Server:
    """A server on loopback: `handler` gets the connection and what was asked, and the connection is closed after it."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None, head_only: bool) -> None:
        self.asked: list[Asked] = []
        self.gone = trio.Event()  # some client hung up while it was answered
        self.before: trio.Event | None = None  # what it waits for before it reads a body
        self.instead: Callable[[Any], Awaitable[None]] | None = None  # of reading anything
        self.port = 0
        self._head_only = head_only
        self._handler = handler
        self._tls = tls

    async def serve(self, stream: Any) -> None:
        if self.instead is not None:
            await self.instead(stream)
            await trio.aclose_forcefully(stream)
            return
        if self._tls is not None:
            stream = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        try:
            asked = await self._read_request(stream)
            if asked is not None:
                self.asked.append(asked)
                await self._handler(stream, asked)
        except (trio.BrokenResourceError, ssl.SSLError):
            self.gone.set()
        finally:
            await trio.aclose_forcefully(stream)

    async def _read_request(self, stream: Any) -> Asked | None:
        received = b""
        while b"\r\n\r\n" not in received:
            some = await stream.receive_some(1 << 16)
            if not some:
                return None
            received += some
        if self.before is not None:
            await self.before.wait()
        head, _, body = received.partition(b"\r\n\r\n")
        asked = Asked(head, body)
        if not self._head_only:
            await _read_body(stream, asked)
        return asked

    async def hung_up(self, stream: Any) -> None:
        """Wait until the client closes its connection."""
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some(1 << 16):
                pass
        self.gone.set()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


async def _read_body(stream: Any, asked: Asked) -> None:
    named = {name.lower(): value for name, value in asked.headers.items()}
    chunked = "chunked" in named.get("transfer-encoding", "")
    length = int(named.get("content-length", 0))
    body = bytearray(asked.body)
    while not body.endswith(b"0\r\n\r\n") if chunked else len(body) < length:
        some = await stream.receive_some(1 << 16)
        if not some:
            raise trio.BrokenResourceError("the client hung up")
        body += some
    asked.body = unchunked(bytes(body)) if chunked else bytes(body)


def unchunked(raw: bytes) -> bytes:
    parts, at = [], 0
    while at < len(raw):
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end], 16)
        parts.append(raw[end + 2 : end + 2 + size])
        at = end + 4 + size
    return b"".join(parts)


def answer(body: bytes = b"", *headers: str, status: str = "200 OK") -> Handler:
    """Answer all requests alike."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(raw)

    return handler


@asynccontextmanager
async def serving(
    handler: Handler, tls: ssl.SSLContext | None = None, head_only: bool = False
) -> AsyncIterator[Server]:
    server = Server(handler, tls, head_only)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(server.serve, 0, host="127.0.0.1", task_status=task_status)
        )
        server.port = listeners[0].socket.getsockname()[1]
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


def guest(*net: str) -> Any:
    """The running call of a capsule with such rows of `net`."""
    manifest = Manifest(Package("web", "1.0.0"), capabilities=Capabilities(net=net))
    capsule = SimpleNamespace(id="web", storage_id="web", manifest=manifest)
    return SimpleNamespace(principal="alice", capsule=capsule, message=None, follows=False, instance=object())


@asynccontextmanager
async def functions(
    *allow: str, version: str = "1.1", net: Sequence[str] = ("*",), resolve: Resolve | None = None
) -> AsyncIterator[NamedFunctions]:
    """The functions of a version, with an airlock that admits `allow` besides public addresses."""
    bus = Bus()
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler(Engine(None), bus.lock, 1)
        http = Http(Airlock(allow, resolve), Background(scheduler, nursery))
        made = (Http11(http) if version == "1.1" else Http10(http), Poll(bus, scheduler), Streams())
        try:
            yield NamedFunctions(made, scheduler, guest(*net))
        finally:
            await scheduler.close()
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def talking(
    handler: Handler,
    version: str = "1.1",
    *allow: str,
    tls: ssl.SSLContext | None = None,
    resolve: Resolve | None = None,
    head_only: bool = False,
) -> AsyncIterator[tuple[NamedFunctions, Server]]:
    """The functions, and a server that they may talk to."""
    async with serving(handler, tls, head_only) as server:
        async with functions(f"127.0.0.1:{server.port}", *allow, version=version, resolve=resolve) as http:
            yield http, server


async def read_all(http: NamedFunctions, stream: Any) -> bytes:
    """The body of a stream."""
    body = b""
    while chunk := await http(READ, stream):
        body += chunk
    return body


def request(url: str, method: str = "get", headers: Sequence[tuple[str, str]] = (), body: bytes | None = None) -> Any:
    pairs = [SimpleNamespace(key=key, value=value) for key, value in headers]
    variant = Variant(method) if method.islower() else Variant("other", method)
    return SimpleNamespace(url=url, method=variant, headers=pairs, body=body)


def options(
    connect: int | None = None,
    first: int | None = None,
    between: int | None = None,
    total: int | None = None,
    **given: Any,
) -> Any:
    """A `request-options`; times in milliseconds."""
    times = SimpleNamespace(connect_ms=connect, first_byte_ms=first, between_bytes_ms=between, total_ms=total)
    names = (
        "redirect",
        "max_redirects",
        "max_response_bytes",
        "max_decompressed_bytes",
        "auto_decompress",
        "https_only",
        "integrity",
    )
    assert given.keys() <= set(names)
    return SimpleNamespace(timeouts=times, **dict.fromkeys(names) | given)
