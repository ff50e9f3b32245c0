"""Queues: one for each capsule and principal, served one call at a time and in order, whatever the delivery mode.

That is what makes a guest's load-work-save of its state safe. `[limits] concurrency` lets a capsule run more at once,
started in order. 64 events that enter from outside have room; those that follow from another's handling have 1,024.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from astrid_host.bus import Event
from astrid_host.calls import Call

if TYPE_CHECKING:
    from astrid_host.dispatch.dispatcher import Dispatcher
    from astrid_host.dispatch.handlers import Handler, Receiver

ENTERING_ROOM = 64
FOLLOWING_ROOM = 1024


class Work:
    """One event on its way through one handler; in a chain, `step` counts the members before it."""

    __slots__ = ("chain", "event", "handler", "pace", "payload", "queue", "step")

    def __init__(
        self, queue: Queue, handler: Handler, event: Event, payload: bytes, chain: tuple[Handler, ...], step: int
    ) -> None:
        self.queue = queue
        self.handler = handler
        self.pace = handler.pace
        self.event = event
        self.payload = payload
        self.chain = chain
        self.step = step

    def ended(self, call: Call, failure: BaseException | None) -> None:
        self.queue.dispatcher.ended(self, call, failure)


class Queue:
    """What waits for one capsule on behalf of one principal. The lock is held."""

    __slots__ = ("dispatcher", "entering", "outside", "principal", "receiver", "running", "scheduled", "works")

    def __init__(self, dispatcher: Dispatcher, receiver: Receiver, principal: str | None) -> None:
        self.dispatcher = dispatcher
        self.receiver = receiver
        self.principal = principal
        self.works: deque[Work] = deque()
        self.running = 0
        self.entering = 0
        self.scheduled = False
        self.outside: deque[Callable[[], bool]] = deque()  # callers that wait for room: True when they entered or left

    def has_room(self, entering: bool) -> bool:
        if entering:
            return self.entering < ENTERING_ROOM
        return len(self.works) - self.entering < FOLLOWING_ROOM

    def put(self, work: Work, entering: bool) -> None:
        self.works.append(work)
        self.entering += entering
        if len(self.works) - self.entering >= FOLLOWING_ROOM:
            self.dispatcher.crowded.add(self)
        if not self.scheduled:
            self.schedule()

    def schedule(self) -> None:
        if self.works and not self.scheduled and self.running < self.receiver.concurrency:
            self.scheduled = True
            self.dispatcher.turns.schedule_locked(self)

    def take(self) -> Call | None:
        self.scheduled = False
        if not self.works or self.running >= self.receiver.concurrency:
            return None
        work = self.works.popleft()
        if self.dispatcher.crowded:
            self.dispatcher.crowded.discard(self)
        self.running += 1
        if work.event.entering and not work.step:
            self.entering -= 1
            self.let_in()
        if self.works:
            self.schedule()
        receiver = self.receiver
        return Call(
            receiver,
            receiver.hook,
            (work.handler.action, work.payload),
            self.dispatcher.owner if self.principal is None else self.principal,
            work.event,
            work,
            receiver.timeout_s,
        )

    def let_in(self) -> None:
        """The longest waiting caller that is still there enters."""
        while self.outside and self.entering < ENTERING_ROOM:
            enter = self.outside.popleft()
            if enter():
                return
