"""Replacing a capsule by the version that lies in its folder now, and unloading one, while the host runs.

A new version is read, built and has its hook run while the old one still serves. One that does not load changes nothing. Then it
takes over at once: calls in flight end on the old version, with its rights; what waits in queues is handled by the new one, in
order and still one at a time for each principal. What waits for a row that is no more is reported as `cancelled`. A run loop is
stopped before its next version starts, and with it its subscriptions: what is published in between it does not receive.

Before one is unloaded, `astrid.v1.capsule.unloading` tells so, `{"capsule_id"}`, to every principal for whom something was done
lately; it goes when that was handled, 5 s later at most. A capsule that handles `handle_lifecycle_restart` is called with that
action, and nothing else, after it took over. (Astrid, kernel: background.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import trio

from astrid_host import manifest as manifests
from astrid_host.abi import ExportKind
from astrid_host.bus import Bus
from astrid_host.calls import Turns, call_once
from astrid_host.capsules.capsule import Capsule
from astrid_host.capsules.discovery import MANIFEST
from astrid_host.capsules.registry import Registry
from astrid_host.capsules.runloops import RunLoops
from astrid_host.errors import AstridError, GuestFailed, LoadError
from astrid_host.payloads import NIL_SOURCE, from_value

log = logging.getLogger(__name__)

RESTARTED = "handle_lifecycle_restart"
UNLOADING = "astrid.v1.capsule.unloading"
FAREWELL_S = 5.0
DRAIN_LOOK_S = 0.05


class Replacing:
    """Replaces and unloads the capsules of one host, one at a time.

    Args:
        registry: whose capsules.
        bus: where it is told that one is unloaded.
        run_loops: stops and starts theirs.
        turns: knows which calls are under way.
        nursery: in which older versions wait for the end of their calls.
        gone: called with a capsule that takes no part any more: what the host keeps for it can go.
        changed: called when the set of capsules is another one.
        seen: the principals for whom something was done lately.
    """

    def __init__(
        self,
        registry: Registry,
        bus: Bus,
        run_loops: RunLoops,
        turns: Turns,
        nursery: trio.Nursery,
        gone: Callable[[Capsule], None],
        changed: Callable[[], None],
        seen: Callable[[], Iterable[str]],
    ) -> None:
        self._registry = registry
        self._bus = bus
        self._seen = seen
        self._run_loops = run_loops
        self._turns = turns
        self._nursery = nursery
        self._gone = gone
        self._changed = changed
        self._one_at_a_time = trio.Lock()

    async def reload(self, name: str) -> None:
        """Replace a capsule by what is in its folder now; also one that failed, or was unloaded.

        Args:
            name: the capsule's id.

        Raises:
            LoadError: there is no such capsule, or its new version does not load: the old one goes on.
            StoreError: what was loaded before cannot be read or written.

        Cancelled before the new version takes over, it changes nothing.
        """
        async with self._one_at_a_time:
            old = self._named(name)
            try:
                new = self._read(old)
                kind = await self._registry.prepare(new)
            except AstridError as error:
                log.error("%s: its new version does not load%s: %s", name, _goes_on(old), error)
                raise
            with trio.CancelScope(shield=True):  # from here on, half of it would leave none of the two
                await self._take_over(old, new, kind)
            log.info("%s %s took over from %s", name, new.version, old.version or "what could not be read")
            self._changed()
            await self._tell_restarted(new)

    async def unload(self, name: str) -> None:
        """Take a capsule out. Calls in flight end; what waits for it is reported as `cancelled`.

        Raises:
            LoadError: there is no such capsule, or it takes no part.

        Cancelled before it is taken out, it stays.
        """
        async with self._one_at_a_time:
            old = self._named(name)
            if old.state != "ready":
                raise LoadError(f"{name} is {old.state}, so it cannot be unloaded")
            await self._say_farewell(old)
            with trio.CancelScope(shield=True):
                self._registry.unbind(old)
                await self._run_loops.stop(old)
                self._gone(old)
                self._leave(old)
            log.info("%s was unloaded", name)
            self._changed()

    async def _say_farewell(self, old: Capsule) -> None:
        """Tell that it will be unloaded, and wait until that was handled: it may have to end what it has begun."""
        left, over = 1, trio.Event()

        def handled() -> None:  # with the lock held
            nonlocal left
            left -= 1
            if not left:
                self._turns.tell(over.set)

        told = from_value({"capsule_id": old.id})
        for principal in self._seen():
            with self._bus.lock:
                if self._bus.received(UNLOADING, principal):
                    event = self._bus.publish(UNLOADING, told, principal, NIL_SOURCE, entering=True)
                    if event.left:
                        left += 1
                        event.settled = [handled]
            self._turns.go()
            await trio.lowlevel.checkpoint()
        with self._bus.lock:
            handled()
        self._turns.ring()
        with trio.move_on_after(FAREWELL_S) as bound:
            await over.wait()
        if bound.cancelled_caught:
            log.warning("%s is unloaded although %s was not handled within %g s", old.id, UNLOADING, FAREWELL_S)

    def _named(self, name: str) -> Capsule:
        capsule = self._registry.capsules.get(name)
        if capsule is None:
            known = ", ".join(self._registry.capsules) or "none at all"
            raise LoadError(f"there is no capsule {name!r}; there are: {known}")
        return capsule

    def _read(self, old: Capsule) -> Capsule:
        found, problems = manifests.check(old.folder / MANIFEST)
        errors = [problem for problem in problems if problem.severity == "error"]
        if found is None or errors:
            raise manifests.ManifestError(errors)
        if found.package.name != old.id:
            raise LoadError(
                f"{old.folder / MANIFEST} names the package {found.package.name!r} now, not {old.id!r}: start the host "
                "anew to load another capsule"
            )
        for problem in problems:
            log.warning("%s", problem)
        new = Capsule(old.id, Path(old.folder), old.bundled, old.owner, old.accounts)
        new.problems = problems
        new.described_by(found)
        return new

    async def _take_over(self, old: Capsule, new: Capsule, kind: ExportKind) -> None:
        registry = self._registry
        is_loop = kind is ExportKind.REAL
        if is_loop or old.run_loop is not None or old.state == "failed":
            await self._run_loops.stop(old)
        registry.capsules[new.id] = new
        self._gone(old)
        if kind is not ExportKind.STUB and not await self._run_loops.begin(new):
            registry.unbind(old)
            registry.warn_of_dead_rows(new)
        else:
            registry.bind(new, old)
            registry.free(new, [handler.pattern for handler in new.handlers])
        self._leave(old)

    def _leave(self, old: Capsule) -> None:
        old.state = "unloaded"
        old.error = None
        old.handlers = []
        if old.linked is None:
            return
        self._registry.leaving.add(old)
        old.pool.close()
        self._nursery.start_soon(self._close_when_idle, old)

    async def _close_when_idle(self, old: Capsule) -> None:
        """Free an older version's module once none of its calls is under way."""
        pause = DRAIN_LOOK_S
        while True:
            with self._turns.lock:
                busy = any(call.capsule is old for call in self._turns.live)
            if not busy:
                break
            await trio.sleep(pause)
            pause = min(2 * pause, 1.0)
        self._registry.leaving.discard(old)
        old.close()

    async def _tell_restarted(self, new: Capsule) -> None:
        if not any(handler.action == RESTARTED for handler in new.handlers):
            return
        try:
            await call_once(self._turns, new, new.hook, (RESTARTED, b""), new.owner, new.timeout_s)
        except GuestFailed as error:
            log.warning("%s: %s failed: %s", new.id, RESTARTED, error)


def _goes_on(old: Capsule) -> str:
    return f", so {old.version} goes on" if old.state == "ready" else ""
