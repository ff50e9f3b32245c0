"""The event bus: numbers events and hands them to handlers, subscriptions and observers.

Numbering and queueing are one step under one lock, so every receiver sees events in the order of `seq`. The bus does not
run anything: handlers are queued by the `Sink`, subscribers are woken. Its lock is the host's one lock for all of this; it
is never held while a guest runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from astrid_host.bus.events import Event
from astrid_host.bus.rates import RateLimiter
from astrid_host.bus.reports import FAILED, KERNEL_TOPICS, Failure, Report, shorten
from astrid_host.bus.subscriptions import Subscription, Subscriptions
from astrid_host.payloads import NIL_SOURCE, Payload

log = logging.getLogger(__name__)

Observer = Callable[[Event], None]


class Sink(Protocol):
    """Who queues events for handlers. Called with the bus's lock held."""

    def admit(self, event: Event) -> bool:
        """Queue an event for all its handlers and set its account; False when no handler counts as a receiver."""
        ...

    def receives(self, topic: str) -> bool:
        """Whether a handler that counts as a receiver would get it."""
        ...

    def settle(self, event: Event) -> None:
        """All handlers of an event have ended, or had no room for it."""
        ...


class Bus:
    """The event bus of one host."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.lock = threading.RLock()
        self.sink = sink
        self.subscriptions = Subscriptions()
        self.rates = RateLimiter()
        self.seq = 0
        self._observers: dict[str, list[Observer]] = {}
        self._prefix_observers: tuple[tuple[str, Observer], ...] = ()

    # With the lock held.

    def publish(
        self, topic: str, payload: Payload, principal: str | None, source_id: str, entering: bool = False
    ) -> Event:
        """Number an event and queue it everywhere. The lock is held; nothing of it runs before the lock is let go."""
        self.seq += 1
        event = Event(topic, payload.guest, payload.data, principal, source_id, self.seq, time.time(), entering)
        self._spread(event)
        return event

    def _spread(self, event: Event) -> None:
        topic = event.topic
        received = self.sink is not None and self.sink.admit(event)
        if self.subscriptions.any_for(topic):
            for subscription in self.subscriptions.matching(topic, event.principal):
                subscription.offer(event)
                received = received or not subscription.observe
        observers = self._observers.get(topic)
        if observers:
            received = True
            for observer in observers:
                observer(event)
        for prefix, observer in self._prefix_observers:
            if topic.startswith(prefix):
                received = True
                observer(event)
        if received and event.handlers and not event.left and self.sink is not None:
            self.sink.settle(event)
        if not received and not topic.startswith(KERNEL_TOPICS):
            self.report(event, Failure("no-handler", f"nothing handles or receives {topic!r}"))

    def report(
        self, event: Event, failure: Failure, *, topic: str | None = None, published: list[str] | None = None
    ) -> None:
        """Say that an event was not handled well, or that what was tried on `topic` while handling it was refused."""
        of = event.topic if topic is None else topic
        if event.topic.startswith(KERNEL_TOPICS):
            log.warning("a handler of %s failed: %s: %s", event.topic, failure.reason, failure.detail)
            return
        if failure.reason == "no-handler":
            log.debug("%s: %s", of, failure.detail)
        else:
            who = f"{failure.capsule}/{failure.action}: " if failure.capsule else ""
            log.warning("%s: %s%s: %s", of, who, failure.reason, failure.detail)
        target = FAILED + of
        if not self._received(target, event.principal):
            return
        report = Report(
            failure.reason,
            shorten(failure.detail),
            of,
            event.seq,
            event.principal,
            failure.capsule,
            failure.action,
            event.handlers,
            event.done,
            list(event.published or ()) + (published or []),
            msgspec.Raw(event.payload) if event.payload else None,
        )
        guest = msgspec.json.encode(report)
        self.publish(target, Payload(guest, report), event.principal, NIL_SOURCE)

    def _received(self, topic: str, principal: str | None) -> bool:
        if self.sink is not None and self.sink.receives(topic):
            return True
        if topic in self._observers or any(topic.startswith(prefix) for prefix, _ in self._prefix_observers):
            return True
        return next(self.subscriptions.matching(topic, principal), None) is not None

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.subscriptions.remove(subscription)

    def observe(self, topic: str, observer: Observer) -> None:
        """Call `observer` with every event of that topic, in order, once it is queued everywhere. It must not block, and it
        counts as a receiver: it is the host itself."""
        self._observers.setdefault(topic, []).append(observer)

    def observe_below(self, prefix: str, observer: Observer) -> Callable[[], None]:
        """The same for every topic that begins with `prefix`; returns what ends it."""
        entry = (prefix, observer)
        self._prefix_observers = (*self._prefix_observers, entry)

        def stop() -> None:
            self._prefix_observers = tuple(kept for kept in self._prefix_observers if kept is not entry)

        return stop
