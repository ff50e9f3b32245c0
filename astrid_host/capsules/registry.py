"""The capsules of a host: found, ordered, loaded, and which of them give way to others.

Given beats bundled: a bundled capsule steps aside when a given one has its name, binds one of its topics that may be bound once,
exports the same interface, or is named in its `yields_to`. It takes part after all when the given one does not load. Of others
that bind the same such topic the first in load order keeps it; the other's row is inactive, and both are named. Which topics may
be bound only once is the caller's to say.
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
from astrid_host.capsules.discovery import MANIFEST, find_folders, in_load_order, unsatisfied
from astrid_host.capsules.lifecycle import Lifecycle
from astrid_host.capsules.loading import Loader, handlers_of
from astrid_host.capsules.making import make_instance
from astrid_host.capsules.runloops import READY_S, RunLoops
from astrid_host.dispatch import Dispatcher
from astrid_host.errors import AstridError
from astrid_host.gates import Contracts
from astrid_host.manifest import Manifest

log = logging.getLogger(__name__)


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
        contracts: which roles there are.
        trust: whether capsules that did not come with the host hold the roles that they want.
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
        contracts: Contracts,
        trust: bool = False,
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
        self._contracts = contracts
        self._trust = trust
        self._lifecycle = lifecycle
        self._bound: dict[str, str] = {}  # pattern -> capsule that keeps it
        self._set_aside: dict[str, Path] = {}  # bundled capsules by the name that a given one has, too
        self._bundled = Path()
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
        self._bundled = bundled.resolve()
        self._read(places, bundled, strict)
        described = [
            capsule for capsule in self.capsules.values() if capsule.has_manifest and capsule.state == "loading"
        ]
        by_manifest = {id(capsule.manifest): capsule for capsule in described}
        ordered = [by_manifest[id(manifest)] for manifest in in_load_order([c.manifest for c in described])]
        rest = [capsule for capsule in self.capsules.values() if capsule not in ordered]
        self.capsules = {capsule.id: capsule for capsule in (*ordered, *rest)}
        for capsule in ordered:
            self._shadow(capsule)
        # All are built before the first starts: compiling takes long, and a run loop may not wait long for the others.
        for capsule, run in await self._build_all(ordered, strict):
            if await self._start(capsule, run, strict):
                continue
            for back, kind in await self._build_all(self._returning(capsule), strict):
                await self._start(back, kind, strict)
        self._tell_unsatisfied([capsule for capsule in self.capsules.values() if capsule.has_manifest])
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
        found, problems = manifests.check(folder / MANIFEST)
        name = found.package.name if found is not None else folder.name
        first = self.capsules.get(name)
        if first is not None and not is_bundled:
            log.warning("two capsules are named %s: the one in %s is used, not that in %s", name, first.folder, folder)
        elif first is not None and first.state != "failed":
            log.info("the bundled capsule %s steps aside for the one in %s", name, first.folder)
            self._set_aside[name] = folder
        else:
            if first is not None:
                _tell_back(name, first)
            self._add(name, folder, is_bundled, found, problems, strict)

    def _add(
        self,
        name: str,
        folder: Path,
        is_bundled: bool,
        found: Manifest | None,
        problems: Sequence[manifests.Problem],
        strict: bool,
    ) -> None:
        capsule = self.capsules[name] = Capsule(name, folder, is_bundled, self._owner, self.accounts)
        capsule.problems = problems
        errors = [problem for problem in problems if problem.severity == "error"]
        for problem in problems:
            if problem.severity == "warning":
                log.warning("%s", problem)
        if found is not None:
            self.describe(capsule, found)
        if errors or found is None:
            error = manifests.ManifestError(errors)
            if strict:
                raise error
            self._failed(capsule, error)

    def describe(self, capsule: Capsule, manifest: Manifest) -> None:
        """Its manifest was read: what it may do, and in which roles its word counts."""
        capsule.described_by(manifest)
        if (
            capsule.bundled or capsule.folder.resolve().parent == self._bundled
        ):  # given by its path, it is still the host's own
            capsule.trusted = True
            capsule.roles = self._contracts.roles_of(capsule.id)
        else:
            capsule.trusted = self._trust
            capsule.roles = frozenset(self._contracts.wanted(manifest)) if capsule.trusted else frozenset()
            capsule.unheard = self._contracts.unheard(manifest, capsule.roles)

    def _shadow(self, capsule: Capsule) -> None:
        """A bundled capsule steps aside when a given one takes its place."""
        if not capsule.bundled:
            return
        for other in self.capsules.values():
            if other.bundled or not other.has_manifest or other.state not in ("loading", "ready"):
                continue
            why = self._gives_way(capsule.manifest, other.manifest)
            if why:
                capsule.step_aside(other.id, why)
                log.info("the bundled capsule %s %s", capsule.id, capsule.error)
                return

    def giving_way_to(self, new: Capsule) -> list[tuple[Capsule, str]]:
        """The bundled capsules that take part and step aside for a given one, with why they do."""
        if new.bundled:
            return []
        bundled = [c for c in self.capsules.values() if c.bundled and c.state == "ready" and c.id != new.id]
        reasons = [(capsule, self._gives_way(capsule.manifest, new.manifest)) for capsule in bundled]
        return [(capsule, why) for capsule, why in reasons if why]

    def _replaces(self, given: Capsule) -> bool:
        """Whether a bundled capsule steps aside for it."""
        asides = (capsule.aside_for for capsule in self.capsules.values())
        return not given.bundled and (given.id in self._set_aside or given.id in asides)

    def _returning(self, failed: Capsule) -> list[Capsule]:
        """The bundled capsules that stepped aside for one that did not load: they take part after all."""
        if failed.bundled:
            return []
        returning = [capsule for capsule in self.capsules.values() if capsule.aside_for == failed.id]
        for capsule in returning:
            capsule.come_back()
        folder = self._set_aside.pop(failed.id, None)
        if folder is not None:
            self._add(failed.id, folder, True, *manifests.check(folder / MANIFEST), strict=False)
            if self.capsules[failed.id].state == "loading":
                returning.append(self.capsules[failed.id])
        for capsule in returning:
            self._shadow(capsule)
        back = [capsule for capsule in returning if capsule.state == "loading"]
        for capsule in back:
            _tell_back(capsule.id, failed)
        return back

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

    async def _build_all(self, capsules: Iterable[Capsule], strict: bool) -> list[tuple[Capsule, ExportKind]]:
        """Build those that take part, and what comes back for those that fail; in load order."""
        built: dict[str, tuple[Capsule, ExportKind]] = {}
        waiting = [capsule for capsule in capsules if capsule.state == "loading"]
        for capsule in waiting:
            run = await self._build(capsule, strict)
            if run is None:
                waiting.extend(self._returning(capsule))
            else:
                built[capsule.id] = capsule, run
        return [built[name] for name in self.capsules if name in built]

    async def _build(self, capsule: Capsule, strict: bool) -> ExportKind | None:
        try:
            run = await self._loader.build(capsule)
            if run is ExportKind.STUB and self._replaces(capsule):  # others take the time to see at their first call
                await make_instance(self._dispatcher.turns, capsule)
            return run
        except AstridError as error:
            if strict:
                raise
            self._failed(capsule, error)
            return None

    async def _start(self, capsule: Capsule, run: ExportKind, strict: bool) -> bool:
        try:
            await self._run_hook(capsule)
            if run is not ExportKind.STUB:
                self.own_as_run_loop(capsule)
            if run is not ExportKind.STUB and not await self._run_loops.begin(capsule):
                self.warn_of_dead_rows(capsule)
            else:
                self.bind(capsule)
        except AstridError as error:
            if strict:
                raise
            self._failed(capsule, error)
            return False
        return True

    async def prepare(self, capsule: Capsule) -> ExportKind:
        """Build it, see that it has instances, and run the hook that is due; says what its `run` is.

        Raises:
            LoadError: it cannot be built, no instance of it can be made, or its hook failed.
            StoreError: what was loaded before cannot be read or written.

        When it raises, or is cancelled, nothing of what was built is left.
        """
        try:
            run = await self._loader.build(capsule)
            if run is ExportKind.STUB:  # else its run loop shows
                await make_instance(self._dispatcher.turns, capsule)
            await self._run_hook(capsule)
        except BaseException:
            capsule.close()
            raise
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
            capsule.owns(frozenset(row.pattern for row in wanted if not row.guard))
            capsule.state = "ready"
        capsule.is_ready.set()

    def own_as_run_loop(self, capsule: Capsule) -> None:
        """It answers for the topics of its rows itself, until it is known to have handlers: for those that no other capsule has a
        handler for."""
        rows = {row.pattern for row in capsule.manifest.subscribe if "*" not in row.pattern.split(".")}
        others = [c for c in self.capsules.values() if c.id != capsule.id and c.state in ("loading", "ready")]
        for other in others:
            rows.difference_update(row.pattern for row in other.manifest.handlers)
            rows.difference_update(topic for topic in other.owned if self._bound_once(topic))
        with self._bus.lock:
            capsule.owns(frozenset(rows))

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
                other.owns(other.owned.union(row.pattern for row in added if not row.guard))
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
        capsule.close()
        log.error("the capsule in %s was not loaded: %s", capsule.folder, error)

    def by_source(self, source: str) -> Capsule | None:
        """The capsule that publishes under that UUID."""
        return next((c for c in self.capsules.values() if c.source_id == source and c.state == "ready"), None)

    def close(self) -> None:
        """Close every capsule's instances; no call is under way any more."""
        for capsule in (*self.capsules.values(), *self.leaving):
            capsule.close()


def _tell_back(name: str, failed: Capsule) -> None:
    log.warning(
        "the bundled capsule %s takes part after all, because the one in %s did not load: %s",
        name,
        failed.folder,
        failed.error,
    )
