"""astrid:ipc: what guests publish, and what they subscribe to.

Every publish of a guest passes the same checks in the same order: the topic's form, the capsule's `[publish]` rows, size, JSON,
room, depth, and last the rate and the topic's contract, so that what is refused for another reason costs nothing. A refusal is a
typed error to the guest, and is kept on its call for the failure reports. A subscription made while handling an event receives
only that event's principal; one of a run loop receives everybody's.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec

from astrid_host.abi import Variant
from astrid_host.bus import Bus, Credit, Event, Failure, Subscription
from astrid_host.engine import Suspend
from astrid_host.errors import HostError, PayloadError
from astrid_host.gates import PublishGate, Rule, SubscribeGate
from astrid_host.gates.verdicts import KEPT_VERDICTS
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.manifest import Manifest
from astrid_host.payloads import PAYLOAD_BYTES, canonical, parse
from astrid_host.scheduler import Call, Refusal, Scheduler
from astrid_host.topics import KERNEL_TOPICS, acl_allows

log = logging.getLogger(__name__)

SUBSCRIPTIONS = 128
PUBLISH_TAKES = 2 * PAYLOAD_BYTES  # a payload that is a little too long is refused with what is wrong with it
RECV_MS = 60_000
ANONYMOUS = "anonymous"
NOTED_TOPICS = 1024
NOTED_REFUSALS = 64
LOOP_DEPTH = 1024
LOOP_HOPS_PER_SECOND = 100.0


class Room(Protocol):
    """Whether handlers' queues have room: what the dispatcher knows. The bus's lock is held."""

    @property
    def full_queues(self) -> Collection[object]:
        """The queues that have none; empty at most times."""
        ...

    def refuses(self, call: Call, topic: str, principal: str, size: int) -> str | None:
        """Why there is no room for one more event that a guest publishes, or None. The guest may be made to stand still."""
        ...


class Publisher:
    """One capsule's way onto the bus.

    Args:
        capsule: its id.
        source_id: the UUID that stands on what it publishes.
        manifest: whose `[publish]` rows count.
        bus: where it publishes.
        rules: the contract of each topic.
        room: whether handlers' queues have room.
        refused: hears of each refusal: the call, the host function, the topic, and the error's case.
    """

    def __init__(
        self,
        capsule: str,
        source_id: str,
        manifest: Manifest,
        bus: Bus,
        rules: Mapping[str, Rule | None],
        room: Room,
        refused: Callable[[Call, str, str, str], None] = lambda *_: None,
    ) -> None:
        self.capsule = capsule
        self.source_id = source_id
        self.gate = PublishGate(manifest)
        self._settling = tuple(pattern for pattern, row in manifest.publish.items() if row.settle)
        self._bus = bus
        self._rules = rules
        self._granted: dict[str, Rule | None] = {}
        self._room = room
        self._refused = refused

    def publish(self, call: Call, topic: str, text: str, principal: str) -> None:
        """Publish for a guest.

        Raises:
            HostError: it is refused; the refusal is noted on the call.
        """
        try:
            rule = self._granted[topic]
        except KeyError:
            rule = self._grant(call, topic)
        size = len(text) if text.isascii() else len(text.encode())
        if size > PAYLOAD_BYTES:
            detail = f"its payload has {size} bytes; {PAYLOAD_BYTES} are allowed"
            self.refuse(call, topic, "invalid-input", detail)
        try:
            payload = parse(text)
        except PayloadError as error:
            self.refuse(call, topic, "invalid-input", str(error))
        bus, room, cause = self._bus, self._room, call.message
        if rule is not None and rule.reads and type(payload.data) is dict:
            payload = canonical(payload)  # whoever receives it sees what was checked
        with bus.lock:
            if (room.full_queues or bus.backlog.pressed) and (why := room.refuses(call, topic, principal, size)):
                self.refuse(call, topic, "backpressure", why, "queue-full")
            if cause is not None and cause.depth >= LOOP_DEPTH and (why := endless(cause)):
                self.refuse(call, topic, "quota", why, "loop")
            now, credit = time.monotonic(), None if cause is None else cause.credit
            if credit is None or cause is None or not bus.rates.passes_on(credit, len(cause.payload), size, now):
                if not bus.rates.charge(self.source_id, principal, size, now):
                    detail = f"{self.capsule} published more than {bus.rates.limit} bytes in a second"
                    self.refuse(call, topic, "rate-limited", detail)
                credit = Credit(self.source_id, principal, size)
            if rule is not None and (why := rule.admit(payload.data, self.source_id, principal)):
                self.refuse(call, topic, "capability-denied", why)
            asks = bool(self._settling) and acl_allows(self._settling, topic)
            bus.publish(topic, payload, principal, self.source_id, call.follows, cause, asks, credit)
            capsule = call.capsule
            accounts = capsule.accounts
            for account in (capsule.account, accounts.by_principal.get(principal) or accounts.of(principal)):
                account.events += 1
                account.bytes += size
        published = call.published
        if topic not in published and len(published) < NOTED_TOPICS:
            published.append(topic)

    def _grant(self, call: Call, topic: str) -> Rule | None:
        """Whether the capsule may publish on a topic at all, and its contract. The answer is kept until it answers for other
        topics."""
        denial = self.gate.check(topic)
        if denial is not None:
            self.refuse(call, topic, denial.case, denial.detail)
        if topic.startswith(KERNEL_TOPICS):
            self.refuse(call, topic, "capability-denied", f"only the host publishes under {KERNEL_TOPICS}")
        with self._bus.lock:
            rule = self._rules[topic]
            if rule is not None and (why := rule.doubts(call.capsule)):
                self.refuse(call, topic, "capability-denied", why)
            if len(self._granted) >= KEPT_VERDICTS:
                self._granted.clear()
            self._granted[topic] = rule
        return rule

    def look_again(self) -> None:
        """The capsule answers for other topics than before: forget what it was granted. The bus's lock is held."""
        self._granted.clear()

    def reply(self, call: Call, topic: str, text: str) -> None:
        """Publish what a handler returned, because its row says `reply`. A refusal is noted on the call."""
        with contextlib.suppress(HostError):  # noted on the call
            self.publish(call, topic, text, call.principal)

    def refuse(self, call: Call, topic: str, case: str, detail: str, reason: str = "publish-denied") -> None:
        refused = call.refused
        if topic[:512] not in refused:
            if len(refused) >= NOTED_REFUSALS:  # each is reported with the event's payload; the last ones tell most
                del refused[next(iter(refused))]
                if not call.forgot_refusals:
                    call.forgot_refusals = True
                    log.warning(
                        "%s: of the publishes refused in one call the last %d are told", self.capsule, NOTED_REFUSALS
                    )
            refused[topic[:512]] = Refusal(reason, detail)
        self._refused(call, "ipc.publish", topic, case)
        raise HostError(case, detail=detail)


def endless(cause: Event) -> str | None:
    """Whether what an event leads to belongs to a loop without end: how, or None. Slow loops may go on for ever."""
    per_second = (cause.depth + 1) / max(time.monotonic() - cause.root, 1e-6)
    if per_second <= LOOP_HOPS_PER_SECOND:
        return None
    return (
        f"{cause.depth} events led to it, {per_second:.0f} a second: capsules that answer each other's events without end "
        f"may make {LOOP_HOPS_PER_SECOND:g} hops a second"
    )


class Message(msgspec.Struct, gc=False):
    """`ipc-message`."""

    topic: str
    payload: str
    source_id: str
    principal: Variant


class Envelope(msgspec.Struct, gc=False):
    """`ipc-envelope`: one message, or none; what was dropped since the last one."""

    messages: list[Message]
    dropped: int
    lagged: int


class Binding(msgspec.Struct, gc=False):
    """`interceptor-binding`: one `[subscribe]` row with a handler."""

    handle_id: int
    action: str
    topic: str


SYSTEM = Variant("system", None)


class GuestSubscription:
    """What the handle of a `subscription` holds. Closing it ends the subscription."""

    __slots__ = ("_bus", "closed", "queue")

    def __init__(self, bus: Bus, pattern: str, principal: str | None) -> None:
        self._bus = bus
        self.queue = Subscription(pattern, principal)
        self.closed = False
        with bus.lock:
            bus.subscribe(self.queue)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self._bus.lock:
                self._bus.unsubscribe(self.queue)


def has_messages(call: Call) -> bool:
    """Whether one of the subscriptions of the call's guest has a message."""
    instance = call.instance
    return instance is not None and any(held.queue.waiting for held in instance.handles.of(GuestSubscription))


class SubscriptionReadiness:
    """A pollable that is ready when its subscription has a message."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: GuestSubscription) -> None:
        self._subscription = subscription

    def ready(self) -> bool:
        return self._subscription.closed or self._subscription.queue.waiting > 0

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` once there is a message; the bus's lock is held."""
        self._subscription.queue.waiter = wake


class Ipc(Interface):
    """The host functions of astrid:ipc.

    Args:
        bus: what they publish to.
        scheduler: who wakes guests that wait.
    """

    wit = ("astrid:ipc/host@1.0.0",)

    def __init__(self, bus: Bus, scheduler: Scheduler) -> None:
        self._bus = bus
        self._scheduler = scheduler

    @hostcall("publish", takes=PUBLISH_TAKES)
    def publish(self, call: Call, topic: str, payload: str) -> None:
        """Publish on behalf of the caller; it is queued everywhere when this returns."""
        call.capsule.publisher.publish(call, topic, payload, call.principal)
        self._scheduler.run_or_wake()

    @hostcall("publish-as", takes=PUBLISH_TAKES)
    def publish_as(self, call: Call, topic: str, payload: str, principal: str) -> None:
        """Publish for somebody at the other end of a connection; without a verified one that is `anonymous`."""
        if not call.capsule.manifest.capabilities.uplink:
            detail = "publish-as needs [capabilities] uplink = true"
            call.capsule.publisher.refuse(call, topic, "capability-denied", detail)
        call.capsule.publisher.publish(call, topic, payload, call.peer or ANONYMOUS)
        self._scheduler.run_or_wake()

    @hostcall("subscribe", audited=lambda pattern: pattern)
    def subscribe(self, call: Call, pattern: str) -> GuestSubscription:
        """Begin to receive what matches `pattern`; what was published before is not seen."""
        denial = call.capsule.subscribe_gate.check(pattern)
        if denial is not None:
            raise HostError(denial.case, detail=denial.detail)
        instance = call.instance
        assert instance is not None, "a host function runs inside a call"
        if instance.handles.count(GuestSubscription) >= SUBSCRIPTIONS:
            raise HostError("quota", detail=f"{SUBSCRIPTIONS} subscriptions are open already")
        return GuestSubscription(self._bus, pattern, None if call.follows else call.principal)

    @hostcall("get-interceptor-bindings")
    def get_interceptor_bindings(self, call: Call) -> list[Binding]:
        """The capsule's own `[subscribe]` rows that name a handler."""
        rows = call.capsule.manifest.handlers
        return [Binding(i, row.handler, row.pattern) for i, row in enumerate(rows, 1)]

    @hostcall("[method]subscription.poll")
    def poll(self, call: Call, subscription: GuestSubscription) -> Envelope:
        """The next message if there is one; an empty envelope otherwise."""
        with self._bus.lock:
            if call.follows and call.refused:
                report_refusals(self._bus, call)
            return self._envelope(call, subscription)

    @hostcall("[method]subscription.recv", suspends=True)
    def recv(self, call: Call, subscription: GuestSubscription, timeout_ms: int) -> Envelope | Suspend:
        """The next message; waits for it up to `timeout_ms` milliseconds, 60,000 at most. Then an empty envelope."""
        with self._bus.lock:
            if call.follows and call.refused:
                report_refusals(self._bus, call)
            if subscription.queue.waiting or not timeout_ms:
                return self._envelope(call, subscription)
            scheduler = self._scheduler
            until = time.monotonic() + min(timeout_ms, RECV_MS) / 1000

            def finish() -> Envelope:
                with self._bus.lock:
                    subscription.queue.waiter = None
                    return self._envelope(call, subscription)

            suspend = Suspend(call, finish, until)
            subscription.queue.waiter = lambda: scheduler.wake_locked(suspend)
            return suspend

    @hostcall("[method]subscription.subscribe-readiness")
    def subscribe_readiness(self, _call: Call, subscription: GuestSubscription) -> SubscriptionReadiness:
        """A pollable that is ready while a message waits."""
        return SubscriptionReadiness(subscription)

    def _envelope(self, call: Call, subscription: GuestSubscription) -> Envelope:
        event = subscription.queue.take()
        dropped = subscription.queue.newly_dropped()
        if event is None:
            return Envelope([], dropped, 0)
        if call.follows:
            call.charge()  # each message has the whole time, also one that did not have to be waited for
            call.message, call.published = event, []
            call.principal = event.principal if event.principal is not None else call.capsule.owner
        return Envelope([_message(event)], dropped, 0)


def report_refusals(bus: Bus, call: Call) -> None:
    """A run loop looks for its next message, or is over: report what was refused while it handled the last one."""
    refused, call.refused = call.refused, {}
    for topic, why in refused.items():
        if call.message is None:
            log.warning("%s: its publish on %s was refused: %s", call.capsule.id, topic, why.detail)
        else:
            failure = Failure(why.reason, why.detail, call.capsule.id, "run")
            bus.report(call.message, failure, tried=topic)


def _message(event: Event) -> Message:
    principal: Any = SYSTEM if event.principal is None else Variant("verified", event.principal)
    return Message(event.topic, str(event.payload, "utf-8"), event.source_id, principal)


__all__ = ["Envelope", "GuestSubscription", "Ipc", "Message", "Publisher", "SubscribeGate", "SubscriptionReadiness"]
