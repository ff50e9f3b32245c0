"""Going to a path below a root, one component at a time, each opened below the descriptor of the one before.

No component is opened through a link: links are read and followed here, so what is reached stays below the root whatever
happens to the tree meanwhile. A name that is there in another form only is taken for the one that was given. Folders that the
root hides are not entered, by whatever name, and a walk that is to write does not go to what the root keeps. Who acts on what
was reached does so by descriptor and name too, never by a whole path. (Astrid, fs: paths.) What goes wrong is a `HostError`
with a case of astrid:fs, or `Elsewhere` for a place that is not in the tree.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.forms import in_its_form
from astrid_host.hostcalls.fs.status import status_of
from astrid_host.hostcalls.paths import FOLDER, Root, inode_of, refused
from astrid_host.hostcalls.spellings import LINKS

STEPS = 2000  # folders that one walk opens: `..` in links begin again from the root

Segments: TypeAlias = tuple[str, ...]
Make: TypeAlias = Callable[[int, str, Segments], None]
Found = TypeVar("Found")
Reach: TypeAlias = Callable[[int, str, Segments], Found | None]


class Stopped(HostError):
    """The system stopped a walk, because nothing is there, say. `segments` is where, as far as links have been
    followed."""

    def __init__(self, error: OSError, segments: Sequence[str]) -> None:
        answer = refused(error)
        super().__init__(answer.case, answer.payload, detail=f"{'/'.join(segments)}: {error.strerror}")
        self.segments = tuple(segments)


class Elsewhere(Exception):
    """A walk came to a place that is not in the tree that it walks.

    Args:
        place: which one.
        below: what the path goes on with, without `.` segments.
    """

    def __init__(self, place: Segments, below: Segments) -> None:
        super().__init__(place, below)
        self.place = place
        self.below = below


def walk(
    root: Root,
    segments: Sequence[str],
    reach: Reach[Found],
    make: Make | None = None,
    elsewhere: Collection[Segments] = (),
    writes: bool = False,
) -> Found:
    """Go to a path below a root. From any thread.

    Args:
        root: where it begins.
        segments: without `.` and `..`.
        reach: called as `reach(fd, name, segments)` with the descriptor of the last folder, the name in it (`.` for
            the root itself), and where that is without links. It must not follow a link: for one it returns None, and
            is called again for what the link leads to. An OSError that it raises becomes a HostError.
        make: called in the same way for a folder that is missing on the way; it has to make it. None: `not-found`.
        elsewhere: places that are not in this tree.
        writes: something is to be changed there.

    Returns:
        what `reach` returned.

    Raises:
        Stopped: the system's answer: `not-found`, `not-directory`, `access` and so on.
        HostError: `boundary-escape` for a link that leads out of the root and for a folder that the root hides,
            `access` for what the root keeps, when it is to be changed, `invalid-path` for more than 40 links or 2,000
            folders on the way, and what `reach` and `make` raise.
        Elsewhere: the path, links followed, leads to a place of `elsewhere` or below it.
    """
    return _Walk(root, make, elsewhere, writes).go(list(segments), reach)


def is_link(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode)


class _Walk:
    """One walk. `done` are the folders from the root to `fd`; none of them was a link when it was opened."""

    __slots__ = ("done", "elsewhere", "fd", "guarded", "kept", "kept_places", "links", "make", "root", "steps")

    def __init__(self, root: Root, make: Make | None, elsewhere: Collection[Segments], writes: bool) -> None:
        self.root = root
        self.fd = root.fd
        self.done: list[str] = []
        self.links = 0
        self.steps = 0
        self.make = make
        self.elsewhere = elsewhere
        self.kept = root.kept if writes else frozenset()
        self.kept_places = root.kept_places if writes else frozenset()
        self.guarded = bool(root.hidden or self.kept)

    def go(self, left: list[str], reach: Reach[Found]) -> Found:
        left.reverse()  # the next segment is the last
        try:
            while True:
                name = left.pop() if left else "."
                if name == "..":
                    self._up()
                    continue
                if not name.isascii():
                    name = in_its_form(self.fd, name)
                here = (*self.done, name) if name != "." else tuple(self.done)
                if here in self.root.closed:
                    raise _hidden()
                if here in self.kept_places:
                    raise _kept()
                if here in self.elsewhere:
                    raise Elsewhere(here, _without_dots(left))
                if left:
                    if not self._down(name):
                        left += self._link(name)
                    continue
                if self.guarded:
                    self._enter(status_of(self.fd, name))
                found = reach(self.fd, name, here)
                if found is not None:
                    return found
                left += self._link(name)
        except OSError as error:
            raise Stopped(error, (*self.done, name, *reversed(left))) from error
        finally:
            self._leave()

    def _down(self, name: str) -> bool:
        """Enter a folder; False for what is no folder, a link perhaps."""
        fd = self._opened(name)
        if fd is None:
            return False
        self._leave()
        self.fd = fd
        self.done.append(name)
        if self.guarded:
            self._enter(os.fstat(fd))
        return True

    def _enter(self, status: os.stat_result | None) -> None:
        if status is None:
            return
        inode = inode_of(status)
        if inode in self.root.hidden:
            raise _hidden()
        if inode in self.kept:
            raise _kept()

    def _opened(self, name: str) -> int | None:
        self.steps += 1
        if self.steps > STEPS:
            raise HostError("invalid-path", detail=f"more than {STEPS} folders on the way: links have too many `..`")
        try:
            return _folder(self.fd, name)
        except FileNotFoundError:
            if self.make is None:
                raise
        self.make(self.fd, name, (*self.done, name))
        return _folder(self.fd, name)

    def _up(self) -> None:
        if not self.done:
            raise HostError("boundary-escape", detail="a link leads out of its root")
        # Not through the file system's `..`: a folder that was moved meanwhile has another parent.
        above = self.done[:-1]
        self._restart()
        for name in above:
            if not self._down(name):
                raise FileNotFoundError(errno.ENOENT, "a folder was replaced meanwhile")

    def _restart(self) -> None:
        self._leave()
        self.fd = self.root.fd
        self.done = []

    def _leave(self) -> None:
        if self.fd != self.root.fd:
            os.close(self.fd)
            self.fd = self.root.fd

    def _link(self, name: str) -> list[str]:
        """What a link says, the last segment first."""
        try:
            target = os.readlink(name, dir_fd=self.fd)
        except OSError as error:
            if error.errno == errno.EINVAL:  # it is no link, and no folder
                raise NotADirectoryError(errno.ENOTDIR, "not a folder") from None
            raise
        self.links += 1
        if self.links > LINKS:
            raise HostError("invalid-path", detail=f"more than {LINKS} links in one path")
        segments = [segment for segment in target.split("/") if segment not in ("", ".")]
        if target.startswith("/"):
            inside = self.root.inside(target)
            if inside is None:
                raise HostError("boundary-escape", detail=f"the link {name!r} leads out of its root")
            self._restart()
            segments = inside
        segments.reverse()
        return segments


def _folder(fd: int, name: str) -> int | None:
    try:
        return os.open(name, FOLDER, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _hidden() -> HostError:
    return HostError("boundary-escape", detail="the host keeps its own files there: it is no part of the root")


def _kept() -> HostError:
    detail = "the host itself runs or trusts what is there: it is read, and not written to or moved"
    return HostError("access", detail=detail)


def _without_dots(left: Sequence[str]) -> Segments:
    """What a path goes on with, given with the last segment first. A `..` of a link would go back, and out of there."""
    if ".." in left:
        raise HostError(
            "boundary-escape", detail="a link leads through a place that is shown here, and out of it again"
        )
    return tuple(reversed(left))
