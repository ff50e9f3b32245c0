"""A routed subscription against a plain list of what waits in it.

`SubscriptionMachine` offers and takes at random. Nothing may be lost that is not counted; what is given up must be the oldest;
each principal's events come in order; nobody is starved, and bytes are shared evenly among those who wait. A step that
breaks one of these fails with what was expected. Two constants of the module under test are made small while a machine
lives, so that a few steps reach them.
"""

from __future__ import annotations

from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from astrid_host.bus import Event, Subscription, subscriptions
from astrid_host.bus.subscriptions import Subscriptions

TOPIC = "t"
QUANTUM = 256  # bytes that a principal may take in a round
MOST_EVENTS = 12  # of one principal
STALE = 8
BUDGETS = [1, 300, 1500, 5000]
WHO = st.sampled_from(["ann", "bob", "cy", None])
SIZES = st.sampled_from([1, 10, 100, 256, 300, 1000])  # bytes of topic and payload


class Shares:
    """How many bytes were taken by whom while others waited.

    In n rounds of deficit round robin a principal takes at most n quanta and its largest event. So while somebody's event
    waits, each other one takes at most that in the rounds that it takes to save up for the event, and one more. And two who
    both wait all the time are never further apart than two quanta and their largest events, however one cuts the time.
    """

    def __init__(self) -> None:
        self._largest: dict[str | None, int] = {}
        self._passed: dict[str | None, dict[str | None, int]] = {}  # who waits -> who took meanwhile -> bytes
        self._ahead: dict[tuple[str | None, str | None], list[int]] = {}  # pair -> [now, least, most] bytes

    def offered(self, who: str | None, size: int) -> None:
        """An event of that principal was kept."""
        self._largest[who] = max(self._largest.get(who, 0), size)
        if who not in self._passed:
            self._ahead.update({(who, other): [0, 0, 0] for other in self._passed})
            self._passed[who] = {}

    def emptied(self, who: str | None) -> None:
        """Nothing of that principal waits any more."""
        del self._passed[who]
        self._ahead = {pair: ahead for pair, ahead in self._ahead.items() if who not in pair}

    def taken(self, who: str | None, size: int) -> None:
        """An event of that principal was taken."""
        self._passed[who] = {}
        for waiting, passed in self._passed.items():
            if waiting != who:
                passed[who] = passed.get(who, 0) + size
                most = (-(-self._largest[waiting] // QUANTUM) + 1) * QUANTUM + self._largest[who]
                assert passed[who] <= most, f"{waiting} starves: {who} has taken {passed[who]} bytes while it waited"
        for pair, ahead in self._ahead.items():
            if who in pair:
                ahead[0] += size if who == pair[0] else -size
                ahead[1], ahead[2] = min(ahead[1], ahead[0]), max(ahead[2], ahead[0])
                apart, most = ahead[2] - ahead[1], 2 * QUANTUM + sum(self._largest[one] for one in pair)
                assert apart <= most, f"{pair} both wait, but one has taken {apart} bytes more"


class SubscriptionMachine(RuleBasedStateMachine):
    """Offers and takes, in any order and of any size."""

    def __init__(self) -> None:
        super().__init__()
        self._small = [
            mock.patch.object(subscriptions, "PRINCIPAL_EVENTS", MOST_EVENTS),
            mock.patch.object(subscriptions, "STALE", STALE),
        ]
        for patch in self._small:
            patch.start()
        self.waiting: list[Event] = []  # in order of arrival
        self.seq = self.offered = self.taken = self.dropped = self.told = self.woken = self.heard = 0
        self.waits = False
        self.sound = True  # the last step went well
        self.shares = Shares()

    @initialize(budget=st.sampled_from(BUDGETS))
    def subscribe(self, budget: int) -> None:
        self.budget = budget
        self.real = Subscription(TOPIC, budget=budget)
        self.real.listener = self._hear
        self.all = Subscriptions()
        self.all.add(self.real)

    @rule(who=WHO, size=SIZES)
    def offer(self, who: str | None, size: int) -> None:
        self.sound = False
        self.seq += 1
        self.offered += 1
        event = Event(TOPIC, b"x" * (size - len(TOPIC)), None, who, "s", self.seq, 0.0, True)
        self.real.offer(event)
        if size > self.budget:
            assert not self.woken + self.heard, "nobody is told of what is not kept"
            self.dropped += 1
            return
        while self._bytes() + size > self.budget:
            self._give_up(self.waiting[0])
        own = self._of(who)
        if len(own) == MOST_EVENTS:
            self._give_up(own[0])
        self.shares.offered(who, size)
        self.waiting.append(event)
        assert self.woken == self.waits, "who waits is woken once by an event that is kept"
        assert self.heard == 1, f"seq {self.seq} was kept, and told {self.heard} times"
        self.woken, self.heard, self.waits = 0, 0, False

    @rule(who=WHO, size=SIZES, times=st.integers(2, 30))
    def offer_many(self, who: str | None, size: int, times: int) -> None:
        for _ in range(times):
            self.offer(who, size)

    @rule()
    def take(self) -> None:
        self.sound = False
        event = self.real.take()
        if not self.waiting:
            assert event is None, f"nothing waits, yet {event} was taken"
            return
        assert event is not None, f"{len(self.waiting)} events wait, yet none was taken"
        first = self._of(event.principal)[:1]
        assert first == [event], f"took seq {event.seq} of {event.principal} before its first, {[e.seq for e in first]}"
        self.taken += 1
        self.shares.taken(event.principal, size_of(event))
        self._forget(event)

    @rule(times=st.integers(2, 30))
    def take_many(self, times: int) -> None:
        for _ in range(times):
            self.take()

    @rule(who=WHO, size=SIZES, times=st.sampled_from([2, 15, 40]))
    def offer_and_take(self, who: str | None, size: int, times: int) -> None:
        """A subscriber that takes as fast as one principal's events come."""
        for _ in range(times):
            self.offer(who, size)
            self.take()

    @precondition(lambda self: not self.waiting)
    @rule()
    def wait(self) -> None:
        self.waits = True
        self.real.waiter = self._wake

    @rule()
    def ask_what_was_dropped(self) -> None:
        self.told += self.real.newly_dropped()
        assert self.told == self.dropped

    @invariant()
    def all_is_accounted_for(self) -> None:
        assert self.offered == self.taken + self.dropped + len(self.waiting)
        assert self.real.dropped == self.dropped, f"{self.real.dropped} are counted as dropped, {self.dropped} were"
        assert self.all.losses.by_name == ({TOPIC: self.dropped} if self.dropped else {})
        assert self.real.waiting == len(self.waiting)
        assert self.real.size == self._bytes() <= self.budget
        assert all(len(self._of(who)) <= MOST_EVENTS for who in {event.principal for event in self.waiting})
        self.sound = True

    def teardown(self) -> None:
        for patch in self._small:
            patch.stop()
        if self.sound and self.offered:
            self.take_many(len(self.waiting) + 1)
            assert not self.waiting

    def _wake(self) -> None:
        self.woken += 1

    def _hear(self) -> None:
        self.heard += 1

    def _bytes(self) -> int:
        return sum(map(size_of, self.waiting))

    def _of(self, who: str | None) -> list[Event]:
        return [event for event in self.waiting if event.principal == who]

    def _give_up(self, event: Event) -> None:
        self.dropped += 1
        self._forget(event)

    def _forget(self, event: Event) -> None:
        self.waiting.remove(event)
        if not self._of(event.principal):
            self.shares.emptied(event.principal)


def size_of(event: Event) -> int:
    """The bytes that count for a budget."""
    return len(event.topic) + len(event.payload)
