"""Replacing a capsule by the version that lies in its folder now, and unloading one, while the host runs.

A new version is read, built and has its hook run while the old one still serves. One that does not load changes nothing. Then it
takes over at once: calls in flight end on the old version, with its rights; what waits in queues is handled by the new one, in
order and still one at a time for each principal. What waits for a row that is no more is reported as `cancelled`. A run loop is
stopped before its next version starts, and with it its subscriptions: what is published in between it does not receive. When the
new one fails within half a second, the old one is started again. Calls of an older version that still wait after a minute are
cancelled.

Before one is unloaded, `astrid.v1.capsule.unloading` tells so, `{"capsule_id"}`, to every principal for whom something was done
lately; it goes when that was handled, 5 s later at most. A capsule that handles `handle_lifecycle_restart` is called with that
action, and nothing else, for 5 s at most, after it took over. (Astrid, kernel: background.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from astrid_host import manifest as manifests
from astrid_host.abi import ExportKind
from astrid_host.bus import Bus
from astrid_host.capsules.capsule import Capsule
from astrid_host.capsules.discovery import MANIFEST
from astrid_host.capsules.files import read_manifest
from astrid_host.capsules.registry import Registry, asides
from astrid_host.capsules.runloops import RunLoops
from astrid_host.errors import AstridError, GuestCancelled, GuestFailed, HostClosed, LoadError
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.scheduler import Scheduler, call_once

log = logging.getLogger(__name__)

RESTARTED = "handle_lifecycle_restart"
UNLOADING = "astrid.v1.capsule.unloading"
FAREWELL_S = 5.0
RESTARTED_S = 5.0
GRACE_S = 60.0
DRAIN_LOOK_S = 0.05


class Reloader:
    """Replaces and unloads the capsules of one host, one at a time.

    Args:
        registry: whose capsules.
        bus: where it is told that one is unloaded.
        run_loops: stops and starts theirs.
        scheduler: knows which calls are under way.
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
        scheduler: Scheduler,
        nursery: trio.Nursery,
        gone: Callable[[Capsule], None],
        changed: Callable[[], None],
        seen: Callable[[], Iterable[str]],
    ) -> None:
        self._registry = registry
        self._bus = bus
        self._seen = seen
        self._run_loops = run_loops
        self._scheduler = scheduler
        self._nursery = nursery
        self._gone = gone
        self._changed = changed
        self._one_at_a_time = trio.Lock()
        self._telling: set[Capsule] = set()  # those that hear that they took over

    async def reload(self, name: str) -> None:
        """Replace a capsule by what is in its folder now; also one that failed, or was unloaded.

        Args:
            name: the capsule's id.

        Raises:
            LoadError: there is no such capsule, it steps aside for another, or its new version does not load: the old one goes
                on.
            StoreError: what was loaded before cannot be read or written.

        Cancelled before the new version takes over, it changes nothing.
        """
        async with self._one_at_a_time:
            old = self._named(name)
            self._check_place(old)
            try:
                new = await self._read(old)
                kind = await self._registry.prepare(new)
                with trio.CancelScope(shield=True):  # from here on, half of it would leave none of the two
                    await self._take_over(old, new, kind)
            except AstridError as error:
                if self._scheduler.closing:  # what it reads is closed first
                    raise HostClosed(f"this host has stopped: {name} was not reloaded") from None
                # As text: a record that is kept would keep the error, and what that was raised in.
                log.error("%s: its new version does not load%s: %s", name, _goes_on(old), str(error))
                raise
            log.info("%s %s took over from %s", name, new.version, old.version or "what could not be read")
            self._changed()
            self._telling.add(new)
        try:
            await self._tell_restarted(new)  # the next reload does not wait for what a guest does then
        finally:
            self._telling.discard(new)

    async def unload(self, name: str) -> None:
        """Take a capsule out. Calls in flight end within a minute; what waits for it is reported as `cancelled`.

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
                self._scheduler.call_soon(over.set)

        told = from_value({"capsule_id": old.id})
        for principal in self._seen():
            with self._bus.lock:
                if self._bus.received(UNLOADING, principal):
                    event = self._bus.publish(UNLOADING, told, principal, NIL_SOURCE, entering=True)
                    if event.left:
                        left += 1
                        event.settled = [handled]
            self._scheduler.run_or_wake()
            await trio.lowlevel.checkpoint()
        with self._bus.lock:
            handled()
        self._scheduler.wake_loop()
        with trio.move_on_after(FAREWELL_S) as bound:
            await over.wait()
        if bound.cancelled_caught:
            log.warning("%s is unloaded although %s was not handled within %g s", old.id, UNLOADING, FAREWELL_S)

    def _check_place(self, old: Capsule) -> None:
        """One that steps aside may not come beside the one that it steps aside for."""
        if old.id in self._registry.starting.late:
            raise LoadError(f"{old.id} is still being loaded: try again when it has joined")
        other = self._registry.capsules.get(old.aside_for)
        if old.state == "shadowed" and other is not None and other.state != "unloaded":
            raise LoadError(f"{old.id} {old.error}: unload {other.id} first")

    def _named(self, name: str) -> Capsule:
        capsule = self._registry.capsules.get(name)
        if capsule is None:
            known = ", ".join(self._registry.capsules) or "none at all"
            raise LoadError(f"there is no capsule {name!r}; there are: {known}")
        return capsule

    async def _read(self, old: Capsule) -> Capsule:
        folder = old.folder.resolve()
        read = await trio.to_thread.run_sync(read_manifest, folder, abandon_on_cancel=True)
        if read.manifest is None or read.errors:
            raise manifests.ManifestError(read.errors)
        if read.manifest.package.name != old.id:
            raise LoadError(
                f"{folder / MANIFEST} names the package {read.manifest.package.name!r} now, not {old.id!r}: start the host "
                "anew to load another capsule"
            )
        for problem in read.problems:
            log.warning("%s", problem)
        new = Capsule(old.id, folder, old.bundled, old.owner, old.accounts)
        new.problems = read.problems
        if not new.bundled:
            await self._registry.judge(new, read, read.manifest, self._registry.bundled_manifests())
        self._registry.describe(new, read.manifest)
        return new

    async def _take_over(self, old: Capsule, new: Capsule, kind: ExportKind) -> None:
        registry, state, looped = self._registry, old.state, old.run_loop is not None
        if kind is ExportKind.REAL or looped or state == "failed":
            await self._run_loops.stop(old)
        registry.capsules[new.id] = new
        if looped:  # what the next one keeps may go by the same names
            self._gone(old)
        if kind is not ExportKind.STUB:
            registry.own_as_run_loop(new)
        loops = kind is not ExportKind.STUB and not await self._run_loops.begin(new)
        why = await self._run_loops.begun_well(new) if loops else ""
        if why and state == "ready":
            await self._go_back(old, new, looped)
            raise LoadError(f"{new.id}: {why}")
        if not looped:
            self._gone(old)
        for other, reason in registry.giving_way_to(new):
            await self._step_aside(other, new, reason)
        if loops:
            registry.unbind(old)
            registry.warn_of_dead_rows(new)
        else:
            registry.bind(new, old)
            registry.free(new, [handler.pattern for handler in new.handlers])
        self._leave(old)
        if why:
            raise LoadError(f"{new.id}: {why}")

    async def _go_back(self, old: Capsule, new: Capsule, looped: bool) -> None:
        """The run loop of the new version failed at once: the old version takes its place again."""
        await self._run_loops.stop(new)
        self._gone(new)
        self._registry.capsules[old.id] = old
        new.close()
        old.state = "ready"
        if looped:
            old.is_ready.clear()
            await self._run_loops.begin(old)

    async def _step_aside(self, other: Capsule, new: Capsule, why: str) -> None:
        """A bundled capsule gives way to a given one that loads only now."""
        self._registry.unbind(other)
        await self._run_loops.stop(other)
        self._gone(other)
        self._leave(other)
        other.step_aside(new.id, why)
        asides.warning("the bundled capsule %s %s", other.id, other.error)

    def _leave(self, old: Capsule) -> None:
        old.state = "unloaded"
        old.error = None
        old.handlers = []
        self._run_loops.forget(old)
        if old.linked is None:
            return
        self._registry.leaving.add(old)
        old.pool.close()
        if not self._scheduler.closing:  # else all is closed together
            self._nursery.start_soon(self._close_when_idle, old)

    async def _close_when_idle(self, old: Capsule) -> None:
        """Free an older version's module once none of its calls is under way; those that wait for too long are cancelled."""
        pause, until = DRAIN_LOOK_S, trio.current_time() + GRACE_S
        while True:
            with self._scheduler.lock:
                calls = [call for call in self._scheduler.live if call.capsule is old]
                late = calls if trio.current_time() >= until else []
                for call in late:
                    why = f"{old.id} was unloaded or replaced, and this call had not ended {GRACE_S:g} s later"
                    self._scheduler.cancel_locked(call, GuestCancelled(why))
            if late:
                self._scheduler.run_or_wake()
            if not calls and old not in self._telling:
                break
            await trio.sleep(pause)
            pause = min(2 * pause, 1.0)
        self._registry.leaving.discard(old)
        old.close()

    async def _tell_restarted(self, new: Capsule) -> None:
        if not any(handler.action == RESTARTED for handler in new.handlers):
            return
        with trio.move_on_after(RESTARTED_S) as bound:
            try:
                await call_once(self._scheduler, new, new.hook, (RESTARTED, b""), new.owner, new.timeout_s)
            except GuestFailed as error:
                log.warning("%s: %s failed: %s", new.id, RESTARTED, error)
        if bound.cancelled_caught:
            log.warning("%s: %s was not over within %g s and was cancelled", new.id, RESTARTED, RESTARTED_S)


def _goes_on(old: Capsule) -> str:
    return f", so {old.version} goes on" if old.state == "ready" else ""
