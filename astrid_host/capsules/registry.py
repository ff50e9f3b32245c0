"""The capsules of a host: found, ordered, loaded, and which of them give way to others.

Given beats bundled: a bundled capsule steps aside when a given one binds one of its topics that may be bound once, exports
the same interface, or is named in its `yields_to`. Of others that bind the same such topic the first in load order keeps it;
the other's row is inactive, and both are named. Which topics may be bound only once is the caller's to say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import trio

from astrid_host import manifest as manifests
from astrid_host.abi import ExportKind
from astrid_host.bus import Bus
from astrid_host.calls import Accounts
from astrid_host.capsules.capsule import HOOK, Capsule
from astrid_host.capsules.discovery import find_folders, in_load_order, unsatisfied
from astrid_host.capsules.lifecycle import Lifecycle
from astrid_host.capsules.loading import Loader, handlers_of
from astrid_host.capsules.runloops import RunLoops
from astrid_host.dispatch import Dispatcher
from astrid_host.errors import AstridError
from astrid_host.manifest import Manifest

log = logging.getLogger(__name__)

READY_S = 0.5


class Registry:
    """Every capsule of one host, by id, in load order.

    Args:
        loader: builds modules.
        dispatcher: gets their handlers.
        bus: whose lock guards them.
        run_loops: starts those that have one.
        owner: the host's principal.
        accounts: where the use of principals is counted.
        bound_once: whether a pattern may be bound by one capsule only.
        lifecycle: runs install and upgrade hooks; None for a host that runs none.
    """

    def __init__(
        self,
        loader: Loader,
        dispatcher: Dispatcher,
        bus: Bus,
        run_loops: RunLoops,
        owner: str,
        accounts: Accounts,
        bound_once: Callable[[str], bool],
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self.capsules: dict[str, Capsule] = {}
        self._loader = loader
        self._dispatcher = dispatcher
        self._bus = bus
        self._run_loops = run_loops
        self._owner = owner
        self.accounts = accounts
        self._bound_once = bound_once
        self._lifecycle = lifecycle
        self._bound: dict[str, str] = {}  # pattern -> capsule that keeps it
        self.complete = False  # all that was found is loaded, or failed
        self.leaving: set[Capsule] = set()  # older versions, or unloaded ones, whose calls are not over

    async def load(self, places: Sequence[Path], bundled: Path, strict: bool) -> None:
        """Find and load what is below `places`.

        Args:
            places: folders that are capsules or contain some; `bundled` among them or not.
            bundled: the folder whose capsules step aside for others.
            strict: raise for the first capsule that fails.

        Raises:
            LoadError: a place does not exist.
            AstridError: with `strict`, why a capsule failed.
        """
        self._read(places, bundled, strict)
        described = [
            capsule for capsule in self.capsules.values() if capsule.has_manifest and capsule.state == "loading"
        ]
        by_manifest = {id(capsule.manifest): capsule for capsule in described}
        ordered = [by_manifest[id(manifest)] for manifest in in_load_order([c.manifest for c in described])]
        rest = [capsule for capsule in self.capsules.values() if capsule not in ordered]
        self.capsules = {capsule.id: capsule for capsule in (*ordered, *rest)}
        self._shadow(ordered)
        # All are built before the first starts: compiling takes long, and a run loop may not wait long for the others.
        built = [(capsule, await self._build(capsule, strict)) for capsule in ordered if capsule.state == "loading"]
        for capsule, run in built:
            if run is not None:
                await self._start(capsule, run, strict)
        self._tell_unsatisfied(ordered)
        await self._await_run_loops()
        self.complete = True

    def folders(self) -> dict[str, Path]:
        """The folders of the loaded capsules, by package name. From any thread."""
        return {name: capsule.folder for name, capsule in self.capsules.copy().items() if capsule.state == "ready"}

    def _read(self, places: Sequence[Path], bundled: Path, strict: bool) -> None:
        given = [place for place in places if place.resolve() != bundled.resolve()]
        own = [place for place in places if place.resolve() == bundled.resolve()]
        for is_bundled, group in ((False, given), (True, own)):
            for folder in find_folders(group):
                self._read_one(folder, is_bundled, strict)

    def _read_one(self, folder: Path, is_bundled: bool, strict: bool) -> None:
        found, problems = manifests.check(folder / "Capsule.toml")
        name = found.package.name if found is not None else folder.name
        if name in self.capsules:
            first = self.capsules[name]
            if is_bundled:
                log.info("the bundled capsule %s steps aside for the one in %s", name, first.folder)
            else:
                log.warning(
                    "two capsules are named %s: the one in %s is used, not that in %s", name, first.folder, folder
                )
            return
        capsule = self.capsules[name] = Capsule(name, folder, is_bundled, self._owner, self.accounts)
        capsule.problems = problems
        errors = [problem for problem in problems if problem.severity == "error"]
        for problem in problems:
            if problem.severity == "warning":
                log.warning("%s", problem)
        if found is not None:
            capsule.described_by(found)
        if errors or found is None:
            error = manifests.ManifestError(errors)
            if strict:
                raise error
            self._failed(capsule, error)

    def _shadow(self, ordered: list[Capsule]) -> None:
        given = [capsule for capsule in ordered if not capsule.bundled]
        for capsule in ordered:
            if not capsule.bundled:
                continue
            for other in given:
                why = self._gives_way(capsule.manifest, other.manifest)
                if why:
                    capsule.state = "shadowed"
                    capsule.error = f"steps aside for {other.id}, which {why}"
                    log.info("the bundled capsule %s %s", capsule.id, capsule.error)
                    break

    def _gives_way(self, bundled: Manifest, given: Manifest) -> str:
        if given.package.name in bundled.package.yields_to:
            return "it yields to"
        interfaces = {(export.namespace, export.interface) for export in bundled.exports}
        for export in given.exports:
            if (export.namespace, export.interface) in interfaces:
                return f"exports {export.namespace}:{export.interface} too"
        bound = {row.pattern for row in bundled.handlers if self._bound_once(row.pattern)}
        for row in given.handlers:
            if row.pattern in bound:
                return f"binds {row.pattern} too"
        return ""

    async def _build(self, capsule: Capsule, strict: bool) -> ExportKind | None:
        try:
            return await self._loader.build(capsule)
        except AstridError as error:
            if strict:
                raise
            self._failed(capsule, error)
            return None

    async def _start(self, capsule: Capsule, run: ExportKind, strict: bool) -> None:
        try:
            await self._run_hook(capsule)
            if run is not ExportKind.STUB and not await self._run_loops.begin(capsule):
                self.warn_of_dead_rows(capsule)
                return
            self.bind(capsule)
        except AstridError as error:
            if strict:
                raise
            self._failed(capsule, error)

    async def prepare(self, capsule: Capsule) -> ExportKind:
        """Build it and run the hook that is due; says what its `run` is.

        Raises:
            LoadError: it cannot be built, or its hook failed.
            StoreError: what was loaded before cannot be read or written.
        """
        run = await self._loader.build(capsule)
        await self._run_hook(capsule)
        return run

    async def _run_hook(self, capsule: Capsule) -> None:
        if self._lifecycle is not None:
            await self._lifecycle.begin(capsule)

    def bind(self, capsule: Capsule, old: Capsule | None = None) -> None:
        """Let events come to its handlers, if it has any: also those that wait for an older version of it."""
        callable_ = capsule.linked is not None and HOOK in capsule.linked.entries
        wanted = handlers_of(capsule, partial(self._keeps, capsule)) if callable_ else []
        with self._bus.lock:
            if old is None:
                self._dispatcher.add(wanted)
                capsule.handlers = wanted
            else:
                capsule.take_over(old)
                capsule.handlers = self._dispatcher.replace(capsule, old.handlers, wanted)
            capsule.state = "ready"
        capsule.is_ready.set()

    def unbind(self, capsule: Capsule) -> None:
        """Let no event come to it any more; rows of others that stepped aside for its own are active from now on."""
        with self._bus.lock:
            self._dispatcher.remove(capsule, capsule.handlers)
            capsule.handlers = []
        self.free(capsule, ())

    def free(self, capsule: Capsule, still: Iterable[str]) -> None:
        """Of the topics that it kept for itself alone, only some are still its own: the first that wants another gets it."""
        freed = {topic for topic, name in self._bound.items() if name == capsule.id}.difference(still)
        for topic in freed:
            del self._bound[topic]
        for other in self.capsules.values():
            rows = freed.intersection(other.inactive)
            if not rows or other.state != "ready" or other.run_loop is not None or other.id == capsule.id:
                continue
            other.inactive = []  # said anew
            added = [row for row in handlers_of(other, partial(self._keeps, other)) if row.pattern in rows]
            with self._bus.lock:
                self._dispatcher.add(added)
                other.handlers = [*other.handlers, *added]
            freed -= rows

    def _keeps(self, capsule: Capsule, pattern: str) -> bool:
        if not self._bound_once(pattern):
            return True
        first = self._bound.setdefault(pattern, capsule.id)
        if first != capsule.id:
            log.warning(
                "%s and %s both bind %s: %s keeps it, the other's row is inactive", first, capsule.id, pattern, first
            )
        return first == capsule.id

    def warn_of_dead_rows(self, capsule: Capsule) -> None:
        """Say which rows of a capsule with a run loop are never called."""
        rows = [row.pattern for row in capsule.manifest.handlers]
        if rows:
            capsule.inactive.extend(rows)
            log.warning(
                "%s has a run loop, so the handlers of its [subscribe] rows are never called (%s): it has to subscribe and "
                "receive itself",
                capsule.id,
                ", ".join(rows),
            )

    async def _await_run_loops(self) -> None:
        """Give run loops half a second to say that they have subscribed."""
        with trio.move_on_after(READY_S):
            while any(capsule.run_loop and not capsule.is_ready.is_set() for capsule in self.capsules.values()):
                await trio.sleep(0.001)
        for capsule in self.capsules.values():
            if capsule.run_loop and not capsule.is_ready.is_set():
                log.warning("%s: its run loop did not say within %g s that it is ready", capsule.id, READY_S)

    def _tell_unsatisfied(self, ordered: Iterable[Capsule]) -> None:
        ready = [capsule for capsule in ordered if capsule.state == "ready"]
        for capsule in ready:
            for wanted in unsatisfied(capsule.manifest, [other.manifest for other in ready]):
                log.warning("%s imports %s, which no loaded capsule exports", capsule.id, wanted)

    def _failed(self, capsule: Capsule, error: AstridError) -> None:
        capsule.fail(str(error))
        log.error("the capsule in %s was not loaded: %s", capsule.folder, error)

    def by_source(self, source: str) -> Capsule | None:
        """The capsule that publishes under that UUID."""
        return next((c for c in self.capsules.values() if c.source_id == source and c.state == "ready"), None)

    def close(self) -> None:
        """Close every capsule's instances; no call is under way any more."""
        for capsule in (*self.capsules.values(), *self.leaving):
            capsule.close()
