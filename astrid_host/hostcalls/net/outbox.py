"""What a guest has written and the socket has not taken yet: it goes out by itself, in order."""

from __future__ import annotations

import socket

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import Background, Signal
from astrid_host.hostcalls.net.errors import socket_error
from astrid_host.hostcalls.net.sockets import Watch

ROOM_BYTES = 1 << 18
PIECE_BYTES = 1 << 16  # of one system call: the lock is held for some microseconds


class Outbox:
    """Bytes on their way out of one connection.

    Args:
        sock: the connection's.
        writable: waits for it.
        background: where it goes on while nobody waits.

    Attributes:
        roomy: true while there is room, and for ever once nothing more goes out.
        empty: true while all is out, and for ever once nothing more goes out.
    """

    __slots__ = ("_background", "_failure", "_lock", "_pending", "_pumping", "_sock", "_writable", "empty", "roomy")

    def __init__(self, sock: socket.socket, writable: Watch, background: Background) -> None:
        scheduler = background.scheduler
        self._sock = sock
        self._writable = writable
        self._background = background
        # Guests put on any thread, the pump takes on the loop's. It is the host's one lock, because what becomes true under it
        # wakes guests, and because a connection may end wherever memory is reclaimed.
        self._lock = scheduler.lock
        self._pending = bytearray()
        self._pumping = False
        self._failure: HostError | None = None
        self.roomy = Signal(scheduler, is_set=True)
        self.empty = Signal(scheduler, is_set=True)

    def room(self) -> int:
        """How many bytes it takes.

        Raises:
            HostError: why nothing more goes out.
        """
        with self._lock:
            self._check()
            return max(ROOM_BYTES - len(self._pending), 0)

    def put(self, data: bytes) -> None:
        """Take bytes, however many. From any thread.

        Raises:
            HostError: why nothing more goes out.
        """
        view = memoryview(data)
        while view:
            with self._lock:
                self._check()
                sent = 0 if self._pending else self._send(view[:PIECE_BYTES])
                self._check()
                if not sent:
                    self._keep(view)
                    return
            view = view[sent:]

    def _keep(self, rest: memoryview) -> None:
        self._pending += rest
        self.empty.clear()
        if len(self._pending) >= ROOM_BYTES:
            self.roomy.clear()
        if not self._pumping:
            self._pumping = True
            self._background.start(self._pump)

    def end(self) -> None:
        """The connection is closed: forget what is not out."""
        with self._lock:
            self._fail(HostError("closed", detail="the connection is closed"))

    def check(self) -> None:
        """
        Raises:
            HostError: why nothing more goes out.
        """
        with self._lock:
            self._check()

    async def flushed(self) -> None:
        """Return when all is out.

        Raises:
            HostError: it does not get out.
        """
        await self.empty.wait()
        self.check()

    async def _pump(self) -> None:
        while True:
            await self._writable.wait()
            with self._lock:
                if self._failure is None:
                    del self._pending[: self._send(bytes(self._pending[:PIECE_BYTES]))]
                if self._failure is not None:
                    return
                if len(self._pending) < ROOM_BYTES:
                    self.roomy.set()
                if not self._pending:
                    self._pumping = False
                    self.empty.set()
                    return

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._fail(socket_error(error))
            return 0

    def _fail(self, failure: HostError) -> None:
        if self._failure is None:
            self._failure = failure
            self._pending.clear()
            self.roomy.set()
            self.empty.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise HostError(self._failure.case, self._failure.payload, detail=self._failure.detail)
