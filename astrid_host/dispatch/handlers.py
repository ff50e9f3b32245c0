"""Interceptors: which handlers an event has, and in which way it is delivered to them.

One match is queued. Several of equal priority are independent copies. Several of different priority are one chain, lowest
number first. Rows with `guard = true` stand before all of these, whatever their priority, and before subscriptions: one after the
other they let an event pass as it is, or end it. They do not make an event handled: what only guards match comes to nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from astrid_host.topics import InterceptorIndex

if TYPE_CHECKING:
    from astrid_host.dispatch.quarantine import Quarantine
    from astrid_host.dispatch.queues import Queues
    from astrid_host.engine import Entry, Pool
    from astrid_host.hostcalls.ipc import Publisher
    from astrid_host.scheduler import Account

ROUTES_KEPT = 4096


class Receiver(Protocol):
    """A capsule whose handlers are called."""

    @property
    def id(self) -> str: ...
    @property
    def pool(self) -> Pool: ...
    @property
    def hook(self) -> Entry:
        """`astrid-hook-trigger`."""
        ...

    @property
    def queues(self) -> Queues: ...
    @property
    def quarantine(self) -> Quarantine: ...
    @property
    def quarantines(self) -> bool:
        """Whether it is put into quarantine when it traps too often."""
        ...

    @property
    def account(self) -> Account: ...

    @property
    def concurrency(self) -> int:
        """How many of its calls may run at once for one principal."""
        ...

    @property
    def timeout_s(self) -> float: ...
    @property
    def publisher(self) -> Publisher:
        """What it may publish."""
        ...


class Handler:
    """One `[subscribe]` row with a handler.

    Args:
        receiver: whose row it is.
        pattern: interceptor pattern: `*` is one segment.
        action: what the guest is called with.
        priority: lower numbers go first.
        goes_on: in a chain, a failure of this member does not end it.
        reply: the topic on which what it returns is published.
        guard: it does not make an event handled.
        excepted: topics that match and for which it is not called.

    `gone` is set when its capsule was unloaded, or has no such row any more: events on their way to it end there.
    """

    __slots__ = ("action", "excepted", "goes_on", "gone", "guard", "pattern", "priority", "receiver", "reply")

    def __init__(
        self,
        receiver: Receiver,
        pattern: str,
        action: str,
        priority: int,
        *,
        goes_on: bool = False,
        reply: str | None = None,
        guard: bool = False,
        excepted: Collection[str] = (),
    ) -> None:
        self.receiver = receiver
        self.pattern = pattern
        self.action = action
        self.priority = priority
        self.goes_on = goes_on
        self.reply = reply
        self.guard = guard
        self.excepted = excepted
        self.gone = False

    def follow(self, newer: Handler) -> None:
        """Be what the same row of its capsule's next version says: events that are on their way to it go there."""
        self.receiver = newer.receiver
        self.priority = newer.priority
        self.goes_on = newer.goes_on
        self.reply = newer.reply
        self.guard = newer.guard
        self.excepted = newer.excepted


class Route:
    """Where events of one topic go: past the guards to the handlers. `path` is all of them, and `in_steps` says that they enter
    only the first queue of it from outside."""

    __slots__ = ("chain", "guards", "handlers", "in_steps", "path")

    def __init__(self, found: tuple[Handler, ...]) -> None:
        self.guards = tuple(handler for handler in found if handler.guard)
        self.handlers = tuple(handler for handler in found if not handler.guard)
        self.path = self.guards + self.handlers
        self.chain = len({handler.priority for handler in self.handlers}) > 1
        self.in_steps = self.chain or bool(self.guards)


class Handlers:
    """All active handlers, and the routes found so far. The lock is held."""

    def __init__(self) -> None:
        self._index: InterceptorIndex[Handler] = InterceptorIndex()
        self._counts: dict[Receiver, int] = {}  # of handlers
        self.routes: dict[str, Route] = {}

    def add(self, handler: Handler) -> None:
        self._index.insert(handler.pattern, handler)
        self._counts[handler.receiver] = self._counts.get(handler.receiver, 0) + 1
        self.routes.clear()

    def remove(self, handler: Handler) -> None:
        self._index.remove(handler.pattern, handler)
        self._counts[handler.receiver] -= 1
        if not self._counts[handler.receiver]:
            del self._counts[handler.receiver]
        self.routes.clear()

    def receivers(self) -> set[Receiver]:
        """Every capsule that has a handler."""
        return set(self._counts)

    def route(self, topic: str) -> Route:
        """The handlers of a topic: by priority, then capsule, then action."""
        route = self.routes.get(topic)
        if route is None:
            if len(self.routes) >= ROUTES_KEPT:  # topics may carry ids
                self.routes.clear()
            matching = (handler for handler in self._index.find(topic) if topic not in handler.excepted)
            found = sorted(matching, key=lambda h: (h.priority, h.receiver.id, h.action))
            route = self.routes[topic] = Route(tuple(found))
        return route
