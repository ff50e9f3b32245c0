"""Work of host functions that goes on while no guest waits for it: on the trio loop, whatever thread asks."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trio

    from astrid_host.calls import Turns


class Background:
    """Where such work runs. Made on the trio thread.

    Args:
        turns: who passes work on to the loop.
        nursery: whose end is the end of all that was begun here.
    """

    __slots__ = ("_loop", "_nursery", "turns")

    def __init__(self, turns: Turns, nursery: trio.Nursery) -> None:
        self.turns = turns
        self._nursery = nursery
        self._loop = threading.get_ident()

    def tell(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread: at once where this is it, else soon, in the order in which it was told."""
        if threading.get_ident() == self._loop:
            callback()
        else:
            self.turns.tell(callback)
            self.turns.ring()

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin a task. It has to deal with its own errors: one that leaves it ends the host."""
        self.tell(lambda: self._nursery.start_soon(work))
