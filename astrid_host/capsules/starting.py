"""The start of a host's capsules: all are built, several at once, then each begins in load order.

One whose module or hook takes long does not hold up the rest: when nothing has come forward for a while the host goes on without
it, and it joins when it is done. It keeps its place in the load order: topics that may be bound once stay its own meanwhile, and
who needs one of them waits for it (`Starting.binder`). Nobody goes on without a bundled capsule, one that takes the place of a
bundled one, a guard, or one whose word counts in a role: what they stand for must be there from the first event on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from astrid_host.abi import ExportKind
from astrid_host.capsules.capsule import Capsule
from astrid_host.errors import AstridError

if TYPE_CHECKING:
    from astrid_host.capsules.registry import Registry

log = logging.getLogger(__name__)

MORE_S = 0.2  # the patience that is left once a hook has used it up


class _Begun:
    """A capsule that is being built, and then started."""

    def __init__(self, capsule: Capsule, may_be_late: bool) -> None:
        self.capsule = capsule
        self.may_be_late = may_be_late
        self.run: ExportKind | None = None
        self.error: AstridError | None = None
        self.built, self.over = trio.Event(), trio.Event()

    def has_failed(self) -> bool:
        return self.error is not None


class Starting:
    """Starts the capsules of one host.

    Args:
        registry: whose.
        nursery: in which those that take long go on; None waits for all.
        patience_s: for how long it waits while nothing comes forward.

    Attributes:
        late: those that the host went on without, and that are not there yet, by id.
        joined: called when one of them has joined, or failed.
    """

    def __init__(self, registry: Registry, nursery: trio.Nursery | None, patience_s: float) -> None:
        self._registry = registry
        self._nursery = nursery
        self._patience_s = patience_s
        self._came = trio.Event()
        self.late: dict[str, _Begun] = {}
        self.joined: Callable[[], None] = lambda: None

    async def run(self, ordered: Sequence[Capsule], strict: bool) -> None:
        """Build and start capsules.

        Args:
            ordered: in load order; those that step aside are left out, and taken in when they have to come back.
            strict: wait for all, and raise for the first that fails.

        Raises:
            AstridError: with `strict`, why a capsule failed.

        Cancelled, compilers and hooks are ended.
        """
        if self._nursery is not None and not strict:
            await self._run(self._nursery, ordered, strict)
            return
        async with trio.open_nursery() as nursery:
            await self._run(nursery, ordered, strict)

    async def _run(self, nursery: trio.Nursery, ordered: Sequence[Capsule], strict: bool) -> None:
        begun = self._begin(nursery, [capsule for capsule in ordered if capsule.state == "loading"], strict)
        await self._build_all(nursery, begun, strict)
        for name in list(self._registry.capsules):  # all are built before the first starts
            one = begun.get(name)
            if one is None or one.has_failed():
                continue
            if not one.built.is_set():
                self._go_on_without(one, "its module is still being compiled")
                self._registry.reserve(one.capsule)
                nursery.start_soon(self._join, nursery, one, self._start)
                continue
            nursery.start_soon(self._start, one)
            await self._await(lambda one=one: [] if one.over.is_set() else [one])  # type: ignore[misc]
            if not one.over.is_set():
                self._go_on_without(one, "its hook is still running")
                self._registry.reserve(one.capsule)
                nursery.start_soon(self._join, nursery, one, None)
                self._patience_s = min(self._patience_s, MORE_S)
            elif one.has_failed():
                await self._failed(nursery, one, strict)

    def _begin(self, nursery: trio.Nursery, capsules: Iterable[Capsule], strict: bool) -> dict[str, _Begun]:
        begun = {capsule.id: _Begun(capsule, not strict and self._may_be_late(capsule)) for capsule in capsules}
        for one in sorted(
            begun.values(), key=lambda one: one.may_be_late
        ):  # what is waited for in any case comes first
            nursery.start_soon(self._build, one)
        return begun

    def _may_be_late(self, capsule: Capsule) -> bool:
        guards = any(row.guard for row in capsule.manifest.handlers)
        return not (capsule.bundled or guards or capsule.roles or self._registry.replaces(capsule))

    async def _build_all(self, nursery: trio.Nursery, begun: dict[str, _Begun], strict: bool) -> None:
        """Wait until all are built, or those that are not may be late; what comes back for one that fails is built as well."""
        told = set[_Begun]()
        while True:
            await self._await(lambda: [one for one in begun.values() if not one.built.is_set()])
            failed = [one for one in begun.values() if one.has_failed() and one not in told]
            for one in failed:
                told.add(one)
                begun.update(self._begin(nursery, self._tell(one, strict), strict))
            if not failed:
                return

    async def _await(self, left: Callable[[], list[_Begun]]) -> None:
        """Wait until nothing is left, or nothing came forward for a while and what is left may be late."""
        while waiting := left():
            self._came = came = trio.Event()
            if not left():
                return
            patience = self._patience_s if all(one.may_be_late for one in waiting) else float("inf")
            with trio.move_on_after(patience) as bound:
                await came.wait()
            if bound.cancelled_caught:
                return

    async def _build(self, one: _Begun) -> None:
        try:
            one.run = await self._registry.build(one.capsule)
        except AstridError as error:
            one.error = error
        one.built.set()
        self._came.set()

    async def _start(self, one: _Begun) -> None:
        assert one.run is not None, "it was built"
        try:
            await self._registry.start(one.capsule, one.run)
        except AstridError as error:
            one.error = error
        one.over.set()
        self._came.set()

    def _tell(self, one: _Begun, strict: bool) -> list[Capsule]:
        """One has failed; returns what comes back for it."""
        assert one.error is not None, "it has failed"
        if strict:
            raise one.error
        self._registry.failed(one.capsule, one.error)
        return self._registry.returning(one.capsule)

    async def _failed(self, nursery: trio.Nursery, one: _Begun, strict: bool) -> None:
        back = self._begin(nursery, self._tell(one, strict), strict)
        await self._build_all(nursery, back, strict)
        for other in back.values():
            if not other.has_failed():
                await other.built.wait()
                await self._start(other)
                if other.has_failed():
                    self._tell(other, strict)

    # Those that are late.

    def _go_on_without(self, one: _Begun, why: str) -> None:
        self.late[one.capsule.id] = one
        log.warning("%s: %s: the host goes on without it, and it joins when that is over", one.capsule.id, why)

    async def _join(
        self, nursery: trio.Nursery, one: _Begun, start: Callable[[_Begun], Awaitable[None]] | None
    ) -> None:
        await one.built.wait()
        if start is None:
            await one.over.wait()
        elif not one.has_failed():
            await start(one)
        if one.has_failed():
            await self._failed(nursery, one, strict=False)
        else:
            log.info("%s has joined", one.capsule.id)
        del self.late[one.capsule.id]
        one.over.set()
        self.joined()

    async def binder(self, topic: str) -> None:
        """Wait for a late capsule that has a handler for a topic, if there is one. It is over within the operator's bounds."""
        for one in list(self.late.values()):
            if any(row.pattern == topic for row in one.capsule.manifest.handlers):
                await one.over.wait()
