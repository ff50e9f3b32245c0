"""The event bus: numbers events and hands them to handlers, subscriptions, broadcast receivers and observers.

Numbering and queueing are one step under one lock, so every receiver sees events in the order of `seq`. The bus does not
run anything: handlers are queued by the `Sink`, receivers are woken. Its lock is the host's one lock for all of this; it
is never held while a guest runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from astrid_host.bus.backlog import Backlog
from astrid_host.bus.broadcast import RING_BYTES, Ring
from astrid_host.bus.events import Event
from astrid_host.bus.losses import Losses
from astrid_host.bus.rates import BYTES_PER_SECOND, Credit, RateLimiter
from astrid_host.bus.reports import FAILED, SETTLED, Failure, Report, Settled, shorten
from astrid_host.bus.subscriptions import Subscription, Subscriptions
from astrid_host.payloads import NIL_SOURCE, Payload
from astrid_host.topics import KERNEL_TOPICS

log = logging.getLogger(__name__)

Observer = Callable[[Event], object]


class Sink(Protocol):
    """Who queues events for handlers. Called with the bus's lock held."""

    def admit(self, event: Event) -> bool:
        """Queue an event for all its handlers and set its account; False when no handler counts as a receiver. Set `held` on one
        that guards look at first: once they let it pass, it is the sink that offers it to subscriptions."""
        ...

    def receives(self, topic: str) -> bool:
        """Whether a handler that counts as a receiver would get it."""
        ...

    def settle(self, event: Event) -> None:
        """All handlers of an event have ended, or had no room for it."""
        ...


class Rule(Protocol):
    """The contract of a topic. Called with the bus's lock held."""

    def note(self, data: object, source_id: str, principal: str | None) -> None:
        """The host itself publishes such an event."""
        ...


class Bus:
    """The event bus of one host.

    Args:
        sink: who queues events for handlers.
        rules: the contract of each topic, None for one that has none; without it no topic has one.
        backlog: the account of what waits.
        watched: bytes of events that are kept for broadcast receivers.
        rate: bytes that one capsule may publish in a second for one principal.

    Attributes:
        seq: how many events were published.
        bytes: of their payloads.
        failures: how many events were not handled well, by reason.
        kernel_refused: events of the kernel that full queues refused, by capsule.
        stopping: the host ends what is under way; that is not warned of.
        redacted: takes secrets out of what is told of failures.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        rules: Mapping[str, Rule | None] | None = None,
        backlog: Backlog | None = None,
        watched: int = RING_BYTES,
        rate: int = BYTES_PER_SECOND,
    ) -> None:
        self.lock = threading.RLock()
        self.sink = sink
        self.rules = rules
        self.backlog = backlog or Backlog()
        self.subscriptions = Subscriptions(self.backlog)
        self.ring = Ring(watched)
        self.rates = RateLimiter(rate)
        self.seq = 0
        self.bytes = 0
        self.failures: dict[str, int] = {}
        self.stopping = False
        self.redacted: Callable[[str], str] = str
        self.kernel_refused = Losses("of the kernel were refused by full queues")
        self._observers: dict[str, list[Observer]] = {}
        self._prefix_observers: tuple[tuple[str, Observer], ...] = ()

    # With the lock held.

    def publish(
        self,
        topic: str,
        payload: Payload,
        principal: str | None,
        source_id: str,
        entering: bool = False,
        cause: Event | None = None,
        asks: bool = False,
        credit: Credit | None = None,
    ) -> Event:
        """Number an event and queue it everywhere. The lock is held; nothing of it runs before the lock is let go.

        Args:
            entering: it comes from outside, and does not follow from the handling of another.
            cause: the event that led to it.
            asks: tell when all its handlers have ended.
            credit: who pays for what passes it on; by default who pays for its cause, or nobody.
        """
        self.seq += 1
        # What capsules publish was held to the contract before.
        if source_id == NIL_SOURCE and self.rules is not None and (rule := self.rules[topic]) is not None:
            rule.note(payload.data, source_id, principal)
        guest, form = payload.guest, payload.form
        size = len(guest)
        self.bytes += size
        if cause is None:
            depth, root = 0, time.monotonic()
            credit = credit or Credit(None, principal, size)
        else:
            depth, root = cause.depth + 1, cause.root
            credit = credit or cause.credit
        event = Event(
            topic,
            guest,
            payload.data,
            principal,
            source_id,
            self.seq,
            time.time(),
            entering,
            depth,
            root,
            asks,
            form,
            credit,
        )
        self._spread(event)
        if form is not None:
            event.forget_data()
        return event

    def _spread(self, event: Event) -> None:
        topic = event.topic
        received = self.sink is not None and self.sink.admit(event)
        subscriptions = self.subscriptions
        if (subscriptions.wild or topic in subscriptions.exact) and not event.held:  # most topics have none
            received = self.offer(event) or received
        if self.ring.receivers:
            self.ring.push(event)
        observers = self._observers.get(topic)
        if observers:
            received = True
            for observer in observers:
                observer(event)
        for prefix, observer in self._prefix_observers:
            if topic.startswith(prefix) and observer(event) is not False:
                received = True
        if not event.left:
            self._close_account(event, received)

    def offer(self, event: Event) -> bool:
        """Queue an event for the subscriptions that match; False when none does."""
        offered = False
        for subscription in self.subscriptions.matching(event.topic, event.principal):
            subscription.offer(event)
            offered = True
        return offered

    def subscribed(self, topic: str, principal: str | None) -> bool:
        """Whether a subscription would get such an event."""
        return next(self.subscriptions.matching(topic, principal), None) is not None

    def _close_account(self, event: Event, received: bool) -> None:
        """Nothing of it is under way: it had no handlers, or they had no room."""
        if event.handlers and self.sink is not None:
            self.sink.settle(event)
            return
        if not received and not event.topic.startswith(KERNEL_TOPICS):
            self.report(event, Failure("no-handler", f"nothing handles or receives {event.topic!r}"))
        if event.asks:
            self.tell_settled(event)

    def report(
        self, event: Event, failure: Failure, *, tried: str | None = None, published: list[str] | None = None
    ) -> None:
        """Say that an event was not handled well, or that a publish that was tried while handling it was refused.

        Args:
            tried: the topic of that publish.
            published: topics that were published while the event was handled, besides those of its account.
        """
        of = event.topic if tried is None else tried
        # Of a quarantine one line is said when it begins, and what ends with the host is no news.
        detail = shorten(self.redacted(failure.detail))  # what is cut first may leave half a secret
        quiet = self.stopping or failure.reason in ("no-handler", "quarantined")
        who = f"{failure.capsule}/{failure.action}: " if failure.capsule else ""
        log.log(
            logging.DEBUG if quiet else logging.WARNING,
            "%s: %s%s: %s",
            of,
            who,
            failure.reason,
            detail,
        )
        if event.topic.startswith(KERNEL_TOPICS):
            return
        self.failures[failure.reason] = self.failures.get(failure.reason, 0) + 1
        target = FAILED + of
        if not self._heard(target, event.principal):
            return
        report = Report(
            failure.reason,
            detail,
            of,
            event.seq,
            event.principal,
            failure.capsule,
            failure.action,
            event.handlers,
            event.done,
            list(event.published or ()) + (published or []),
            msgspec.Raw(event.payload) if event.payload else None,
            tried is not None,
        )
        self._tell(target, report, event)

    def tell_settled(self, event: Event) -> None:
        """Publish the settled event of one that asked for it."""
        target = SETTLED + event.topic
        if self._heard(target, event.principal):
            failed = event.handlers - event.done - event.skipped
            settled = Settled(
                event.topic, event.seq, event.principal, event.handlers, event.done, failed, event.skipped
            )
            self._tell(target, settled, event)

    def _tell(self, topic: str, told: msgspec.Struct, event: Event) -> None:
        self.publish(topic, Payload(msgspec.json.encode(told), told), event.principal, NIL_SOURCE, cause=event)

    def _heard(self, topic: str, principal: str | None) -> bool:
        """Whether somebody receives or watches such an event."""
        return any(receiver.matches(topic) for receiver in self.ring.receivers) or self.received(topic, principal)

    def received(self, topic: str, principal: str | None) -> bool:
        """Whether somebody would receive an event of that topic and principal. Who only watches does not count."""
        if self.sink is not None and self.sink.receives(topic):
            return True
        if topic in self._observers or any(topic.startswith(prefix) for prefix, _ in self._prefix_observers):
            return True
        return self.subscribed(topic, principal)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        self.subscriptions.remove(subscription)

    def observe(self, topic: str, observer: Observer) -> None:
        """Call `observer` with every event of that topic, in order, once it is queued everywhere. It must not block, and it
        counts as a receiver: it is the host itself."""
        self._observers.setdefault(topic, []).append(observer)

    def observe_below(self, prefix: str, observer: Observer) -> Callable[[], None]:
        """The same for every topic that begins with `prefix`; returns what ends it. An observer that returns False did not
        receive the event: it left it alone."""
        entry = (prefix, observer)
        self._prefix_observers = (*self._prefix_observers, entry)

        def stop() -> None:
            self._prefix_observers = tuple(kept for kept in self._prefix_observers if kept is not entry)

        return stop
