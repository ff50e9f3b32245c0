"""Queues: one for each capsule and principal, served one call at a time and in order, whatever the delivery mode.

That is what makes a guest's load-work-save of its state safe. `[limits] concurrency` lets a capsule run more at once,
started in order. 64 events that enter from outside have room; those that follow from another's handling have 1,024. What
guests publish above that is still taken, up to twice as much, because the publisher is made to stand still. 16 MiB of payloads
make a queue as full as 1,024 events do.

A capsule has 10,000 queues at most. The events of further principals share one more with room for 160 times as many, still in
order and with each call on behalf of its own principal. A principal that shares gets a queue of its own once the shared one is
empty.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from astrid_host.bus import Event
from astrid_host.bus.backlog import STEP_BITS
from astrid_host.payloads import NIL_SOURCE
from astrid_host.scheduler import Call, Pace
from astrid_host.topics import KERNEL_TOPICS

if TYPE_CHECKING:
    from astrid_host.dispatch.backpressure import Backpressure
    from astrid_host.dispatch.dispatcher import Dispatcher
    from astrid_host.dispatch.handlers import Handler, Receiver

log = logging.getLogger(__name__)

# Tries to enter: True when it did, False when it waits elsewhere now, None when nobody wants to enter any more.
Enter: TypeAlias = Callable[[], bool | None]

ENTERING_ROOM = 64
FOLLOWING_ROOM = 1024
FEWEST_FULL = 16  # events of 1 MiB each
RELIEF = 32  # so many places are free again before a guest goes on: it fills them in less than a slice
FOLLOWING_BYTES = 16 << 20
OVERFLOW = 2  # so many times the room is taken from guests that are about to stand still
QUEUES = 10_000
SHARES = 160  # so many times the room of one principal has the queue that principals share
SWEEPS_IDLE = 6  # of 10 s each: a queue leaves after a minute in which nothing was put into it


class Work:
    """One event on its way through one handler; in a chain, `step` counts the members before it.

    `entering` says that it takes room of those that enter: into a chain an event enters only before its first member.
    """

    __slots__ = ("chain", "entering", "event", "handler", "pace", "payload", "queue", "step")

    def __init__(
        self, queue: Queue, handler: Handler, event: Event, payload: bytes, chain: tuple[Handler, ...], step: int
    ) -> None:
        self.queue = queue
        self.handler = handler
        self.pace = queue.paces.get(handler) or queue.pace_of(handler)
        self.event = event
        self.payload = payload
        self.chain = chain
        self.step = step
        self.entering = event.entering and not step

    def ended(self, call: Call, failure: BaseException | None) -> None:
        self.queue.dispatcher.ended(self, call, failure)


class Queue:
    """What waits for one capsule on behalf of one principal. The lock is held.

    Attributes:
        works: what waits, in order.
        entering: how many of them entered from outside.
        size: bytes of their payloads.
        flight: bytes of the payloads of calls under way.
        charged: steps of the host's backlog that both together take.
        running: calls under way.
        moves: how many works were taken out so far.
        outside: callers that wait for room to enter, by what they wait with.
        braked: what stands still until there is room here again.
        held: why nothing is taken out of it: its last call published to a queue that is full.
        gave_up: full queues that its calls waited for in vain.
        rooms: how many principals' room it has.
    """

    __slots__ = (
        "admission_waiters",
        "blocked_callers",
        "charged",
        "dispatcher",
        "entering",
        "flight",
        "gave_up",
        "held",
        "idle_sweeps",
        "moves",
        "paces",
        "principal",
        "receiver",
        "rooms",
        "running",
        "scheduled",
        "size",
        "works",
    )

    def __init__(
        self, dispatcher: Dispatcher, receiver: Receiver, rooms: int = 1, principal: str | None = None
    ) -> None:
        self.dispatcher = dispatcher
        self.receiver = receiver
        self.works: deque[Work] = deque()
        self.rooms = rooms
        self.running: set[Call] = set()
        self.entering = 0
        self.size = self.flight = self.charged = 0
        self.principal = principal
        self.moves = 0
        self.scheduled = False
        self.idle_sweeps = 0
        self.admission_waiters: dict[object, Enter] = {}
        self.blocked_callers: dict[Backpressure, None] = {}
        self.held: Backpressure | None = None
        self.gave_up: tuple[object, ...] = ()
        # How long a handler computes is kept here, so that a principal whose events take long sends nobody else's to the workers.
        self.paces: dict[Handler, Pace] = {}

    @property
    def in_use(self) -> bool:
        return bool(self.works or self.running or self.admission_waiters)

    def pace_of(self, handler: Handler) -> Pace:
        """How long that handler tends to compute for this queue's principals."""
        return self.paces.setdefault(handler, Pace())

    def is_full(self, entering: bool) -> bool:
        """Whether whoever publishes one more event has to wait, or to give up."""
        if entering:
            return self.entering >= ENTERING_ROOM * self.rooms
        return len(self.works) - self.entering >= FOLLOWING_ROOM * self.rooms or self.size >= FOLLOWING_BYTES

    def has_relief(self, entering: bool) -> bool:
        """Whether those who stand still may go on: there is room for some more events then."""
        if entering:
            return self.entering <= ENTERING_ROOM * self.rooms // 2
        few = len(self.works) - self.entering <= FOLLOWING_ROOM * self.rooms - RELIEF
        return few and self.size <= FOLLOWING_BYTES // 2

    def takes(self, work: Work) -> bool:
        """Whether there is room for this event."""
        event = work.event
        if work.entering:
            room = ENTERING_ROOM if event.source_id == NIL_SOURCE else OVERFLOW * ENTERING_ROOM
            return self.entering < room * self.rooms
        if not self.is_full(False):
            return True
        following = len(self.works) - self.entering
        some = following < OVERFLOW * FOLLOWING_ROOM * self.rooms and self.size < OVERFLOW * FOLLOWING_BYTES
        return some and not event.topic.startswith(KERNEL_TOPICS)

    def put(self, work: Work) -> None:
        works = self.works
        works.append(work)
        if work.entering:
            self.entering += 1
        self.size += len(work.payload)
        if self.size + self.flight >> STEP_BITS != self.charged:
            self._charge()
        self.idle_sweeps = 0
        if len(works) >= FEWEST_FULL and (self.is_full(True) or self.is_full(False)):
            self.dispatcher.full_queues.add(self)
        if not self.scheduled and self.held is None and len(self.running) < self.receiver.concurrency:
            self.scheduled = True
            self.dispatcher.scheduler.schedule_locked(self)

    def schedule(self) -> None:
        if self.works and not self.scheduled and self.held is None and len(self.running) < self.receiver.concurrency:
            self.scheduled = True
            self.dispatcher.scheduler.schedule_locked(self)

    def take(self) -> Call | None:
        self.scheduled = False
        if not self.works or self.held is not None or len(self.running) >= self.receiver.concurrency:
            return None
        work = self.works.popleft()
        self.moves += 1
        size = len(work.payload)
        self.size -= size
        self.flight += size
        if work.entering:
            self.entering -= 1
        if self.admission_waiters:
            self.let_in()
        if self.blocked_callers or self.dispatcher.full_queues:
            self._relieve()
        receiver, principal = self.receiver, work.event.principal
        call = Call(
            receiver,
            receiver.hook,
            (work.handler.action, work.payload),
            self.dispatcher.owner if principal is None else principal,
            work.event,
            work,
            receiver.timeout_s,
        )
        self.running.add(call)
        if self.works:
            self.schedule()
        return call

    def ended(self, work: Work, call: Call) -> None:
        """A call of its is over."""
        self.running.discard(call)
        self.flight -= len(work.payload)
        if self.size + self.flight >> STEP_BITS != self.charged:
            self._charge()

    def _charge(self) -> None:
        steps = self.size + self.flight >> STEP_BITS
        self.dispatcher.bus.backlog.change(self.principal, steps - self.charged)
        self.charged = steps

    # Standing still.

    def hold(self, backpressure: Backpressure) -> None:
        """Take nothing more out of it until there is room in the queue that its last call published to."""
        if self.held is None:
            self.held = backpressure
            self._look_again()

    def _look_again(self) -> None:
        backpressure = self.held
        if backpressure is None:
            return
        until = backpressure.until(time.monotonic())
        if until is None:
            self.let_go()
        else:
            self.dispatcher.scheduler.call_at_locked(until, self._look_again)

    def let_go(self) -> None:
        """What it was held for is there, or will not come."""
        self.held = None
        self.schedule()

    def _relieve(self) -> None:
        """Something was taken out: who stood still goes on once there is room enough."""
        if not (self.is_full(True) or self.is_full(False)):
            self.dispatcher.full_queues.discard(self)
        for backpressure in [
            backpressure for backpressure in self.blocked_callers if self.has_relief(backpressure.entering)
        ]:
            del self.blocked_callers[backpressure]
            backpressure.release(self.dispatcher.scheduler)

    def let_in(self) -> None:
        """The longest waiting caller that is still there tries to enter."""
        while self.admission_waiters and not (self.is_full(True) or self.is_full(False)):
            if self.admission_waiters.pop(next(iter(self.admission_waiters)))() is not None:
                return

    def belong_to(self, receiver: Receiver) -> None:
        """What waits, and what comes, is for another version of the capsule."""
        self.receiver = receiver
        self.paces.clear()
        for work in self.works:
            work.pace = self.pace_of(work.handler)
        self.schedule()  # it may run more at once

    def clear_gone(self) -> list[Work]:
        """Take out what waits for handlers that are no more."""
        return self._clear(lambda work: work.handler.gone)

    def clear_of(self, principal: str | None, concerned: Callable[[Event], bool] = lambda _event: True) -> list[Work]:
        """Take out what waits on behalf of one principal, or those of its events that are concerned."""
        return self._clear(lambda work: work.event.principal == principal and concerned(work.event))

    def _clear(self, chosen: Callable[[Work], bool]) -> list[Work]:
        works: list[Work] = []
        kept: deque[Work] = deque()
        for work in self.works:
            (works if chosen(work) else kept).append(work)
        self.works = kept
        self._emptied(works)
        return works

    def _emptied(self, works: list[Work]) -> None:
        self.entering -= sum(work.entering for work in works)
        self.size -= sum(len(work.payload) for work in works)
        self._charge()
        self.moves += len(works)
        self._relieve()
        for _ in range(len(self.admission_waiters)):
            self.let_in()


class Queues:
    """The queues of one capsule. The lock is held."""

    __slots__ = ("_shared", "_told", "by_principal")

    def __init__(self) -> None:
        self.by_principal: dict[str | None, Queue] = {}
        self._shared: Queue | None = None
        self._told = False

    def __iter__(self) -> Iterator[Queue]:
        yield from self.by_principal.values()
        if self._shared is not None:
            yield self._shared

    def __len__(self) -> int:
        return len(self.by_principal) + (self._shared is not None)

    def find(self, principal: str | None) -> Queue | None:
        """The queue in which events of that principal wait, if there is one."""
        return self.by_principal.get(principal) or self._shared

    def get(self, dispatcher: Dispatcher, receiver: Receiver, principal: str | None) -> Queue:
        """The queue for events of that principal, made when there is none."""
        queue = self.by_principal.get(principal)
        if queue is not None:
            return queue
        if self._shared is not None and self._shared.in_use:
            return self._shared
        if len(self.by_principal) < QUEUES:
            queue = self.by_principal[principal] = Queue(dispatcher, receiver, principal=principal)
            return queue
        if self._shared is None:
            self._shared = Queue(dispatcher, receiver, SHARES)
        if not self._told:
            self._told = True
            log.warning(
                "%s has %d queues; the events of further principals share one, and wait for each other",
                receiver.id,
                QUEUES,
            )
        return self._shared

    def sweep(self, principals: Sequence[str | None]) -> None:
        """Called every 10 s for each principal: forget the queues that were not used for a minute."""
        for principal in principals:
            queue = self.by_principal.get(principal)
            if queue is None or queue.in_use:
                continue
            queue.idle_sweeps += 1
            if queue.idle_sweeps > SWEEPS_IDLE:
                del self.by_principal[principal]

    def sweep_shared(self) -> None:
        """Forget the shared queue, and that it was told of, when nothing waits in it."""
        if self._shared is not None and not self._shared.in_use:
            self._shared = None
            self._told = False
