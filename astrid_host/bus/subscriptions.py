"""Who receives events besides handlers: subscriptions of guests and of the host's API.

A subscription keeps what has not been taken yet, oldest first, up to a budget of bytes. When an event does not fit, the
oldest ones go until it does, and are counted; one that is larger than the whole budget is not kept, and is counted too.
Everything here is called with the bus's lock held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from astrid_host.bus.events import Event
from astrid_host.topics import BusIndex

BUDGET_BYTES = 1 << 20


class Subscription:
    """One subscription.

    Args:
        pattern: by the bus's rules: a trailing `.*` is one or more segments.
        principal: only this principal's events; None for everybody's.
        observe: only watch: do not count as a receiver.
        budget: bytes of payloads and topics that may wait.
    """

    __slots__ = ("budget", "dropped", "events", "observe", "pattern", "principal", "size", "told", "waiter")

    def __init__(
        self, pattern: str, principal: str | None = None, observe: bool = False, budget: int = BUDGET_BYTES
    ) -> None:
        self.pattern = pattern
        self.principal = principal
        self.observe = observe
        self.budget = budget
        self.events: deque[Event] = deque()
        self.size = 0
        self.dropped = 0  # since the beginning
        self.told = 0  # how many of them the subscriber was told of
        self.waiter: Callable[[], None] | None = None  # called once, when there is something to take

    def offer(self, event: Event) -> None:
        """Keep an event that matched, and wake who waits for it."""
        size = len(event.payload) + len(event.topic)
        if size > self.budget:
            self.dropped += 1
            return
        while self.size + size > self.budget:
            self._forget(self.events.popleft())
            self.dropped += 1
        self.events.append(event)
        self.size += size
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter()

    def take(self) -> Event | None:
        """The oldest event that was not taken yet."""
        if not self.events:
            return None
        event = self.events.popleft()
        self._forget(event)
        return event

    def newly_dropped(self) -> int:
        """How many events were dropped since this was asked last."""
        count = self.dropped - self.told
        self.told = self.dropped
        return count

    def _forget(self, event: Event) -> None:
        self.size -= len(event.payload) + len(event.topic)


class Subscriptions:
    """All subscriptions, found by topic."""

    def __init__(self) -> None:
        self._exact: dict[str, list[Subscription]] = {}
        self._patterns: BusIndex[Subscription] = BusIndex()
        self._wild = 0

    def add(self, subscription: Subscription) -> None:
        if "*" in subscription.pattern:
            self._patterns.insert(subscription.pattern, subscription)
            self._wild += 1
        else:
            self._exact.setdefault(subscription.pattern, []).append(subscription)

    def remove(self, subscription: Subscription) -> None:
        if "*" in subscription.pattern:
            self._patterns.remove(subscription.pattern, subscription)
            self._wild -= 1
            return
        kept = self._exact[subscription.pattern]
        kept.remove(subscription)
        if not kept:
            del self._exact[subscription.pattern]

    def any_for(self, topic: str) -> bool:
        """Whether it is worth asking who matches: most topics have no subscription."""
        return bool(self._wild) or topic in self._exact

    def matching(self, topic: str, principal: str | None) -> Iterator[Subscription]:
        """Those that receive an event of that topic and principal."""
        for subscription in self._exact.get(topic, ()):
            if subscription.principal is None or subscription.principal == principal:
                yield subscription
        if self._wild:
            for subscription in self._patterns.find(topic):
                if subscription.principal is None or subscription.principal == principal:
                    yield subscription
