"""Backpressure: whoever publishes to a full queue is blocked until there is room again.

The publish is taken all the same. A guest that is still running is blocked at its next epoch check; when its call is over
before, or when a chain hands an event on to a full member, the queue that it came from is held: nothing more is taken out of
it. Both go on when some places are free, or when nothing was taken out of the full queue for a second. From then on publishes
from there to the full queue are refused for as long as it is full. Nobody waits for a queue that waits for its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from astrid_host.scheduler import Call, Scheduler

if TYPE_CHECKING:
    from astrid_host.dispatch.queues import Queue

STILL_S = 1.0


class Backpressure:
    """Why a call, and then perhaps the queue that it came from, is blocked. The lock is held.

    Args:
        call: which one.
        home: the queue that it came from; None for a run loop.
        queue: what it waits for.
        entering: whether it publishes from outside: a run loop.
        now: in seconds of `time.monotonic`.
    """

    __slots__ = ("_moves", "_since", "call", "entering", "home", "queue")

    def __init__(self, call: Call, home: Queue | None, queue: Queue, entering: bool, now: float) -> None:
        self.call = call
        self.home = home
        self.queue = queue
        self.entering = entering
        self._moves = queue.moves
        self._since = now

    def until(self, now: float) -> float | None:
        """When to ask again, if it was not released before; None when what is blocked may go on."""
        queue = self.queue
        if queue.has_relief(self.entering):
            return None
        if queue.moves != self._moves:
            self._moves, self._since = queue.moves, now
        if now - self._since >= STILL_S:
            queue.blocked_callers.pop(self, None)
            home = self.call if self.home is None else self.home
            if queue not in home.gave_up:
                home.gave_up = (*home.gave_up, queue)
            return None
        queue.blocked_callers[self] = None
        return self._since + STILL_S

    def release(self, scheduler: Scheduler) -> None:
        """There is room again."""
        if self.home is not None and self.home.held is self:
            self.home.let_go()
        scheduler.release_locked(self.call, self)


def waits_for(queue: Queue) -> Iterator[Queue]:
    """The queues that have to move before this one does: it is held for them, or its calls stand still for them."""
    found, ahead = {queue}, [queue]
    while ahead:
        at = ahead.pop()
        brakes = [at.held, *(call.backpressure for call in at.running)]
        for backpressure in brakes:
            if isinstance(backpressure, Backpressure) and backpressure.queue not in found:
                found.add(backpressure.queue)
                ahead.append(backpressure.queue)
                yield backpressure.queue
