"""A request that goes on between the calls of its guest, and the handles by which the guest has it.

An `Exchange` is a task of the host. It ends when its body has come to its end, and when the guest holds no handle of it any
more: its connection is closed then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.http.bodies import BodySink, BodyStream, Pipe
from astrid_host.hostcalls.http.fetching import Fetch, in_words_of
from astrid_host.hostcalls.http.requests import Headers
from astrid_host.hostcalls.io import Background, Signal

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
NEVER = float("inf")


class Exchange:
    """A request under way.

    Args:
        fetch: what is done.
        background: where its task runs, and who wakes guests.
        upload: what the request's body is taken from, if it is written bit by bit.
        ended: called once, when the guest has no handle of it any more. From any thread.
    """

    def __init__(self, fetch: Fetch, background: Background, upload: Pipe | None, ended: Callable[[], None]) -> None:
        scheduler = background.scheduler
        self.fetch = fetch
        self.upload = upload
        self.body = Pipe(scheduler)
        self.settled = Signal(scheduler)  # the headers are there, or will never be
        self.status = 0
        self.headers: Headers = []
        self.error: HostError | None = None
        self._background = background
        self._scope = trio.CancelScope()
        self._ended: Callable[[], None] | None = ended
        self._handles = 0

    def start(self) -> None:
        self._background.start(self._run)

    async def opened(self) -> None:
        """Return when the headers are there.

        Raises:
            HostError: they will never be.

        Cancelled, the exchange goes on; close it.
        """
        await self.settled.wait()
        if self.error is not None:
            raise self.error

    async def _run(self) -> None:
        failure = HostError("closed", detail="the guest ended the request")
        with self._scope:
            try:
                await self._all()
            except HostError as error:
                failure = in_words_of(self.fetch.terms.version, error)
            except Exception:
                log.exception("a request over HTTP failed for a reason that is not known")
                failure = HostError("unknown", "the host could not do it")
            else:
                self.body.end()
        if not self.settled.is_set:
            self.error = failure
        self.body.end(failure)
        if self.upload is not None:
            self.upload.end(failure, forget=True)
        self.settled.set()

    async def _all(self) -> None:
        seconds = self.fetch.terms.total_s
        with trio.move_on_after(NEVER if seconds is None else seconds) as scope:
            reply = await self.fetch.open()
            try:
                self.status, self.headers = reply.status, self.fetch.handed_on(reply)
                self.settled.set()
                await self.fetch.read(reply, self._take)
            finally:
                await reply.aclose()
        if scope.cancelled_caught:
            raise HostError("timeout", detail=f"all of it took more than {seconds:g} s")

    async def _take(self, piece: bytes) -> None:
        await self.body.roomy.wait()
        self.body.put(piece)

    def hold(self) -> None:
        """The guest has one more handle of it."""
        self._handles += 1

    def let_go(self) -> None:
        """The guest has one handle less; without any, it ends."""
        self._handles -= 1
        if self._handles <= 0:
            self.close()

    def close(self) -> None:
        """End it. From any thread; again does nothing."""
        ended, self._ended = self._ended, None
        if ended is not None:
            self.body.end(HostError("closed", detail="the stream was closed"), forget=True)
            self._background.tell(self._scope.cancel)
            ended()


class HttpStream:
    """What the handle of an `http-stream` holds.

    Args:
        exchange: whose headers are there.
        target: how the audit names it.
    """

    def __init__(self, exchange: Exchange, target: str) -> None:
        self.exchange = exchange
        self.target = target
        self._open = True
        exchange.hold()

    async def read_chunk(self) -> bytes:
        body = self.exchange.body
        while True:
            if not self._open:
                raise HostError("closed", detail="the stream was closed")
            chunk = body.take(CHUNK_BYTES)
            if chunk is not None:
                return chunk
            await body.arrived.wait()

    def body_stream(self) -> BodyStream:
        self.exchange.hold()
        return BodyStream(self.exchange.body, self.exchange.let_go)

    def close(self) -> None:
        """The guest dropped it."""
        if self._open:
            self._open = False
            self.exchange.let_go()

    def end(self) -> None:
        """The guest ends the response early, whatever handles it has."""
        self.close()
        self.exchange.close()


class HttpUpload:
    """What the handle of an `http-upload` holds.

    Args:
        exchange: under way, with an upload.
        target: how the audit names it.
    """

    def __init__(self, exchange: Exchange, target: str) -> None:
        assert exchange.upload is not None, "an upload has a body to come"
        self.exchange = exchange
        self.target = target
        self.sink = BodySink(exchange.upload)
        self._upload = exchange.upload
        self._open = True
        exchange.hold()

    async def finish(self) -> HttpStream:
        """End the body and wait for the headers.

        Raises:
            HostError: what the request ended by; `closed` the second time.

        Cancelled, the exchange ends.
        """
        if not self._open:
            raise HostError("closed", detail="the upload was finished already")
        self._upload.end()
        try:
            await self.exchange.opened()
            return HttpStream(self.exchange, self.target)
        finally:
            self.close()

    def close(self) -> None:
        """The guest dropped it."""
        if self._open:
            self._open = False
            self._upload.end(HostError("closed", detail="the upload was dropped"))
            self.exchange.let_go()
