"""From a guest's path to what it names: form, then rights, then the walk.

What may be reached is asked before the disk is: a capsule without a fitting row of `fs_read` or `fs_write` learns nothing,
not even whether something is there. Where a row covers only part of a root, the place that links lead to has to be covered
as well. (Astrid, fs: gates.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from astrid_host.errors import HostError
from astrid_host.gates import Denial, covers, may_read, may_write
from astrid_host.hostcalls.fs.folders import make_folder
from astrid_host.hostcalls.fs.status import status_of
from astrid_host.hostcalls.fs.views import Shown, Views
from astrid_host.hostcalls.fs.walk import Elsewhere, Segments, Stopped, walk
from astrid_host.hostcalls.interface import Interface, Running
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.spellings import Place, Room
from astrid_host.hostcalls.threads import Threads
from astrid_host.manifest import Manifest

SHORT_BYTES = 256 << 10  # so much is read or written without a thread: well below a millisecond

Right: TypeAlias = Literal["fs_read", "fs_write"]
Rights: TypeAlias = tuple[Right, ...]
Found = TypeVar("Found")
Act: TypeAlias = Callable[[int, str, Segments], Found | None]

READ: Rights = ("fs_read",)
WRITE: Rights = ("fs_write",)
READ_WRITE: Rights = ("fs_read", "fs_write")
_GATES: dict[Right, Callable[[Manifest, str], Denial | None]] = {"fs_read": may_read, "fs_write": may_write}


class Gated(Interface):
    """What the functions of astrid:fs have in common.

    Args:
        roots: what guests' paths lead into.
        views: what homes show that is not in them.
        threads: where what takes long is done.
    """

    wit = ("astrid:fs/host@1.0.0",)

    def __init__(self, roots: Roots, views: Views | None = None, threads: Threads | None = None) -> None:
        self._roots = roots
        self._views = views or Views()
        self._threads = threads or Threads()

    def reach(
        self,
        call: Running,
        path: str,
        rights: Rights,
        act: Act[Found],
        shown: Callable[[list[str], Segments], Found] | None = None,
        parents: bool = False,
    ) -> Found:
        """Do something at a guest's path. From any thread.

        Args:
            call: whose path.
            path: as the guest wrote it.
            rights: which it takes.
            act: done there; the `reach` of `walk`.
            shown: done instead at a folder that is on no disk, with the names in it and where it is. None:
                `is-directory`.
            parents: make folders that are missing on the way.

        Raises:
            HostError: `invalid-path` or `boundary-escape` for a path that is malformed or has a `..`,
                `capability-denied` without rows that cover it, `access` for writing to what a home only shows and to
                what the host itself runs or trusts, and what the walk finds: `not-found`, `not-directory`,
                `boundary-escape` for a link that leads out.
        """
        named = self._roots.place(path)
        check = _checks(call.capsule.manifest, rights, named)

        def checked(fd: int, name: str, at: Segments) -> Found | None:
            check(at)
            return act(fd, name, at)

        def make(fd: int, name: str, at: Segments) -> None:
            check(at)
            make_folder(fd, name)

        elsewhere = self._views.places if named.room == "home" else ()
        root = self._roots.root(named.room, call.principal, call.capsule.storage_id)
        try:
            writes = "fs_write" in rights
            return walk(root, named.segments, checked, make if parents else None, elsewhere, writes)
        except Stopped as stopped:
            check(stopped.segments)
            raise HostError(stopped.case, stopped.payload, detail=stopped.detail) from stopped
        except Elsewhere as found:
            at, below = found.place, found.below
        check(at + below)
        if "fs_write" in rights:
            raise HostError("access", detail=f"{Place('home', at)} is only shown there: nothing is written to it")
        return self._look(at, below, checked, shown)

    def _look(
        self, view: Segments, below: Segments, act: Act[Found], shown: Callable[[list[str], Segments], Found] | None
    ) -> Found:
        at = view + below
        there = self._views.find(view, below)
        if isinstance(there, Shown):
            above = at[: len(at) - len(there.segments)]
            return walk(there.root, there.segments, lambda fd, name, inner: act(fd, name, above + inner))
        if shown is None:
            raise HostError("is-directory", detail=f"{Place('home', at)} is a folder")
        return shown(there, at)

    def keep(self, room: Room, segments: Segments, fd: int, name: str) -> None:
        """Refuse to move, replace or remove a root, a folder in which a home shows something, or what leads to a folder
        that the workspace hides.

        Args:
            room: where it is.
            segments: its place there.
            fd: the folder that it is in.
            name: its name.

        Raises:
            HostError: `access`.
        """
        if not segments:
            raise HostError("access", detail="a root itself is neither moved nor removed")
        if room == "home" and any(view[: len(segments)] == segments for view in self._views.places):
            detail = f"{Place('home', segments)} has what is shown in every home, and stays where it is"
            raise HostError("access", detail=detail)
        self._roots.protect(room, segments, status_of(fd, name))

    async def aside(self, call: Running, work: Callable[[], Found], abandon: bool = False) -> Found:
        """Run on a thread what takes long.

        Args:
            call: on whose behalf.
            work: what is not short looks out for a cancellation with `trio.from_thread.check_cancelled`.
            abandon: when cancelled, do not wait for the thread: for what changes nothing and holds its own descriptors.
        """
        return await self._threads.run(call, work, abandon)


def denied(denial: Denial) -> HostError:
    """A gate's answer as the guest hears it."""
    return HostError(denial.case, detail=denial.detail)


def _checks(manifest: Manifest, rights: Rights, named: Place) -> Callable[[Segments], None]:
    """Asks the gates about what a guest named, and gives what asks them about where that leads to."""

    def check(segments: Segments) -> None:
        spelling = str(Place(named.room, segments))
        for right in rights:
            denial = _GATES[right](manifest, spelling)
            if denial is not None:
                raise denied(denial)

    root = str(Place(named.room, ()))
    if all(covers(getattr(manifest.capabilities, right), root) for right in rights):
        return _covered
    check(named.segments)
    return check


def _covered(_segments: Segments) -> None:
    """All of the root is covered, and no walk leads out of it."""
