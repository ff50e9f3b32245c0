"""What the kernel tells on its own: which capsules are loaded, that time passes, and that events were lost.

- `astrid.v1.capsules_loaded`, once the run loops have subscribed, and again when the set of capsules changes:
  `{"status": "ready", "capsules": [{"principal", "name", "meta"}]}`, by name. `meta` has the version, the hash, what it imports
  and exports, and `tools` as the capsule describes them now.
- `astrid.v1.watchdog.tick`, every 5 s: `{}`, to every principal for whom something was done in the last 10 minutes.
- `astrid.v1.event_bus.lagged`, once a second at most: `{"lagged_count": n}`, when receivers lost events.

Nothing is published that nobody receives. The source is the nil UUID, the principal the host's owner, except for ticks, and for
what a changed set of capsules tells. (Astrid, kernel: background.)
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from astrid_host.bus import Bus
from astrid_host.calls import Accounts, Turns
from astrid_host.capsules import Capsule, Registry
from astrid_host.payloads import NIL_SOURCE, PAYLOAD_BYTES, from_value

LOADED = "astrid.v1.capsules_loaded"
TICK = "astrid.v1.watchdog.tick"
LAGGED = "astrid.v1.event_bus.lagged"
TICK_S, LOOK_S = 5.0, 1.0
SEEN_S = 600.0
AT_ONCE = 64  # ticks, before the loop is let go


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


class Announcing:
    """Publishes these events for one host.

    Args:
        bus: where.
        turns: runs what handles them.
        registry: the capsules.
        accounts: by which a principal that something is done for is known.
        owner: the host's principal.
        describe: asks every capsule for its tools on behalf of a principal, and lists them.
    """

    def __init__(
        self, bus: Bus, turns: Turns, registry: Registry, accounts: Accounts, owner: str, describe: Describe
    ) -> None:
        self._bus = bus
        self._turns = turns
        self._registry = registry
        self._accounts = accounts
        self._owner = owner
        self._describe = describe
        self._seen: dict[str, tuple[int, float]] = {owner: (0, time.monotonic())}
        self._own: dict[str, int] = {}  # how many calls were made for ticks
        self._lost = 0
        self._changes = trio.Event()

    def change(self) -> None:
        """The set of capsules is another one. On the trio thread."""
        self._changes.set()

    async def run(self) -> None:
        """Announce until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            nursery.start_soon(self._watch_losses)
            await self._tell_loaded((self._owner,))
            while True:
                await self._changes.wait()
                self._changes = trio.Event()
                await self._tell_loaded(self.seen())

    # Which capsules there are.

    async def _tell_loaded(self, principals: tuple[str, ...]) -> None:
        if not self._bus.received(LOADED, self._owner):
            return
        tools = await self._describe(self._owner)
        ready = sorted((c for c in self._registry.capsules.values() if c.state == "ready"), key=lambda c: c.id)
        metas = [(capsule.id, _meta(capsule, tools)) for capsule in ready]
        for principal in principals:
            told = [{"principal": principal, "name": name, "meta": meta} for name, meta in metas]
            payload = from_value({"status": "ready", "capsules": told})
            if len(payload.guest) > PAYLOAD_BYTES:  # schemas can be large, and nobody may get more than this
                told = [{"principal": principal, "name": name, "meta": {}} for name, _ in metas]
                payload = from_value({"status": "ready", "capsules": told})
            with self._bus.lock:
                self._bus.publish(LOADED, payload, principal, NIL_SOURCE, entering=True)
            self._turns.go()
            await trio.lowlevel.checkpoint()

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
            await trio.sleep(TICK_S)
            principals = self.seen()
            for count, principal in enumerate(principals, 1):
                with self._bus.lock:
                    if self._bus.received(TICK, principal):
                        event = self._bus.publish(TICK, from_value({}), principal, NIL_SOURCE, entering=True)
                        self._own[principal] = self._own.get(principal, 0) + event.handlers
                self._turns.go()
                if count % AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()

    # What was lost.

    async def _watch_losses(self) -> None:
        bus = self._bus
        while True:
            await trio.sleep(LOOK_S)
            with bus.lock:
                lost = sum(bus.ring.losses.by_name.values()) + sum(bus.subscriptions.losses.by_name.values())
                more, self._lost = lost - self._lost, lost
                if more and bus.received(LAGGED, self._owner):
                    bus.publish(LAGGED, from_value({"lagged_count": more}), self._owner, NIL_SOURCE, entering=True)
            if more:
                self._turns.go()


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
