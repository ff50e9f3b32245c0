"""Backpressure: a guest that publishes to a full queue stands still until there is room again.

Its publish is taken all the same; it stands still at its next epoch check. It goes on when some places are free, or when
nothing was taken out of the queue for a second: that ends every cycle of guests that wait for each other. From then
on its publishes to that queue are refused for as long as it is full. A call never waits for its own queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from astrid_host.calls import Call, Turns

if TYPE_CHECKING:
    from astrid_host.dispatch.queues import Queue

STILL_S = 1.0


class Brake:
    """Why one call stands still. The lock is held.

    Args:
        call: which one.
        queue: what it waits for.
        entering: whether it publishes from outside: a run loop.
        now: in seconds of `time.monotonic`.
    """

    __slots__ = ("_moves", "_since", "call", "entering", "queue")

    def __init__(self, call: Call, queue: Queue, entering: bool, now: float) -> None:
        self.call = call
        self.queue = queue
        self.entering = entering
        self._moves = queue.moves
        self._since = now

    def until(self, now: float) -> float | None:
        """When to ask again, if it was not released before; None when the call may go on."""
        queue = self.queue
        if queue.has_relief(self.entering):
            return None
        if queue.moves != self._moves:
            self._moves, self._since = queue.moves, now
        if now - self._since >= STILL_S:
            if self in queue.braked:
                queue.braked.remove(self)
            self.call.gave_up = (*self.call.gave_up, queue)
            return None
        if self not in queue.braked:
            queue.braked.append(self)
        return self._since + STILL_S

    def release(self, turns: Turns) -> None:
        """There is room again."""
        turns.release_locked(self.call, self)
