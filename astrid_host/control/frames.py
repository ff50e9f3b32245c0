"""Frames on the control socket: a big-endian length of four bytes, then an `IpcMessage` as JSON, 10 MiB at most.

A frame that has begun comes within 30 s. The large ones of all peers together take 64 MiB at most while they come: a peer that
begins one more is read on when another one's is there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from astrid_host.errors import PayloadError
from astrid_host.payloads import IpcMessage, decode_frame, encode_frame
from astrid_host.sockets.handshake import HEADER

FRAME_BYTES = 10 << 20
SEND_S = 30.0  # a peer that takes nothing for so long is gone
FRAME_S = 30.0  # and one that does not come to a frame's end
SMALL_BYTES = 1 << 16  # a frame of so many takes nobody's share
SHARED_BYTES = 64 << 20


class Share:
    """What frames that are still coming may take, together.

    Args:
        most: in bytes; at least those of one frame.
    """

    def __init__(self, most: int = SHARED_BYTES) -> None:
        self._left = most
        self._turn = trio.Lock()
        self._freed = trio.Event()

    @asynccontextmanager
    async def of(self, size: int) -> AsyncGenerator[None]:
        """Have room for so many bytes while the body runs; who comes first has it first."""
        if size <= SMALL_BYTES:
            yield
            return
        async with self._turn:
            while self._left < size:
                self._freed = trio.Event()
                await self._freed.wait()
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            self._freed.set()


class Frames:
    """The frames of one connection, both ways. One task reads; several may send.

    Args:
        stream: after the handshake; closed by whoever made it.
        share: what frames of all connections may take; None for a connection of its own.
    """

    def __init__(self, stream: trio.SocketStream, share: Share | None = None) -> None:
        self._stream = stream
        self._share = share or Share()
        self._sending = trio.Lock()

    async def send(self, message: IpcMessage) -> None:
        """Send a frame; several wait for each other.

        Raises:
            PayloadError: it has more than 10 MiB.
            trio.BrokenResourceError: the peer is gone, or has not taken it within 30 s.

        Cancelled, half of a frame may have been sent: the connection is of no use then.
        """
        with trio.move_on_after(SEND_S):
            async with self._sending:
                text = encode_frame(message)
                if len(text) > FRAME_BYTES:
                    raise PayloadError(f"a frame of {len(text)} bytes; {FRAME_BYTES} are allowed")
                await self._stream.send_all(HEADER.pack(len(text)) + text)
                return
        raise trio.BrokenResourceError(f"the peer took nothing for {SEND_S:g} s")

    async def receive(self) -> IpcMessage | None:
        """The next frame; None when the peer has closed the connection between two.

        Raises:
            PayloadError: it is no frame. The next one can be read, unless it was too long.
            trio.BrokenResourceError: the connection broke, a frame is too long to be read, or did not end within 30 s.
        """
        head = await self._stream.receive_some(HEADER.size)
        if not head:
            return None
        with trio.move_on_after(FRAME_S) as within:
            (length,) = HEADER.unpack(head + await self._exactly(HEADER.size - len(head)))
            if length > FRAME_BYTES:
                raise trio.BrokenResourceError(f"a frame of {length} bytes; {FRAME_BYTES} are allowed")
            within.deadline = float("inf")  # it is no fault of the peer that it waits for its share
            async with self._share.of(length):
                within.deadline = trio.current_time() + FRAME_S
                return decode_frame(await self._exactly(length))
        raise trio.BrokenResourceError(f"a frame did not end within {FRAME_S:g} s")

    async def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            data = await self._stream.receive_some(min(size - len(got), 1 << 16))
            if not data:
                raise trio.BrokenResourceError("the peer went away within a frame")
            got += data
        return bytes(got)
