"""A request from its first hop to the end of its body: gate, airlock, redirects, limits.

Each hop is checked like the first: scheme, `net` row, airlock, in that order; then it is connected to the addresses that were
checked. In version 1.1 a hop that may not be is `redirect-blocked`; in 1.0, which has no such word, it is what the hop itself
would have been. (Astrid, http: redirects.)
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from astrid_host.errors import HostError
from astrid_host.gates.verdicts import Denial
from astrid_host.hostcalls.addresses import AddressRefused, Airlock, NameUnresolved
from astrid_host.hostcalls.http.decoding import Decoder, decoder_for, some_of
from astrid_host.hostcalls.http.integrity import Integrity
from astrid_host.hostcalls.http.requests import Headers, Request, Terms
from astrid_host.hostcalls.http.urls import Url, outline

if TYPE_CHECKING:
    from astrid_host.hostcalls.http.proxies import Proxies, Proxy
    from astrid_host.hostcalls.http.wire import Reply

REDIRECTS = (301, 302, 303, 307, 308)
WIRE = "astrid_host.hostcalls.http.wire"
BODILESS = (204, 304)
NEVER = float("inf")
DECODING = 4  # bodies that are unfolded at once
MAY_NOT_BE = ("capability-denied", "scheme-denied", "airlock-rejected", "invalid-request")

Gate = Callable[[str], Denial | None]
Body = Callable[[], AsyncIterator[bytes]]


class Client:
    """What all requests of a host share.

    Args:
        airlock: which addresses may be connected to.
        proxies: through which requests go; None: all are sent directly.
    """

    def __init__(self, airlock: Airlock, proxies: Proxies | None = None) -> None:
        self.airlock = airlock
        self.proxies = proxies
        self._ready = False
        self._tls: ssl.SSLContext | None = None
        self._decoding = trio.CapacityLimiter(DECODING)

    async def ready(self) -> None:
        """Import the client library, which takes 40 ms, beside the loop. Cancelled, it is waited for."""
        if not self._ready:
            await trio.to_thread.run_sync(import_module, WIRE)
            self._ready = True

    async def tls(self) -> ssl.SSLContext:
        """What is trusted; read once, beside the loop. Cancelled, it is waited for."""
        if self._tls is None:
            from astrid_host.hostcalls.http.wire import tls_context

            self._tls = await trio.to_thread.run_sync(tls_context)
        return self._tls

    async def unfold(self, pieces: Iterator[bytes]) -> tuple[list[bytes], bool]:
        """`some_of` beside the loop, which a few bytes could hold up for long. Cancelled, it is waited for.

        Raises:
            HostError: `protocol`.
        """
        return await trio.to_thread.run_sync(some_of, pieces, limiter=self._decoding)


class Fetch:
    """One request of a guest.

    Args:
        client: how to get at others.
        request: checked.
        terms: what it may do and cost.
        gate: whether a host may be asked.
        capsule: whose request it is.
        body: gives what to send, for an upload.

    Raises:
        HostError: `invalid-request`, for an integrity that names no hash.
    """

    def __init__(
        self, client: Client, request: Request, terms: Terms, gate: Gate, capsule: str, body: Body | None = None
    ) -> None:
        self.terms = terms
        self.redirects = 0
        self.wire_bytes = 0
        self._unfolded_bytes = 0
        self.begun = trio.current_time()
        self._client = client
        self._request = request
        self._gate = gate
        self._capsule = capsule
        self._body = body
        self._integrity = None if terms.integrity is None else Integrity(terms.integrity)
        denial = gate(request.url.host)
        if denial is not None:
            raise HostError(denial.case, detail=denial.detail)

    async def open(self) -> Reply:
        """Send it, follow its redirects, return when the headers are there: all hops have the time of one, but for an upload.

        Raises:
            HostError: what the interface's `error-code` has.

        Cancelled, or left by an error, it leaves no connection behind.
        """
        terms = self.terms
        seconds = terms.connect_s + terms.headers_s if self._body is None else NEVER
        with trio.move_on_after(seconds):
            while True:
                reply = await self._hop()
                location = reply.header("location")
                if reply.status not in REDIRECTS or location is None or terms.redirect == "manual":
                    return reply
                await reply.aclose()
                self._request = self._next(reply, location)
        raise HostError("timeout", detail=f"{self.redirects} redirects took more than {seconds:g} s")

    async def _hop(self) -> Reply:
        await self._client.ready()
        from astrid_host.hostcalls.http.wire import send, within

        request, terms = self._request, self.terms
        tls = await self._client.tls() if request.url.scheme == "https" else None
        connect_by = trio.current_time() + terms.connect_s
        proxy = self._client.proxies.of(request.url) if self._client.proxies is not None else None
        with within(terms.connect_s, f"resolving {request.url.host}"):
            addresses = await self._admit(request.url, proxy)
        body = self._body if request.uploads else None
        return await send(request, addresses, terms, tls, connect_by, body, proxy)

    async def _admit(self, url: Url, proxy: Proxy | None) -> list[str]:
        """The addresses to connect to. Behind a proxy a name need not resolve here; where it does, the airlock holds."""
        try:
            return await self._client.airlock.admit(url.host, url.port, self._capsule)
        except AddressRefused as refused:
            raise self._blocked(HostError("airlock-rejected", detail=str(refused))) from None
        except NameUnresolved as error:
            if proxy is not None:
                return []
            raise HostError("dns-error", detail=str(error)) from None

    def _next(self, reply: Reply, location: str) -> Request:
        terms = self.terms
        if terms.redirect == "error":
            raise self._not_followed("the guest asked for no redirects", location)
        if self.redirects >= terms.redirects:
            text = f"more than {terms.redirects} redirects"
            raise HostError("too-many-redirects", detail=f"{text}, the last to {outline(location)[:200]!r}")
        self.redirects += 1
        try:
            request = self._request.redirected(reply.status, location)
            if request is None:
                raise self._not_followed("an upload cannot be sent again", location)
            if terms.https_only and request.url.scheme != "https":
                raise HostError("scheme-denied", detail=f"a redirect to {request.url.origin_text} is not https")
            denial = self._gate(request.url.host)
            if denial is not None:
                raise HostError(denial.case, detail=denial.detail)
        except HostError as error:
            raise self._blocked(error) from None
        return request

    def _not_followed(self, why: str, location: str) -> HostError:
        return HostError("redirect-blocked", detail=f"{why}: {outline(location)[:200]!r}")

    def _blocked(self, error: HostError) -> HostError:
        if self.redirects and self.terms.version != "1.0" and error.case in MAY_NOT_BE:
            return HostError("redirect-blocked", detail=error.detail)
        return error

    def handed_on(self, reply: Reply) -> Headers:
        """The headers as the guest gets them: those that no longer hold for a body that is unfolded here are left out."""
        if self._decoder(reply) is None:
            return reply.headers
        return [pair for pair in reply.headers if pair[0] not in ("content-encoding", "content-length")]

    def _decoder(self, reply: Reply) -> Decoder | None:
        encodings = [value for name, value in reply.headers if name == "content-encoding"]
        return decoder_for(encodings[0]) if self.terms.decode and len(encodings) == 1 else None

    async def read(self, reply: Reply, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand a body on, a piece at a time.

        Args:
            reply: what `open` gave.
            take: is waited for before more is read.

        Raises:
            HostError: `body-too-large`, `decompression-bomb`, `integrity-mismatch`, `connection-error`, `timeout`, `protocol`.
        """
        terms, decoder = self.terms, self._decoder(reply)
        self._refuse_long(reply)
        async with aclosing(reply.chunks()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                self.wire_bytes += len(chunk)
                if terms.received is not None and self.wire_bytes > terms.received:
                    raise _too_large(f"more than {terms.received} bytes came")
                if decoder is None:
                    await self._hand_on(chunk, take)
                    continue
                folded, over = decoder.decode(chunk), False
                while not over:
                    pieces, over = await self._client.unfold(folded)
                    for piece in pieces:
                        await self._hand_on(piece, take)
        if decoder is not None:
            decoder.finish()
        if self._integrity is not None:
            self._integrity.finish()

    async def _hand_on(self, piece: bytes, take: Callable[[bytes], Awaitable[None]]) -> None:
        self._unfolded_bytes += len(piece)
        most = self.terms.unfolded
        if most is not None and self._unfolded_bytes > most:
            raise HostError(self.terms.bomb, detail=f"the body unfolds to more than {most} bytes")
        if self._integrity is not None:
            self._integrity.update(piece)
        await take(piece)

    def _refuse_long(self, reply: Reply) -> None:
        length, most = reply.header("content-length"), self.terms.received
        if most is None or length is None or not length.isdecimal() or self._request.method == "HEAD":
            return
        if reply.status not in BODILESS and int(length[:19]) > most:
            raise _too_large(f"the body has {length[:19]} bytes; {most} are allowed")


def _too_large(why: str) -> HostError:
    return HostError("body-too-large", detail=why)


def in_words_of(version: str, error: HostError) -> HostError:
    """An error in the words that a version of the interface has."""
    if version != "1.0":
        return error
    case = error.case
    if case == "scheme-denied":
        return HostError("invalid-request", detail=error.detail)
    if case == "too-many-redirects":
        return HostError("protocol", "too many redirects", detail=error.detail)
    return error
