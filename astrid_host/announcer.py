"""What the kernel tells on its own: which capsules are loaded, that time passes, and that events were lost.

- `astrid.v1.capsules_loaded`, once the run loops have subscribed, and again when the set of capsules changes:
  `{"status": "ready", "host", "capsules": [{"principal", "name", "meta"}]}`, by name. `host` is a UUID, a new one each time that
  a host starts, so that a capsule knows what an earlier one left. `meta` has the version, the hash, what it imports
  and exports, and `tools` as the capsule describes them now.
- `astrid.v1.watchdog.tick`, every 5 s: `{}`, to the owner and to every principal for whom something was done in the last 10
  minutes by a capsule that handles it; by any capsule when somebody subscribes to it. Ticks are spread over the 5 s.
- `astrid.v1.event_bus.lagged`, once a second at most: `{"lagged_count": n}`, when receivers lost events.

Nothing is published that nobody receives, and what cannot be told is left out: a fault here is logged and ends nothing. The
source is the nil UUID, the principal the host's owner, except for ticks, and for what a changed set of capsules tells. (Astrid,
kernel: background.)
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import trio

from astrid_host.bus import Bus
from astrid_host.capsules import Capsule, Registry
from astrid_host.errors import PayloadError
from astrid_host.payloads import NIL_SOURCE, PAYLOAD_BYTES, from_value
from astrid_host.scheduler import Accounts, Scheduler
from astrid_host.topics import interceptor_matches

log = logging.getLogger(__name__)

LOADED = "astrid.v1.capsules_loaded"
TICK = "astrid.v1.watchdog.tick"
LAGGED = "astrid.v1.event_bus.lagged"
TICK_S, LOOK_S = 5.0, 1.0
SEEN_S = 600.0
STEP_S = 0.05  # of spreading
AT_ONCE = 64  # calls that may wait for their turn when something more is told


class Described(Protocol):
    """A tool, as far as it is told here."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def capsule(self) -> str: ...
    @property
    def mutable(self) -> bool: ...


Describe = Callable[[str], Awaitable[list[Any]]]


class Announcer:
    """Publishes these events for one host.

    Args:
        bus: where.
        scheduler: runs what handles them.
        registry: the capsules.
        accounts: by which a principal that something is done for is known.
        owner: the host's principal.
        describe: asks every capsule for its tools on behalf of a principal, and lists them.
    """

    def __init__(
        self, bus: Bus, scheduler: Scheduler, registry: Registry, accounts: Accounts, owner: str, describe: Describe
    ) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._registry = registry
        self._accounts = accounts
        self._owner = owner
        self._describe = describe
        self._seen: dict[str, tuple[int, float]] = {owner: (0, time.monotonic())}
        self._own: dict[str, int] = {}  # how many calls were made for ticks
        self._lost = 0
        self._changes = trio.Event()
        self._host = str(uuid.uuid4())

    def change(self) -> None:
        """The set of capsules is another one. On the trio thread."""
        self._changes.set()

    async def run(self) -> None:
        """Announce until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            nursery.start_soon(self._watch_losses)
            await self._guarded(self._tell_loaded, (self._owner,))
            while True:
                await self._changes.wait()
                self._changes = trio.Event()
                await self._guarded(self._tell_loaded, self.seen())

    async def _guarded(self, tell: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """What is told depends on what guests say: whatever goes wrong ends neither this nor the host."""
        try:
            await tell(*arguments)
        except Exception:
            log.exception("what the host tells on its own could not be told: a fault of the host")

    async def _calm(self) -> None:
        """Let the loop go, and as long as many calls wait for their turn, for 5 s at most."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(TICK_S):
            while len(self._scheduler.runnable) + len(self._scheduler.woken) > AT_ONCE:
                await trio.sleep(STEP_S)

    # Which capsules there are.

    async def _tell_loaded(self, principals: tuple[str, ...]) -> None:
        if not self._bus.received(LOADED, self._owner):
            return
        tools = await self._describe(self._owner)
        ready = sorted((c for c in self._registry.capsules.values() if c.state == "ready"), key=lambda c: c.id)
        metas = [(capsule.id, _telling(capsule, tools)) for capsule in ready]
        for principal in principals:
            told = [{"principal": principal, "name": name, "meta": meta} for name, meta in metas]
            payload = from_value({"status": "ready", "host": self._host, "capsules": told})
            if len(payload.guest) > PAYLOAD_BYTES:  # schemas can be large, and nobody may get more than this
                told = [{"principal": principal, "name": name, "meta": {}} for name, _ in metas]
                payload = from_value({"status": "ready", "host": self._host, "capsules": told})
            with self._bus.lock:
                self._bus.publish(LOADED, payload, principal, NIL_SOURCE, entering=True)
            self._scheduler.run_or_wake()
            await self._calm()

    # That time passes.

    def seen(self) -> tuple[str, ...]:
        """The principals for whom something was done lately; what ticks made their handlers do is not counted."""
        seen, now = self._seen, time.monotonic()
        for principal, account in list(self._accounts.by_principal.items()):
            done = account.calls + account.events - self._own.get(principal, 0)
            before = seen.get(principal)
            if before is None or before[0] != done:
                seen[principal] = (done, now)
        return tuple(principal for principal, (_, at) in seen.items() if now - at <= SEEN_S)

    async def _tick(self) -> None:
        while True:
            begun = trio.current_time()
            await self._guarded(self._tick_all)
            await trio.sleep_until(begun + TICK_S)

    async def _tick_all(self) -> None:
        """Tick whoever is due, evenly over the time until the next tick."""
        begun, principals = trio.current_time(), self._concerned()
        steps = max(min(len(principals), int(TICK_S / STEP_S)), 1)
        for step in range(steps):
            await trio.sleep_until(begun + (step + 1) * TICK_S / steps)
            for principal in principals[step::steps]:
                with self._bus.lock:
                    if self._bus.received(TICK, principal):
                        event = self._bus.publish(TICK, from_value({}), principal, NIL_SOURCE, entering=True)
                        event.passing = True
                        self._own[principal] = self._own.get(principal, 0) + event.handlers
                self._scheduler.run_or_wake()
                await self._calm()

    def _concerned(self) -> Sequence[str]:
        """The principals that are ticked: a tick makes no instance where there was nothing to look after.

        Queues and instances outlast what they were used for by a minute. Ticks keep queues as long as their principal is seen,
        but no instances: after that minute each tick makes one, which is closed again.
        """
        known: set[str | None] = {self._owner}
        for capsule in list(self._registry.capsules.values()):
            if any(interceptor_matches(TICK, handler.pattern) for handler in capsule.handlers):
                with self._bus.lock:
                    known.update(list(capsule.queues.by_principal), list(capsule.pool.idle))
        return [who for who in self.seen() if who in known or self._subscribes(who)]

    def _subscribes(self, principal: str) -> bool:
        with self._bus.lock:
            return self._bus.subscribed(TICK, principal)

    # What was lost.

    async def _watch_losses(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            await self._guarded(self._tell_losses)

    async def _tell_losses(self) -> None:
        bus = self._bus
        with bus.lock:
            lost = sum(bus.ring.losses.by_name.values()) + sum(bus.subscriptions.losses.by_name.values())
            more, self._lost = lost - self._lost, lost
            if more and bus.received(LAGGED, self._owner):
                bus.publish(LAGGED, from_value({"lagged_count": more}), self._owner, NIL_SOURCE, entering=True)
        if more:
            self._scheduler.run_or_wake()


def _telling(capsule: Capsule, tools: list[Described]) -> dict[str, Any]:
    """Its `meta`, or an empty one when it holds what no payload can."""
    meta = _meta(capsule, tools)
    try:
        from_value({"capsules": [{"meta": meta}]})
    except PayloadError as error:
        log.warning("%s: what is told of it has no `meta`, which cannot be told: %s", capsule.id, error)
        return {}
    return meta


def _meta(capsule: Capsule, tools: list[Described]) -> dict[str, Any]:
    manifest = capsule.manifest
    return {
        "version": capsule.version,
        "wasm_hash": capsule.wasm_hash,
        "imports": {f"{row.namespace}:{row.interface}": str(row.requirement) for row in manifest.imports},
        "exports": {f"{row.namespace}:{row.interface}": str(row.version) for row in manifest.exports},
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {**tool.input_schema, "mutable": True} if tool.mutable else tool.input_schema,
            }
            for tool in tools
            if tool.capsule == capsule.id
        ],
    }
