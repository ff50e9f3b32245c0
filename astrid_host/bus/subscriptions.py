"""Who receives events besides handlers: routed subscriptions of guests and of the host's API.

A subscription keeps what has not been taken yet in one lane for each principal. Lanes are served by deficit round robin, so
a principal with much to say does not keep the others waiting; the events of one principal stay in order. Up to a budget of
bytes is kept, and up to a number of events of one principal. What does not fit pushes out the oldest: of the whole subscription
for the budget, of its own lane for the number. An event that is larger than the whole budget is not kept. All of these are
counted. Everything here is called with the bus's lock held. (Astrid, event routes.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from astrid_host.bus.backlog import STEP_BITS, Backlog
from astrid_host.bus.events import Event
from astrid_host.bus.losses import Losses
from astrid_host.topics import BusIndex

BUDGET_BYTES = 1 << 20
PRINCIPAL_EVENTS = 16_384
QUANTUM_BYTES = 256
STALE = 1024


class _Kept:
    """An event that waits; `event` is None once it was taken or given up."""

    __slots__ = ("event", "lane", "size")

    def __init__(self, event: Event, lane: _Lane, size: int) -> None:
        self.event: Event | None = event
        self.lane = lane
        self.size = size


class _Lane:
    """What waits of one principal, and how many bytes it may still take in this round."""

    __slots__ = ("credit", "kept", "principal", "round")

    def __init__(self, principal: str | None, round_: int) -> None:
        self.principal = principal
        self.kept: deque[_Kept] = deque()
        self.credit = 0
        self.round = round_


class Subscription:
    """One routed subscription.

    Args:
        pattern: by the bus's rules: a trailing `.*` is one or more segments.
        principal: only this principal's events; None for everybody's.
        budget: bytes of payloads and topics that may wait.
    """

    __slots__ = (
        "_by_age",
        "_lanes",
        "_next",
        "_now",
        "_round",
        "backlog",
        "budget",
        "charged",
        "dropped",
        "listener",
        "losses",
        "pattern",
        "principal",
        "size",
        "told",
        "waiter",
        "waiting",
    )

    def __init__(self, pattern: str, principal: str | None = None, budget: int = BUDGET_BYTES) -> None:
        self.pattern = pattern
        self.principal = principal
        self.budget = budget
        self.size = 0  # bytes that wait
        self.backlog: Backlog | None = None  # where they are accounted for, in steps
        self.charged = 0  # steps of it
        self.waiting = 0  # events that wait
        self.dropped = 0  # since the beginning
        self.told = 0  # how many of them the subscriber was told of
        self.losses: Losses | None = None  # where drops are counted for the whole host
        self.listener: Callable[[], None] | None = None  # called for each event that is kept
        self.waiter: Callable[[], None] | None = None  # called once, when there is something to take
        self._lanes: dict[str | None, _Lane] = {}  # only those in which something waits
        self._now: deque[_Lane] = deque()  # to be served in this round
        self._next: deque[_Lane] = deque()  # their next event needs the credit of another round
        self._round = 0
        # All in order of arrival, which is that of `seq`: the oldest is found without a look at the lanes. What was taken
        # stays until it comes to the front, or until there is too much of it.
        self._by_age: deque[_Kept] = deque()

    def offer(self, event: Event) -> None:
        """Keep an event that matched, and wake who waits for it."""
        size = len(event.payload) + len(event.topic)
        if size > self.budget:
            self._count_drop()
            return
        while self.size + size > self.budget:
            self._give_up_oldest()
        if self.backlog is not None and self.backlog.pressed and not self._fits(self.backlog, size):
            self._count_drop()
            return
        lane = self._lanes.get(event.principal)
        if lane is None:
            # It begins with the next round, or one that comes and goes would never let this one end.
            lane = self._lanes[event.principal] = _Lane(event.principal, self._round)
            self._next.append(lane)
        elif len(lane.kept) >= PRINCIPAL_EVENTS:
            self._give_up(lane.kept[0])
        kept = _Kept(event, lane, size)
        lane.kept.append(kept)
        self._by_age.append(kept)
        self.size += size
        self.waiting += 1
        if self.size >> STEP_BITS != self.charged:
            self._charge()
        if self.listener is not None:
            self.listener()
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter()

    def _fits(self, backlog: Backlog, size: int) -> bool:
        """Whether it may hold so much more, once its oldest events have given way."""
        while backlog.refuses(self.principal, size):
            if not self.waiting:
                return False
            self._give_up_oldest()
        return True

    def _charge(self) -> None:
        steps = self.size >> STEP_BITS
        if self.backlog is not None:
            self.backlog.change(self.principal, steps - self.charged)
            self.charged = steps

    def release(self) -> None:
        """It holds nothing any more: it is not read again."""
        if self.backlog is not None:
            self.backlog.change(self.principal, -self.charged)
        self.backlog, self.charged = None, 0

    def take(self) -> Event | None:
        """The next event: the oldest of the principal whose turn it is."""
        if not self.waiting:
            return None
        lane = self._lane_in_turn()
        kept = lane.kept.popleft()
        event = kept.event
        assert event is not None, "a lane has only what waits"
        kept.event = None
        lane.credit -= kept.size
        if lane.kept:
            (self._now if lane.kept[0].size <= lane.credit else self._next).append(lane)
        else:
            del self._lanes[lane.principal]
        self._forget(kept)
        return event

    def _lane_in_turn(self) -> _Lane:
        if len(self._lanes) == 1:  # nobody to share with
            self._now.clear()
            self._next.clear()
            (lane,) = self._lanes.values()
            lane.credit = max(lane.credit, lane.kept[0].size)
            return lane
        while True:
            if not self._now:
                self._now, self._next = self._next, self._now
                self._round += 1
            lane = self._now.popleft()
            if not lane.kept:  # all it had was given up
                continue
            if lane.round != self._round:
                lane.credit += QUANTUM_BYTES * (self._round - lane.round)
                lane.round = self._round
            if lane.kept[0].size <= lane.credit:
                return lane
            self._next.append(lane)

    def _give_up_oldest(self) -> None:
        while True:
            kept = self._by_age[0]
            if kept.event is not None:
                self._give_up(kept)
                return
            self._by_age.popleft()

    def _give_up(self, kept: _Kept) -> None:
        """Drop the first event of a lane."""
        lane = kept.lane
        if lane.kept[0] is not kept:
            raise RuntimeError("a lane gives up from its front")
        lane.kept.popleft()
        kept.event = None
        if not lane.kept:
            del self._lanes[lane.principal]
            if len(self._now) + len(self._next) > 2 * len(self._lanes) + STALE:
                self._now = deque(lane for lane in self._now if lane.kept)
                self._next = deque(lane for lane in self._next if lane.kept)
        self._forget(kept)
        self._count_drop()

    def _count_drop(self) -> None:
        self.dropped += 1
        if self.losses is not None:
            self.losses.count(self.pattern)

    def newly_dropped(self) -> int:
        """How many events were dropped since this was asked last."""
        count = self.dropped - self.told
        self.told = self.dropped
        return count

    def _forget(self, kept: _Kept) -> None:
        self.size -= kept.size
        self.waiting -= 1
        if self.size >> STEP_BITS != self.charged:
            self._charge()
        by_age = self._by_age
        while by_age and by_age[0].event is None:
            by_age.popleft()
        if len(by_age) > 2 * self.waiting + STALE:
            self._by_age = deque(entry for entry in by_age if entry.event is not None)


class Subscriptions:
    """All routed subscriptions, found by topic: `exact` has those to one topic, `wild` counts those to patterns."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self._backlog = backlog
        self.exact: dict[str, list[Subscription]] = {}
        self._patterns: BusIndex[Subscription] = BusIndex()
        self.wild = 0
        self.losses = Losses("were dropped by subscriptions, which are not read fast enough")

    def add(self, subscription: Subscription) -> None:
        subscription.losses = self.losses
        subscription.backlog = self._backlog
        if "*" in subscription.pattern:
            self._patterns.insert(subscription.pattern, subscription)
            self.wild += 1
        else:
            self.exact.setdefault(subscription.pattern, []).append(subscription)

    def remove(self, subscription: Subscription) -> None:
        subscription.release()
        if "*" in subscription.pattern:
            self._patterns.remove(subscription.pattern, subscription)
            self.wild -= 1
            return
        kept = self.exact[subscription.pattern]
        kept.remove(subscription)
        if not kept:
            del self.exact[subscription.pattern]

    def matching(self, topic: str, principal: str | None) -> Iterator[Subscription]:
        """Those that receive an event of that topic and principal."""
        for subscription in self.exact.get(topic, ()):
            if subscription.principal is None or subscription.principal == principal:
                yield subscription
        if self.wild:
            for subscription in self._patterns.find(topic):
                if subscription.principal is None or subscription.principal == principal:
                    yield subscription
