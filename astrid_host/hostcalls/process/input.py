"""A child's input: what the request brings, then what guests write."""

from __future__ import annotations

import math
import os

import trio

from astrid_host.errors import HostError

PIECE_BYTES = 64 << 10
WRITE_S = 10.0


class Input:
    """The end of a pipe that a child reads from. On the trio thread, but for `open`.

    Args:
        descriptor: where to write; None for a child without input.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._turn = trio.Lock()

    @property
    def open(self) -> bool:
        """Whether it can be written to. From any thread."""
        return self._descriptor is not None

    async def feed(self, data: bytes, stays_open: bool) -> bool:
        """Write what the request brings, for as long as it takes; returns whether the child took it all."""
        try:
            await self.write(data, math.inf)
            if not stays_open:
                await self.end()
        except HostError:  # it was closed: the child does not want it
            return False
        return True

    async def write(self, data: bytes, seconds: float = WRITE_S) -> int:
        """Write to it.

        Returns:
            how many bytes it took: all, or as many as there was room for within the time.

        Raises:
            HostError: `closed` when it is; `wait-timeout` when it took none.

        Cancelled, some of it may have been written.
        """
        sent = 0
        with trio.move_on_after(seconds):
            async with self._turn:
                while sent < len(data):
                    if self._descriptor is None:
                        raise HostError("closed", detail="its input is closed")
                    try:
                        sent += os.write(self._descriptor, data[sent : sent + PIECE_BYTES])
                        await trio.lowlevel.checkpoint()
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(self._descriptor)
                    except (OSError, trio.ClosedResourceError):
                        self.close()
                return sent
        if not sent:
            raise HostError("wait-timeout", detail=f"it read nothing of its input for {seconds:g} seconds")
        return sent

    async def end(self, seconds: float = WRITE_S) -> None:
        """Close it after what is being written.

        Raises:
            HostError: `wait-timeout` when that takes too long.
        """
        with trio.move_on_after(seconds):
            async with self._turn:
                self.close()
                return
        raise HostError("wait-timeout", detail=f"what was written before was not taken in {seconds:g} seconds")

    def close(self) -> None:
        """Close it at once; whoever writes to it gets `closed`."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
