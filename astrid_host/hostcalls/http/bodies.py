"""Bodies on their way between a connection and a guest: the connection stands still while the guest does not keep up.

What is here of one body is at most 64 KiB and what came with the piece that filled it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import Signal, stream_closed, stream_failed
from astrid_host.hostcalls.io.poll import Undo
from astrid_host.scheduler import Scheduler

ENOUGH_BYTES = 1 << 16


class Pipe:
    """Bytes in order, then an end or an error.

    Args:
        scheduler: who wakes guests.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.arrived = Signal(scheduler)  # there is something to take, or the end
        self.roomy = Signal(scheduler, True)  # more may be put, or nothing ever again
        self.drained = Signal(scheduler, True)  # nothing is under way
        self.asked = Signal(scheduler)  # somebody began to take, or nobody ever will
        self._lock = threading.Lock()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._error: HostError | None = None

    def room(self) -> int:
        """How many bytes may be put now."""
        return max(0, ENOUGH_BYTES - self._size)

    def over(self) -> HostError | bool:
        """True once it has ended, the error it ended by, or False."""
        return self._error or self._ended

    def put(self, data: bytes) -> None:
        """Add bytes, also more than there is room for."""
        with self._lock:
            if self._ended or not data:
                return
            self._pieces.append(data)
            self._size += len(data)
            if self._size >= ENOUGH_BYTES:
                self.roomy.clear()
            self.drained.clear()
            self.arrived.set()

    def take(self, most: int) -> bytes | None:
        """What is there, up to `most` bytes; empty at the end; None when nothing came yet.

        Raises:
            HostError: what it ended by, once all that came before is taken.
        """
        with self._lock:
            taken = []
            while self._pieces and most:
                piece = self._pieces.popleft()
                if len(piece) > most:
                    self._pieces.appendleft(piece[most:])
                    piece = piece[:most]
                taken.append(piece)
                most -= len(piece)
                self._size -= len(piece)
            if not self._pieces and not self._ended:
                self.arrived.clear()
            if self._size < ENOUGH_BYTES:
                self.roomy.set()
            if taken:
                return b"".join(taken)
            if self._error is not None:
                raise self._error
            return b"" if self._ended else None

    def end(self, error: HostError | None = None, forget: bool = False) -> None:
        """No more will come. Ending it again does nothing, but what `forget` says.

        Args:
            error: what it ends by.
            forget: drop what was not taken.
        """
        with self._lock:
            if forget:
                self._pieces.clear()
                self._size = 0
            if not self._ended:
                self._ended, self._error = True, error
            self.arrived.set()
            self.roomy.set()
            self.asked.set()
            if not self._pieces:
                self.drained.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Take all, to the end. What was taken is out, and `drained` true, when the next is asked for."""
        self.asked.set()
        try:
            while True:
                piece = self.take(ENOUGH_BYTES)
                if piece is None:
                    self._let_go()
                    await self.arrived.wait()
                elif piece:
                    yield piece
                else:
                    return
        finally:
            self.end(forget=True)

    def _let_go(self) -> None:
        with self._lock:
            if not self._pieces:
                self.drained.set()


class BodyStream:
    """The rest of a response's body, as an `input-stream`.

    Args:
        pipe: what it reads from.
        closed: called once, when the guest drops it.
    """

    def __init__(self, pipe: Pipe, closed: Callable[[], None]) -> None:
        self._pipe = pipe
        self._closed: Callable[[], None] | None = closed

    def read(self, most: int) -> bytes:
        try:
            data = self._pipe.take(most)
        except HostError as error:
            raise (stream_closed() if error.case == "closed" else stream_failed(described(error))) from None
        if data == b"":
            raise stream_closed()
        return data or b""

    async def readable(self) -> None:
        await self._pipe.arrived.wait()

    def ready(self) -> bool:
        return self._pipe.arrived.ready()

    def when_ready(self, wake: Callable[[], None]) -> Undo:
        return self._pipe.arrived.when_ready(wake)

    def close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()


class BodySink:
    """Where the body of an upload is written, as an `output-stream`. It ends with the upload's `finish`; dropping it ends
    nothing, but no more can be written."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def room(self) -> int:
        over = self._pipe.over()
        if isinstance(over, HostError) and over.case != "closed":
            raise stream_failed(described(over))
        if over:
            raise stream_closed()
        return self._pipe.room()

    def write(self, data: bytes) -> None:
        self.room()
        self._pipe.put(data)

    async def roomy(self) -> None:
        await self._pipe.roomy.wait()

    async def flushed(self) -> None:
        await self._pipe.drained.wait()
        over = self._pipe.over()
        if isinstance(over, HostError):
            raise stream_failed(described(over))

    def ready(self) -> bool:
        return self._pipe.roomy.ready()

    def when_ready(self, wake: Callable[[], None]) -> Undo:
        return self._pipe.roomy.when_ready(wake)

    def close(self) -> None:
        pass


def described(error: HostError) -> str:
    """An error as text that a guest may read: its case, and what it carries."""
    return error.case if error.payload is None else f"{error.case}: {error.payload}"
