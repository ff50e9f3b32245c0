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
from astrid_host.capsules.capsule import HOOK, Capsule
from astrid_host.capsules.consent import Consent
from astrid_host.capsules.discovery import find_folders, in_load_order, unsatisfied
from astrid_host.capsules.files import ReadManifest, read_manifest
from astrid_host.capsules.lifecycle import Lifecycle
from astrid_host.capsules.loading import Loader, handlers_of
from astrid_host.capsules.making import make_instance
from astrid_host.capsules.runloops import READY_S, RunLoops
from astrid_host.capsules.starting import Starting
from astrid_host.dispatch import Dispatcher
from astrid_host.errors import AstridError, LoadError
from astrid_host.gates import Contracts, gives_way
from astrid_host.manifest import Manifest
from astrid_host.scheduler import Accounts

log = logging.getLogger(__name__)
asides = logging.getLogger("astrid_host.aside")  # that one takes another's place is told by every command


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
        consent: judges capsules that did not come with the host.
        claim: lets a capsule, by name and storage id, have what older versions of the host stored for its name.
        lifecycle: runs install and upgrade hooks; None for a host that runs none.
        nursery: in which capsules that take long to load go on doing so; None waits for all.
        start_secs: for how long a start waits while nothing comes forward.
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
        consent: Consent,
        claim: Callable[[str, str], object] = lambda _name, _owner: None,
        lifecycle: Lifecycle | None = None,
        nursery: trio.Nursery | None = None,
        start_secs: float = 2.0,
    ) -> None:
        self.starting = Starting(self, nursery, start_secs)
        self.capsules: dict[str, Capsule] = {}
        self._loader = loader
        self._dispatcher = dispatcher
        self._bus = bus
        self._run_loops = run_loops
        self._owner = owner
        self.accounts = accounts
        self._bound_once = bound_once
        self._contracts = contracts
        self.consent = consent
        self._claim = claim
        self.refused: list[Capsule] = []  # for want of consent; also those whose names others have
        self._lifecycle = lifecycle
        self._bound: dict[str, str] = {}  # pattern -> capsule that keeps it
        self._set_aside: dict[str, ReadManifest] = {}  # bundled capsules by the name that a given one has, too
        self.complete = False  # all that was found is loaded, or failed
        self.leaving: set[Capsule] = set()  # older versions, or unloaded ones, whose calls are not over

    async def load(self, places: Sequence[Path], strict: bool) -> None:
        """Find and load what is below `places`.

        Args:
            places: folders that are capsules or contain some; those that come with the host among them or not.
            strict: raise for the first capsule that fails, or is not trusted.

        Raises:
            LoadError: a place does not exist.
            AstridError: with `strict`, why a capsule failed.
        """
        await self._read(places, strict)
        described = [
            capsule for capsule in self.capsules.values() if capsule.has_manifest and capsule.state == "loading"
        ]
        by_manifest = {id(capsule.manifest): capsule for capsule in described}
        ordered = [by_manifest[id(manifest)] for manifest in in_load_order([c.manifest for c in described])]
        rest = [capsule for capsule in self.capsules.values() if capsule not in ordered]
        self.capsules = {capsule.id: capsule for capsule in (*ordered, *rest)}
        for capsule in ordered:
            self._shadow(capsule)
        await self.starting.run(ordered, strict)
        self._tell_unsatisfied([capsule for capsule in self.capsules.values() if capsule.has_manifest])
        await self._await_run_loops()
        self.complete = True

    def folders(self) -> dict[str, Path]:
        """The folders of the loaded capsules, by package name. From any thread."""
        return {name: capsule.folder for name, capsule in self.capsules.copy().items() if capsule.state == "ready"}

    async def _read(self, places: Sequence[Path], strict: bool) -> None:
        """Read all manifests, and judge those that did not come with the host before anything is made of them."""
        reads = await trio.to_thread.run_sync(_manifests, places, abandon_on_cancel=True)
        bundled = [read for read in reads if self.consent.is_bundled(read.folder)]
        manifests_of_bundled = [read.manifest for read in bundled if read.manifest is not None and not read.errors]
        for read in reads:
            if not self.consent.is_bundled(read.folder):
                await self._read_given(read, manifests_of_bundled, strict)
        for read in bundled:
            self._read_bundled(read, strict)
        for capsule in self.refused:
            self.capsules.setdefault(capsule.id, capsule)

    async def _read_given(self, read: ReadManifest, bundled: Sequence[Manifest], strict: bool) -> None:
        name = _name_of(read)
        first = self.capsules.get(name)
        if first is not None and first.state != "failed":
            log.warning(
                "two capsules are named %s: the one in %s is used, not that in %s", name, first.folder, read.folder
            )
            return
        capsule = Capsule(name, read.folder, False, self._owner, self.accounts)
        if read.manifest is not None and not read.errors:
            try:
                await self.judge(capsule, read, read.manifest, bundled)
            except AstridError as error:
                if strict:
                    raise
                self.failed(capsule, error)
                self.refused.append(capsule)
                return
        if first is not None:
            log.warning(
                "two capsules are named %s: the one in %s failed, that in %s is used", name, first.folder, read.folder
            )
        self._add(capsule, read, strict)

    async def judge(
        self, capsule: Capsule, read: ReadManifest, manifest: Manifest, bundled: Iterable[Manifest]
    ) -> None:
        """Judge one that did not come with the host, and let it have what belongs to it.

        Raises:
            LoadError: it is not trusted, and asks for what needs that; or its files cannot be read.
            StoreError: what was consented to, or stored before, cannot be read or written.
        """
        verdict = await self.consent.decide(read, manifest, bundled)
        capsule.asks, capsule.storage_id, capsule.trusted = verdict.asks, verdict.storage_id, verdict.trusted
        if verdict.refused is not None:
            capsule.described_by(manifest)
            raise LoadError(self.consent.refusal(verdict.refused))
        capsule.files = verdict.files
        is_named_so = self.consent.is_bundled_name(capsule.id)
        capsule.overlaid = verdict.trusted or not is_named_so
        if verdict.original:
            capsule.roles = self._contracts.roles_of(capsule.id)
        elif verdict.trusted:
            capsule.roles = frozenset(self._contracts.wanted(manifest))
        if not is_named_so:
            await trio.to_thread.run_sync(self._claim, capsule.id, capsule.storage_id)

    def _read_bundled(self, read: ReadManifest, strict: bool) -> None:
        name = _name_of(read)
        first = self.capsules.get(name)
        if first is not None and first.bundled:
            log.warning(
                "two capsules are named %s: the one in %s is used, not that in %s", name, first.folder, read.folder
            )
        elif first is not None and first.state != "failed":
            asides.warning("the bundled capsule %s steps aside for the one in %s", name, first.folder)
            self._set_aside[name] = read
        else:
            if first is not None:
                _tell_back(name, first)
            self._add(Capsule(name, read.folder, True, self._owner, self.accounts), read, strict)

    def _add(self, capsule: Capsule, read: ReadManifest, strict: bool) -> None:
        self.capsules[capsule.id] = capsule
        capsule.problems = read.problems
        for problem in read.problems:
            if problem.severity == "warning":
                log.warning("%s", problem)
        if read.manifest is not None:
            self.describe(capsule, read.manifest)
        if read.errors or read.manifest is None:
            error = manifests.ManifestError(read.errors)
            if strict:
                raise error
            self.failed(capsule, error)

    def describe(self, capsule: Capsule, manifest: Manifest) -> None:
        """Its manifest was read: what it may do, and which of its rows do not count."""
        capsule.described_by(manifest)
        if capsule.bundled:
            capsule.roles = self._contracts.roles_of(capsule.id)
        else:
            capsule.unheard = self._contracts.unheard(manifest, capsule.roles)

    def _shadow(self, capsule: Capsule) -> None:
        """A bundled capsule steps aside when a given one takes its place."""
        if not capsule.bundled:
            return
        for other in self.capsules.values():
            if other.bundled or not other.has_manifest or other.state not in ("loading", "ready"):
                continue
            way = gives_way(capsule.manifest, other.manifest, self._bound_once)
            if way is not None:
                capsule.step_aside(other.id, way.why)
                asides.warning("the bundled capsule %s %s", capsule.id, capsule.error)
                return

    def giving_way_to(self, new: Capsule) -> list[tuple[Capsule, str]]:
        """The bundled capsules that take part and step aside for a given one, with why they do."""
        if new.bundled:
            return []
        bundled = [c for c in self.capsules.values() if c.bundled and c.state == "ready" and c.id != new.id]
        ways = [(capsule, gives_way(capsule.manifest, new.manifest, self._bound_once)) for capsule in bundled]
        return [(capsule, way.why) for capsule, way in ways if way is not None]

    def bundled_manifests(self) -> list[Manifest]:
        """Those of the bundled capsules of this host, whether they take part or stepped aside."""
        own = [capsule.manifest for capsule in self.capsules.values() if capsule.bundled and capsule.has_manifest]
        return own + [read.manifest for read in self._set_aside.values() if read.manifest is not None]

    def replaces(self, given: Capsule) -> bool:
        """Whether a bundled capsule steps aside for it."""
        asides = (capsule.aside_for for capsule in self.capsules.values())
        return not given.bundled and (given.id in self._set_aside or given.id in asides)

    def returning(self, failed: Capsule) -> list[Capsule]:
        """The bundled capsules that stepped aside for one that did not load: they take part after all."""
        if failed.bundled:
            return []
        returning = [capsule for capsule in self.capsules.values() if capsule.aside_for == failed.id]
        for capsule in returning:
            capsule.come_back()
        read = self._set_aside.pop(failed.id, None)
        if read is not None:
            self._add(Capsule(failed.id, read.folder, True, self._owner, self.accounts), read, strict=False)
            if self.capsules[failed.id].state == "loading":
                returning.append(self.capsules[failed.id])
        for capsule in returning:
            self._shadow(capsule)
        back = [capsule for capsule in returning if capsule.state == "loading"]
        for capsule in back:
            _tell_back(capsule.id, failed)
        return back

    async def build(self, capsule: Capsule) -> ExportKind:
        """Build it for a host that starts. Raises AstridError."""
        run = await self._loader.build(capsule)
        if run is ExportKind.STUB and self.replaces(capsule):  # others take the time to see at their first call
            await make_instance(self._dispatcher.scheduler, capsule)
        return run

    async def start(self, capsule: Capsule, run: ExportKind) -> None:
        """Run the hook that is due, and let it take part. Raises AstridError."""
        await self._run_hook(capsule)
        if run is not ExportKind.STUB:
            self.own_as_run_loop(capsule)
        if run is not ExportKind.STUB and not await self._run_loops.begin(capsule):
            self.warn_of_dead_rows(capsule)
        else:
            self.bind(capsule)

    def reserve(self, capsule: Capsule) -> None:
        """Its place in the load order has come before it is there: topics that may be bound once are kept for it."""
        handlers_of(capsule, partial(self._keeps, capsule))
        capsule.inactive = []  # said again when it is bound

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
                await make_instance(self._dispatcher.scheduler, capsule)
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
        there = [capsule for capsule in ordered if capsule.state in ("ready", "loading")]
        for capsule in there:
            for wanted in unsatisfied(capsule.manifest, [other.manifest for other in there]):
                log.warning("%s imports %s, which no loaded capsule exports", capsule.id, wanted)

    def failed(self, capsule: Capsule, error: AstridError) -> None:
        capsule.fail(str(error))
        capsule.close()
        self.free(capsule, ())
        log.error("the capsule in %s was not loaded: %s", capsule.folder, error)

    def by_source(self, source: str) -> Capsule | None:
        """The capsule that publishes under that UUID."""
        return next((c for c in self.capsules.values() if c.source_id == source and c.state == "ready"), None)

    def close(self) -> None:
        """Close every capsule's instances; no call is under way any more."""
        for capsule in (*self.capsules.values(), *self.leaving):
            capsule.close()


def _name_of(read: ReadManifest) -> str:
    return read.manifest.package.name if read.manifest is not None else read.folder.name


def _manifests(places: Sequence[Path]) -> list[ReadManifest]:
    """The capsules below some places, with what their manifests say. On a thread: they are others' files."""
    return [read_manifest(folder) for folder in dict.fromkeys(folder.resolve() for folder in find_folders(places))]


def _tell_back(name: str, failed: Capsule) -> None:
    log.warning(
        "the bundled capsule %s takes part after all, because the one in %s did not load: %s",
        name,
        failed.folder,
        failed.error,
    )
