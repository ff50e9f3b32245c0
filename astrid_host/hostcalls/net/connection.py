"""A connection, as its handle holds it: frames and bytes, in and out, and the two streams that a guest may make of it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import trio

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.hostcalls.io import Background, stream_closed, stream_failed
from astrid_host.hostcalls.net.errors import socket_error
from astrid_host.hostcalls.net.outbox import Outbox
from astrid_host.hostcalls.net.sockets import Endpoint

CALL_BYTES = 10 << 20
PIECE_BYTES = 1 << 18  # what is read at once of a frame, whose length is only the peer's word
PIECES = 4  # then others have their turn
HEADER = struct.Struct(">I")
HEADER_S = 0.05
FRAME_S, FRAME_S_PER_BYTE = 5.0, 0.001 / 1024
DISCONNECTS = ("connection-reset", "closed", "timeout")  # the last one is the system's, which gave the peer up


class Connection(Endpoint):
    """What the handle of a `tcp-stream` holds.

    Args:
        sock: a connected stream socket.
        target: what it is called in the audit.
        background: where its waits run.
        principal: whom the peer proved to be, if it did.

    Attributes:
        read_timeout: milliseconds that a read waits, as the guest said.
        write_timeout: the same of a write.
        linger: milliseconds, as the guest said.
    """

    __slots__ = ("_inbox", "linger", "outbox", "principal", "read_timeout", "write_timeout")

    def __init__(self, sock: socket.socket, target: str, background: Background, principal: str | None = None) -> None:
        super().__init__(sock, target, background)
        self.principal = principal
        self.read_timeout: int | None = None
        self.write_timeout: int | None = None
        self.linger: int | None = None
        self._inbox = bytearray()  # of a frame that is not whole yet
        self.outbox = Outbox(sock, self.writable, background)

    @property
    def is_tcp(self) -> bool:
        return self.sock.family != socket.AF_UNIX

    @property
    def begun(self) -> bool:
        """Whether a part of a frame was read."""
        return bool(self._inbox)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.outbox.end()

    # Reading.

    def take(self, most: int) -> bytes | None:
        """What is there, up to `most` (1 or more) bytes: empty at the end, None when nothing came yet.

        Raises:
            OSError: the connection broke.
        """
        if self._inbox:
            data = bytes(self._inbox[:most])
            del self._inbox[:most]
            return data
        try:
            return self.sock.recv(most)
        except (BlockingIOError, InterruptedError):
            return None

    def peek(self, most: int) -> bytes | None:
        """The same, without taking it."""
        if self._inbox:
            return bytes(self._inbox[:most])
        try:
            return self.sock.recv(most, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return None

    async def frame(self, patient: bool = True) -> Variant:
        """The next frame, as a `net-read-status`. (Astrid, net: framed reads.)

        `pending` when its header did not come within 50 ms, or, impatiently, is not there; what came of it is kept. A peer
        that went, or broke off in the middle, is `closed`.

        Raises:
            HostError: `timeout` when the rest does not come within 5 s and 1 ms for each KiB, and can be waited for again;
                `unknown` for a frame of more than 10 MiB, which no read gets past.
        """
        self.check_open()
        if (ended := await self._fill(HEADER.size, HEADER_S if patient else 0)) is not True:
            return Variant("pending" if ended is None else "closed")
        (length,) = HEADER.unpack(self._inbox[: HEADER.size])
        if length > CALL_BYTES:
            text = f"a frame of {length} bytes; {CALL_BYTES} are allowed"
            raise HostError("unknown", text, detail=f"{self.target}: {text}")
        seconds = FRAME_S + length * FRAME_S_PER_BYTE
        if (ended := await self._fill(HEADER.size + length, seconds)) is not True:
            if ended is None:
                raise HostError("timeout", detail=f"{self.target}: a frame did not come whole within {seconds:g} s")
            return Variant("closed")
        data = bytes(self._inbox[HEADER.size : HEADER.size + length])
        del self._inbox[: HEADER.size + length]
        return Variant("data", data)

    async def _fill(self, size: int, seconds: float) -> bool | None:
        """Read until there are so many bytes: True; False at the end, None when it took too long."""

        def fill() -> bool | None:
            for _ in range(PIECES):
                if len(self._inbox) >= size:
                    return True
                data = self.sock.recv(min(size - len(self._inbox), PIECE_BYTES))
                if not data:
                    return False
                self._inbox += data
            return len(self._inbox) >= size or None

        try:
            return await self.attempt(fill, self.readable, seconds, "would-block")
        except HostError as error:
            if error.case in DISCONNECTS:
                return False
            if error.case == "would-block":
                return None
            raise

    # Writing.

    async def send_frame(self, data: bytes, seconds: float, case: str) -> None:
        """Send one frame, and return when it is out. (Astrid, net: framed writes.)

        Args:
            data: at most 10 MiB.
            seconds: how long what was written before may take, and then how long this may.
            case: of the error when what was written before is not out by then; nothing was taken then.

        Raises:
            HostError: `unknown` for a larger one; `case`; `timeout` when it was taken and is still on its way, whole;
                `connection-reset` or `closed` when it does not get out.
        """
        if len(data) > CALL_BYTES:
            text = f"a frame of {len(data)} bytes; {CALL_BYTES} are allowed"
            raise HostError("unknown", text, detail=f"{self.target}: {text}")
        await self._drained(seconds, case)
        self.outbox.put(HEADER.pack(len(data)) + data)
        await self._drained(seconds, "timeout")

    async def send(self, data: bytes, seconds: float, case: str) -> int:
        """Send what the socket takes at once of `data`, waiting until it takes something; how many bytes that were.

        Raises:
            HostError: `case` when it takes nothing in so many seconds; `connection-reset`, `closed`.
        """
        await self._drained(seconds, case)
        if not data:
            return 0
        view = memoryview(data)[:CALL_BYTES]
        return await self.attempt(lambda: self.sock.send(view), self.writable, seconds, case)

    async def _drained(self, seconds: float, case: str) -> None:
        self.check_open()
        if self.outbox.empty.is_set:  # a timeout of 0 allows no wait at all
            self.outbox.check()
            return
        with trio.move_on_after(seconds):
            await self.outbox.flushed()
            return
        raise HostError(case, detail=f"{self.target}: the peer took nothing for {seconds:g} s")

    async def shut_down(self, how: str, seconds: float) -> None:
        """End one direction or both; what was written goes out before.

        Raises:
            HostError: `timeout` when that does not get out; `closed` when the peer went already.
        """
        if how != "receive":
            await self._drained(seconds, "timeout")
        self.check_open()
        try:
            self.sock.shutdown(_HOW[how])
        except OSError as error:
            raise socket_error(error) from error


_HOW = {"receive": socket.SHUT_RD, "send": socket.SHUT_WR, "both": socket.SHUT_RDWR}


class ReadHalf:
    """What a connection's `input-stream` holds. Dropping it leaves the connection as it is."""

    __slots__ = ("_connection", "_over")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._over = False

    def read(self, most: int) -> bytes:
        if self._over or self._connection.closed:
            raise stream_closed()
        try:
            data = self._connection.take(most)
        except OSError as error:
            self._over = True
            raise stream_failed(str(error)) from error
        if data == b"":
            self._over = True
            raise stream_closed()
        return data or b""

    async def readable(self) -> None:
        if not self.ready():
            await self._connection.readable.wait()

    def ready(self) -> bool:
        return self._over or self._connection.begun or self._connection.ready()

    def when_ready(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._connection.when_ready(wake)

    def close(self) -> None:
        self._over = True


class WriteHalf:
    """What a connection's `output-stream` holds. Dropping it leaves the connection as it is."""

    __slots__ = ("_connection", "_over")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._over = False

    def room(self) -> int:
        self._check()
        try:
            return self._connection.outbox.room()
        except HostError as error:
            raise self._ended(error) from error

    def write(self, data: bytes) -> None:
        self._check()
        try:
            self._connection.outbox.put(data)
        except HostError as error:
            raise self._ended(error) from error

    async def roomy(self) -> None:
        await self._connection.outbox.roomy.wait()

    async def flushed(self) -> None:
        self._check()
        try:
            await self._connection.outbox.flushed()
        except HostError as error:
            raise self._ended(error) from error

    def ready(self) -> bool:
        return self._over or self._connection.outbox.roomy.ready()

    def when_ready(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._connection.outbox.roomy.when_ready(wake)

    def close(self) -> None:
        self._over = True

    def _check(self) -> None:
        if self._over or self._connection.closed:
            raise stream_closed()

    def _ended(self, error: HostError) -> HostError:
        """The first failure is told, after it the stream is closed."""
        self._over = True
        return stream_closed() if error.case == "closed" else stream_failed(str(error))
