"""astrid:http 1.0 and 1.1: requests that a guest waits for, responses in chunks, uploads in chunks.

The gate comes first, then the airlock; nothing is looked up for a host that no `net` row covers. A guest that waits is
suspended; when its call ends meanwhile, the connection is closed. An instance has four streams and uploads at once.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from astrid_host.errors import HostError
from astrid_host.gates.net import may_fetch
from astrid_host.hostcalls.addresses import Airlock
from astrid_host.hostcalls.http.bodies import BodySink, BodyStream, Pipe
from astrid_host.hostcalls.http.exchanges import Exchange, HttpStream, HttpUpload
from astrid_host.hostcalls.http.fetching import Client, Fetch, in_words_of
from astrid_host.hostcalls.http.requests import (
    STREAM,
    STREAM_1_1,
    WHOLE,
    WHOLE_1_1,
    RequestData,
    Terms,
    method_of,
    read_request,
    terms_of,
)
from astrid_host.hostcalls.http.urls import outline
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io import Background, Readiness

if TYPE_CHECKING:
    from astrid_host.hostcalls.http.proxies import Proxies
    from astrid_host.scheduler import Call

STREAMS = 4


class Pair(msgspec.Struct, frozen=True, gc=False):
    """A `key-value-pair`."""

    key: str
    value: str


class Meta(msgspec.Struct, frozen=True, gc=False):
    """A `response-meta`."""

    final_url: str
    redirect_count: int
    elapsed_ms: int
    wire_bytes: int


class Response(msgspec.Struct, frozen=True, gc=False):
    """An `http-response-data`; 1.0 has no `meta`."""

    status: int
    headers: list[Pair]
    body: bytes
    meta: Meta


def _target(request: RequestData, *_options: object) -> str:
    try:
        return f"{method_of(request.method)} {outline(request.url)}"
    except HostError:
        return outline(request.url)


def _of_handle(handle: HttpStream | HttpUpload) -> str:
    return handle.target


class Http:
    """What the interfaces of a host share.

    Args:
        airlock: which addresses may be connected to.
        background: where requests go on while no guest waits for them.
        proxies: through which requests go; None: all are sent directly.
    """

    def __init__(self, airlock: Airlock, background: Background, proxies: Proxies | None = None) -> None:
        self._client = Client(airlock, proxies)
        self._background = background
        self._lock = threading.Lock()
        self._open: dict[object, int] = {}  # exchanges by instance

    async def whole(self, call: Call, data: RequestData, terms: Terms) -> Response:
        """Make a request and return all of the response."""
        try:
            fetch = self._fetch(call, data, terms)
            with trio.move_on_after(terms.total_s or 0):
                return await _whole(fetch)
        except HostError as error:
            raise in_words_of(terms.version, error) from None
        raise HostError("timeout", detail=f"the response took more than {terms.total_s:g} s")

    async def stream(self, call: Call, data: RequestData, terms: Terms) -> HttpStream:
        """Begin a request and return when its headers are there. Cancelled meanwhile, it ends."""
        exchange = self._begin(call, data, terms, None)
        try:
            await exchange.opened()
        except BaseException:
            exchange.close()
            raise
        return HttpStream(exchange, _target(data))

    async def upload(self, call: Call, data: RequestData, terms: Terms) -> HttpUpload:
        """Begin a request and return when its body may be written. Cancelled meanwhile, it ends."""
        pipe = Pipe(self._background.scheduler)
        exchange = self._begin(call, data, terms, pipe)
        try:
            await pipe.asked.wait()
            if exchange.error is not None:
                raise exchange.error
        except BaseException:
            exchange.close()
            raise
        return HttpUpload(exchange, _target(data))

    def _begin(self, call: Call, data: RequestData, terms: Terms, upload: Pipe | None) -> Exchange:
        instance = call.instance
        try:
            fetch = self._fetch(call, data, terms, upload)
            self._count(instance)
        except HostError as error:
            raise in_words_of(terms.version, error) from None
        exchange = Exchange(fetch, self._background, upload, lambda: self._uncount(instance))
        exchange.start()
        return exchange

    def _fetch(self, call: Call, data: RequestData, terms: Terms, upload: Pipe | None = None) -> Fetch:
        request = read_request(data, terms, uploads=upload is not None)
        gate = partial(may_fetch, call.capsule.manifest)
        return Fetch(self._client, request, terms, gate, call.capsule.id, None if upload is None else upload.pieces)

    def _count(self, instance: object) -> None:
        with self._lock:
            count = self._open.get(instance, 0)
            if count >= STREAMS:
                raise HostError("quota", detail=f"{STREAMS} streams and uploads are open already: drop some")
            self._open[instance] = count + 1

    def _uncount(self, instance: object) -> None:
        with self._lock:
            self._open[instance] -= 1
            if not self._open[instance]:
                del self._open[instance]


async def _whole(fetch: Fetch) -> Response:
    reply = await fetch.open()
    pieces: list[bytes] = []

    async def take(piece: bytes) -> None:
        pieces.append(piece)

    try:
        await fetch.read(reply, take)
    except BaseException:
        pieces.clear()  # else what came lives as long as the error's traceback
        raise
    finally:
        await reply.aclose()
    elapsed_ms = round((trio.current_time() - fetch.begun) * 1000)
    meta = Meta(str(reply.url), fetch.redirects, elapsed_ms, fetch.wire_bytes)
    headers = [Pair(*pair) for pair in fetch.handed_on(reply)]
    return Response(reply.status, headers, b"".join(pieces), meta)


class _Streams(Interface):
    """What both versions have."""

    def __init__(self, http: Http) -> None:
        self._http = http

    @hostcall("[method]http-stream.status", audited=_of_handle)
    def status(self, _call: Call, stream: HttpStream) -> int:
        """The status code."""
        return stream.exchange.status

    @hostcall("[method]http-stream.headers", audited=_of_handle)
    def headers(self, _call: Call, stream: HttpStream) -> list[Pair]:
        """The response's headers, names in lower case; without those of a compression that the host undoes."""
        return [Pair(*pair) for pair in stream.exchange.headers]

    @hostcall("[method]http-stream.read-chunk", audited=_of_handle)
    async def read_chunk(self, _call: Call, stream: HttpStream) -> bytes:
        """The next bytes, 64 KiB at most; empty at the end.

        Raises:
            HostError: `timeout` when nothing comes for 120 s, `closed` after `close`, and what else ends a body.
        """
        return await stream.read_chunk()

    @hostcall("[method]http-stream.close", audited=_of_handle)
    def close(self, _call: Call, stream: HttpStream) -> None:
        """End it early, with all that was made of it; again does nothing."""
        stream.end()

    @hostcall("[method]http-stream.subscribe-readable", audited=_of_handle)
    def subscribe_readable(self, _call: Call, stream: HttpStream) -> Readiness:
        """Ready when there are bytes, or the end."""
        return Readiness(stream.exchange.body.arrived)

    @hostcall("[method]http-stream.body-stream", audited=_of_handle)
    def body_stream(self, _call: Call, stream: HttpStream) -> BodyStream:
        """The rest of the body; it lives on when the stream is dropped, and shares its bytes with `read-chunk` until then."""
        return stream.body_stream()


class Http10(_Streams):
    """The host functions of astrid:http 1.0.

    Args:
        http: shared with 1.1.

    Raises (all that begin a request):
        HostError: `invalid-request` (also for a scheme), `capability-denied`, `dns-error`, `airlock-rejected`,
            `connection-error`, `tls-error`, `timeout`, `protocol`. (Astrid, http: error-code.)
    """

    wit = ("astrid:http/host@1.0.0",)

    @hostcall("http-request", audited=_target)
    async def http_request(self, call: Call, request: RequestData) -> Response:
        """The whole response: 30 s, 10 MiB as received and unfolded, else `body-too-large`."""
        return await self._http.whole(call, request, WHOLE)

    @hostcall("http-stream-start", audited=_target)
    async def http_stream_start(self, call: Call, request: RequestData) -> HttpStream:
        """A response whose headers are there, within 120 s. `quota`: the instance has four."""
        return await self._http.stream(call, request, STREAM)


class Http11(_Streams):
    """The host functions of astrid:http 1.1.

    Args:
        http: shared with 1.0.

    Raises (all that begin a request):
        HostError: as 1.0, and `scheme-denied`, `redirect-blocked`, `too-many-redirects`. (Astrid, http: error-code.)
    """

    wit = ("astrid:http/host@1.1.0",)

    @hostcall("http-request", audited=_target)
    async def http_request(self, call: Call, request: RequestData) -> Response:
        """As in 1.0, and what it cost."""
        return await self._http.whole(call, request, WHOLE_1_1)

    @hostcall("http-request-opts", audited=_target)
    async def http_request_opts(self, call: Call, request: RequestData, options: Any) -> Response:
        """The same with options; 10 min (5 min for one wait), 10 MiB and 10 redirects are the most that they can ask for.

        Raises:
            HostError: also `decompression-bomb`, `integrity-mismatch`.
        """
        return await self._http.whole(call, request, terms_of(options, WHOLE_1_1))

    @hostcall("http-stream-start", audited=_target)
    async def http_stream_start(self, call: Call, request: RequestData) -> HttpStream:
        """As in 1.0."""
        return await self._http.stream(call, request, STREAM_1_1)

    @hostcall("http-stream-start-opts", audited=_target)
    async def http_stream_start_opts(self, call: Call, request: RequestData, options: Any) -> HttpStream:
        """The same with options; what the body breaks of them, `read-chunk` tells."""
        return await self._http.stream(call, request, terms_of(options, STREAM_1_1))

    @hostcall("http-upload-start", audited=_target)
    async def http_upload_start(self, call: Call, request: RequestData, options: Any) -> HttpUpload:
        """A request whose body can be written: it is connected, and its headers are sent."""
        return await self._http.upload(call, request, terms_of(options, STREAM_1_1))

    @hostcall("[method]http-stream.trailers", audited=_of_handle)
    def trailers(self, _call: Call, _stream: HttpStream) -> None:
        """None, always. (Astrid, http: trailers.)"""
        return

    @hostcall("[method]http-upload.body-sink", audited=_of_handle)
    def body_sink(self, _call: Call, upload: HttpUpload) -> BodySink:
        """Where the body is written."""
        return upload.sink

    @hostcall("[method]http-upload.subscribe-writable", audited=_of_handle)
    def subscribe_writable(self, _call: Call, upload: HttpUpload) -> Readiness:
        """Ready when more can be written."""
        return Readiness(upload.sink)

    @hostcall("[method]http-upload.finish", audited=_of_handle)
    async def finish(self, _call: Call, upload: HttpUpload) -> HttpStream:
        """End the body; returns when the headers are there.

        Raises:
            HostError: what the request ended by, `closed` the second time.
        """
        return await upload.finish()
