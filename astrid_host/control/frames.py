"""Frames on the control socket: a big-endian length of four bytes, then an `IpcMessage` as JSON, 10 MiB at most."""

from __future__ import annotations

import trio

from astrid_host.errors import PayloadError
from astrid_host.payloads import IpcMessage, decode_frame, encode_frame
from astrid_host.syscalls.net.handshake import HEADER

FRAME_BYTES = 10 << 20
SEND_S = 30.0  # a peer that takes nothing for so long is gone


class Frames:
    """The frames of one connection, both ways. One task reads; several may send.

    Args:
        stream: after the handshake; closed by whoever made it.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._sending = trio.Lock()

    async def send(self, message: IpcMessage) -> None:
        """Send a frame; several wait for each other.

        Raises:
            PayloadError: it has more than 10 MiB.
            trio.BrokenResourceError: the peer is gone, or takes nothing for 30 s.

        Cancelled, half of a frame may have been sent: the connection is of no use then.
        """
        text = encode_frame(message)
        if len(text) > FRAME_BYTES:
            raise PayloadError(f"a frame of {len(text)} bytes; {FRAME_BYTES} are allowed")
        async with self._sending:
            with trio.move_on_after(SEND_S):
                await self._stream.send_all(HEADER.pack(len(text)) + text)
                return
        raise trio.BrokenResourceError(f"the peer took nothing for {SEND_S:g} s")

    async def receive(self) -> IpcMessage | None:
        """The next frame; None when the peer has closed the connection between two.

        Raises:
            PayloadError: it is no frame. The next one can be read, unless it was too long.
            trio.BrokenResourceError: the connection broke, or a frame is too long to be read.
        """
        head = await self._exactly(HEADER.size)
        if not head:
            return None
        (length,) = HEADER.unpack(head)
        if length > FRAME_BYTES:
            raise trio.BrokenResourceError(f"a frame of {length} bytes; {FRAME_BYTES} are allowed")
        return decode_frame(await self._exactly(length, all_of_it=True))

    async def _exactly(self, size: int, all_of_it: bool = False) -> bytes:
        got = bytearray()
        while len(got) < size:
            data = await self._stream.receive_some(min(size - len(got), 1 << 16))
            if not data:
                if got or all_of_it:
                    raise trio.BrokenResourceError("the peer went away within a frame")
                return b""
            got += data
        return bytes(got)
