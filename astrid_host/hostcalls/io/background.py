"""Work of host functions that goes on while no guest waits for it: on the trio loop, whatever thread asks.

Guests and their peers bring it about, so an error that leaves it is a line in the log and never the end of the host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trio

    from astrid_host.scheduler import Scheduler

log = logging.getLogger(__name__)


class Background:
    """Where such work runs. Made on the trio thread.

    Args:
        scheduler: who passes work on to the loop.
        nursery: whose end is the end of all that was begun here.
    """

    __slots__ = ("_loop", "_nursery", "scheduler")

    def __init__(self, scheduler: Scheduler, nursery: trio.Nursery) -> None:
        self.scheduler = scheduler
        self._nursery = nursery
        self._loop = threading.get_ident()

    def tell(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread: at once where this is it, else soon, in the order in which it was told."""
        if threading.get_ident() == self._loop:
            callback()
        else:
            self.scheduler.call_soon(callback)
            self.scheduler.wake_loop()

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin a task. It should deal with its own errors: one that leaves it is logged, and the task has ended."""
        self.tell(lambda: self._nursery.start_soon(_contained, work))


async def _contained(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except* Exception:  # of a group, only the errors: its cancellations go on to their scope
        log.exception("work in the background ended by a fault of the host")
