"""One request on one connection of its own, to an address that was checked before. Needs `httpcore2`, and is imported for the
first request.

Errors come in the words of astrid:http's `error-code`: `connection-error` when the other side cannot be reached or hangs up,
`tls-error` for all that goes wrong with TLS, `timeout`, `protocol` for what is no HTTP. Cancelled at any point, the connection
is closed.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h11
import httpcore2
import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.addresses import shown
from astrid_host.hostcalls.http.proxies import Proxy
from astrid_host.hostcalls.http.requests import Headers, Request, Terms
from astrid_host.hostcalls.http.urls import Url

ADDRESSES = 8  # of one name that are tried
ATTEMPT_S = 5.0  # for each but the last
HEAD_BYTES = (
    1 << 12
)  # read at once before a body begins: a server may send interim responses without end, of 16 bytes each
BODY_BYTES = 1 << 16  # read at once of a body
HEADERS = 1000  # of a response: each becomes two strings of the guest
SWITCHING = 101


def tls_context() -> ssl.SSLContext:
    """What the system trusts, for HTTP/1.1. Reads files."""
    context = httpcore2.default_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextmanager
def within(seconds: float, what: str) -> Iterator[trio.CancelScope]:
    """Raise HostError `timeout` when the body takes longer; its scope's deadline may be moved meanwhile."""
    with trio.move_on_after(max(seconds, 0)) as scope:
        yield scope
    if scope.cancelled_caught:
        raise HostError("timeout", detail=f"{what} took too long")


class Line(httpcore2.AsyncNetworkStream):
    """A connection as the client library uses it.

    Args:
        stream: TCP, or TLS over it.
        between_s: how long a write, and later a read, may take.
    """

    def __init__(self, stream: trio.abc.Stream, between_s: float) -> None:
        self._stream = stream
        self._between_s = between_s
        self.read_s = float("inf")  # until the headers are there: they have a bound of their own
        self.most = HEAD_BYTES
        self.hung_up = False

    def body_begins(self) -> None:
        self.read_s, self.most = self._between_s, BODY_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with within(self.read_s, "waiting for the next bytes"):
            try:
                data = bytes(await self._stream.receive_some(min(max_bytes, self.most)))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise HostError("connection-error", detail=_cause(error)) from None
            self.hung_up = not data
            return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with within(self._between_s, "sending"):
            try:
                await self._stream.send_all(buffer)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise httpcore2.WriteError(str(error)) from None  # there may be an answer all the same

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Reply:
    """A response whose headers are there. It has to be closed."""

    def __init__(self, url: Url, response: httpcore2.Response, line: Line) -> None:
        self.url = url
        self.status = response.status
        self.headers: Headers = [(_text(name).lower(), _text(value)) for name, value in response.headers]
        self._stream: Any = response.stream
        self._line = line

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return next((value for key, value in self.headers if key == name), None)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, 64 KiB at most at a time. To be closed like any asynchronous generator."""
        self._line.body_begins()
        body = self._stream.__aiter__()
        try:
            with _named(self._line):
                async for chunk in body:
                    yield chunk
                    await trio.lowlevel.checkpoint()  # many small chunks come without a wait in between
        finally:
            await body.aclose()

    async def aclose(self) -> None:
        await self._line.aclose()


async def send(
    request: Request,
    addresses: Sequence[str],
    terms: Terms,
    tls: ssl.SSLContext | None,
    connect_by: float,
    body: Callable[[], AsyncIterator[bytes]] | None,
    proxy: Proxy | None = None,
) -> Reply:
    """Connect, send a request and wait for the headers.

    Args:
        addresses: of `request.url.host`, checked; nothing else is connected to.
        terms: its times.
        tls: for https; the certificate has to be for the name in the URL, whatever the address.
        connect_by: when the connection has to be there, by trio's clock.
        body: for an upload, gives what to send. The time for the headers begins when it is over.
        proxy: what is connected to instead of the addresses: it passes the request on, or, for https, all bytes.

    Raises:
        HostError: as the module says, and `invalid-request` for what the protocol cannot send.
    """
    with within(connect_by - trio.current_time(), f"connecting to {request.url.authority}"):
        line = await _connect(request.url, addresses, tls, terms.between_s, proxy)
    try:
        with within(terms.headers_s, f"waiting for the headers of {request.url.authority}") as patience:
            content: Any = request.body
            if body is not None:
                patience.deadline = float("inf")
                content = _until_over(body(), patience, terms)
            with _named(line):
                response = await _connection(request.url, line).handle_async_request(_raw(request, content, proxy))
        if response.status == SWITCHING:
            raise HostError("protocol", "the server switches to another protocol")
        if len(response.headers) > HEADERS:
            raise HostError("protocol", f"the response has more than {HEADERS} headers")
        return Reply(request.url, response, line)
    except BaseException:
        await line.aclose()
        raise


async def _connect(
    url: Url, addresses: Sequence[str], tls: ssl.SSLContext | None, between_s: float, proxy: Proxy | None
) -> Line:
    if proxy is None:
        stream: trio.abc.Stream = await _reach(url, addresses[:ADDRESSES])
    else:
        stream = await _through(url, proxy)
    if tls is None:
        return Line(stream, between_s)
    secured = trio.SSLStream(stream, tls, server_hostname=url.host, https_compatible=True)
    try:
        await secured.do_handshake()
    except (trio.BrokenResourceError, ssl.SSLError, ValueError) as error:
        await trio.aclose_forcefully(stream)
        raise HostError("tls-error", detail=f"TLS with {url.authority}: {_cause(error)}") from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return Line(secured, between_s)


async def _reach(url: Url, addresses: Sequence[str]) -> trio.SocketStream:
    failures = []
    for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        with trio.move_on_after(ATTEMPT_S if left else float("inf")) as attempt:
            try:
                return await trio.open_tcp_stream(address, url.port)
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
        if attempt.cancelled_caught:
            failures.append(f"{address}: no answer within {ATTEMPT_S:g} s")
    where = shown(url.host, url.port)
    raise HostError("connection-error", detail=f"{where} cannot be reached: {'; '.join(failures)}")


async def _through(url: Url, proxy: Proxy) -> trio.SocketStream:
    """A connection to a proxy; for https one that leads to the URL's host. What it says of itself is told."""
    try:
        stream = await trio.open_tcp_stream(proxy.host, proxy.port)
    except OSError as error:
        where = shown(proxy.host, proxy.port)
        raise HostError("connection-error", detail=f"the proxy {where} cannot be reached: {error}") from None
    try:
        if url.scheme == "https":
            await _open_tunnel(stream, url, proxy)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def _open_tunnel(stream: trio.SocketStream, url: Url, proxy: Proxy) -> None:
    connection, target = h11.Connection(h11.CLIENT), shown(url.host, url.port)
    request = h11.Request(method="CONNECT", target=target, headers=[("Host", target), *_to_proxy(proxy)])
    try:
        await stream.send_all(connection.send(request) or b"")
        while (event := connection.next_event()) is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(HEAD_BYTES))
    except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
        raise HostError("connection-error", detail=f"the proxy does not lead to {target}: {_cause(error)}") from None
    if not isinstance(event, h11.Response) or event.status_code // 100 != 2:
        status = event.status_code if isinstance(event, h11.Response) else "no status"
        raise HostError("connection-error", detail=f"the proxy does not lead to {target}: it answers with {status}")


def _to_proxy(proxy: Proxy) -> list[tuple[str, str]]:
    return [] if proxy.authorization is None else [("Proxy-Authorization", proxy.authorization)]


async def _until_over(body: AsyncIterator[bytes], patience: trio.CancelScope, terms: Terms) -> AsyncIterator[bytes]:
    """What a guest uploads. The time for the headers begins when it is over."""
    try:
        while True:
            with within(terms.between_s, "the guest, writing the next bytes,"):
                piece = await anext(body, None)
            if piece is None:
                return
            yield piece
    finally:
        patience.deadline = trio.current_time() + terms.headers_s
        await body.aclose()  # type: ignore[attr-defined]


def _connection(url: Url, line: Line) -> httpcore2.AsyncHTTP11Connection:
    return httpcore2.AsyncHTTP11Connection(httpcore2.Origin(url.scheme.encode(), url.host.encode(), url.port), line)


def _raw(request: Request, content: Any, proxy: Proxy | None) -> httpcore2.Request:
    """A request as it is written. One that a proxy passes on names all of its URL."""
    url, headers = request.url, request.headers
    path = url.path
    if proxy is not None and url.scheme == "http":
        path, headers = str(url), [*headers, *_to_proxy(proxy)]
    target = httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=path)
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    return httpcore2.Request(request.method, target, headers=encoded, content=content)


@contextmanager
def _named(line: Line) -> Iterator[None]:
    """Errors of the client library in the interface's words."""
    try:
        yield
    except (httpcore2.LocalProtocolError, h11.LocalProtocolError) as error:
        raise HostError("invalid-request", detail=str(error)) from None
    except httpcore2.ProtocolError as error:
        if line.hung_up:
            raise HostError("connection-error", detail=str(error)) from None
        raise HostError("protocol", str(error)[:200]) from None
    except httpcore2.NetworkError as error:
        raise HostError("connection-error", detail=str(error)) from None


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
