"""Where a guest's path leads: into one of three roots, and never out of it.

How a path is read is told in `spellings`. (Astrid, fs: paths.) A workspace may contain the folders in which the host keeps
its own files: they are no part of `cwd://`. What the host itself runs or trusts, its program and its capsules, may lie there
too: it is read as all else, and never written to or moved.
What goes wrong is a `HostError` with a case of astrid:fs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from astrid_host.errors import AstridError, HostError
from astrid_host.hostcalls.spellings import LINKS, SEGMENTS, Names, Place, Room, below, names_of
from astrid_host.hostcalls.spellings import place as read_place

HOMES, SCRATCH = "homes", "scratch"  # in the state folder
OPEN_ROOTS = 256  # descriptors of homes and scratch folders that are kept
CAPSULES_VIEW = (".local", "capsules")  # below a home: the loaded capsules, read-only
WIT_VIEW = ("wit",)  # below a home: the WIT packages, read-only
HOME_FOLDERS = ((".config",), CAPSULES_VIEW, WIT_VIEW)

Inode: TypeAlias = tuple[int, int]  # a device, and a number on it

_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CAPSULE = re.compile(r"[a-z0-9-]{1,128}(@[0-9a-f]{32})?")  # a storage id
# A descriptor that only stands for a folder, where there is such a thing: it needs no right to read it.
FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Root:
    """An open folder that paths are walked from. It is closed when nobody uses it any more.

    Args:
        path: where it is, links resolved; links that begin with it lead back into it.
        fd: its descriptor, which is closed with it.
        names: further absolute paths of it, each as its segments; links that begin with one lead back into it too.

    `hidden` are folders that no walk enters by any name, and `closed` are their places below the root, which no walk goes
    to whatever is there. `kept` and `kept_places` are likewise what no walk goes to that is to write.
    """

    __slots__ = ("closed", "fd", "hidden", "kept", "kept_places", "names")

    def __init__(self, path: Path, fd: int, names: Names = ()) -> None:
        self.names: Names = tuple(dict.fromkeys((path.parts[1:], *names)))
        self.fd = fd
        self.hidden: frozenset[Inode] = frozenset()
        self.closed: frozenset[tuple[str, ...]] = frozenset()
        self.kept: frozenset[Inode] = frozenset()
        self.kept_places: frozenset[tuple[str, ...]] = frozenset()

    def __del__(self) -> None:
        os.close(self.fd)

    def inside(self, target: str) -> list[str] | None:
        """What an absolute link says, as segments below this root; None when it leads elsewhere."""
        inside = below(target, self.names)
        return self._by_another_name(target) if inside is None else inside

    def _by_another_name(self, target: str) -> list[str] | None:
        """The same for a path that comes to this root through links. It is only asked where the root's name ends in it: what
        follows is walked from the root."""
        here = inode_of(os.fstat(self.fd))
        parts = [part for part in target.split("/") if part not in ("", ".")]
        at = ""
        for depth, part in enumerate(parts[:SEGMENTS], 1):
            at = f"{at}/{part}"
            try:
                if inode_of(os.stat(at)) == here:
                    return parts[depth:]
            except (OSError, ValueError):
                return None
        return None


class Roots:
    """The roots of one host: opened at first use and kept.

    Args:
        workspace: what `cwd://` means; a folder that exists.
        state_dir: the folder in which homes and scratch folders are made, with mode 0700.
        hidden: further folders that `cwd://` does not lead into, as it does not into `state_dir`. A missing one is made, so
            that no guest makes it first.
        trusted: files and folders that the host runs or trusts, which no guest writes.
        left_free: bytes of each disk that guests leave free.

    Raises:
        AstridError: the workspace is not a folder that can be opened, is the state folder or in its rooms, or lies in a hidden
            one; the state folder cannot be made.
    """

    def __init__(
        self,
        workspace: Path,
        state_dir: Path,
        hidden: Sequence[Path] = (),
        trusted: Sequence[Path] = (),
        left_free: int = 0,
    ) -> None:
        self.left_free = left_free
        self._workspace = _opened(workspace, "workspace", names_of(workspace))
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise AstridError(f"the state folder {state_dir} cannot be made: {error.strerror}; give another") from error
        self._state = _opened(state_dir, "state folder")
        self._state_path = Path(os.path.realpath(state_dir))
        self._real = Path(os.path.realpath(workspace))
        self._hide(workspace, (state_dir, *hidden))
        self._held: list[Root] = []  # held open, so that nothing else gets their inodes
        self.trusted: tuple[Path, ...] = ()
        self._moved_by_none = self._passed
        self.trust(trusted)
        self._kept: OrderedDict[tuple[str, ...], Root] = OrderedDict()
        self._lock = threading.Lock()

    def _hide(self, workspace: Path, folders: Sequence[Path]) -> None:
        self._hidden: list[Root] = []  # held open, so that no other folder gets their inodes
        inodes: dict[Inode, Path] = {}
        for folder in folders:
            with contextlib.suppress(OSError):  # one that cannot be made is closed by its place
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._hidden.append(Root(folder, os.open(folder, FOLDER & ~os.O_NOFOLLOW)))
                inodes[inode_of(os.fstat(self._hidden[-1].fd))] = folder
        real = Path(os.path.realpath(workspace))
        for above in (real, *real.parents):
            own = None
            with contextlib.suppress(PermissionError):  # what is not seen by its path is not below what is
                own = inodes.get(inode_of(above.stat()))
            beside = above != real and own == folders[0] and real.relative_to(above).parts[0] not in (HOMES, SCRATCH)
            if own is not None and not beside:  # beside the rooms in the state folder a workspace sees nothing of it
                raise AstridError(
                    f"the workspace {workspace} lies in {own}, where the host keeps its own files; give a workspace "
                    "outside of it"
                )
        self._workspace.hidden = frozenset(inodes)
        places = [Path(os.path.realpath(folder)) for folder in folders]
        self._workspace.closed = frozenset(
            place.relative_to(real).parts for place in places if place.is_relative_to(real)
        )
        self._passed = frozenset(inode for folder in folders for inode in _passed(folder))

    def trust(self, places: Sequence[Path]) -> None:
        """Keep further files and folders from being written to and moved, and look anew at those that are kept: what lies at
        their places may be another file by now.

        Args:
            places: which, wherever they lie; they need not be there.
        """
        self.trusted = tuple(dict.fromkeys((*self.trusted, *(place.absolute() for place in places))))
        kept: dict[Inode, Root] = {}
        named: set[tuple[str, ...]] = set()
        for place in self.trusted:
            real = Path(os.path.realpath(place))
            if real == self._real or not real.is_relative_to(self._real):
                continue
            named.add(real.relative_to(self._real).parts)
            with contextlib.suppress(OSError):  # what is not there is kept by its place
                found = Root(real, os.open(real, FOLDER & ~os.O_DIRECTORY))
                kept[inode_of(os.fstat(found.fd))] = found
        self._held = list(kept.values())
        self._workspace.kept, self._workspace.kept_places = frozenset(kept), frozenset(named)
        self._moved_by_none = self._passed | {inode for place in self.trusted for inode in _passed(place)}

    @property
    def hidden(self) -> frozenset[Inode]:
        """The folders that `cwd://` does not lead into."""
        return self._workspace.hidden

    @property
    def kept(self) -> frozenset[Inode]:
        """The files and folders that `cwd://` leads to, but not to write."""
        return self._workspace.kept

    def protect(self, room: Room, segments: tuple[str, ...], status: os.stat_result | None) -> None:
        """Refuse to move, replace or remove what the path of a hidden folder or of a trusted place goes through: another could
        be put in its place, which the host would take for its own at its next start.

        Args:
            room: where it is about to be done.
            segments: its place there.
            status: of what is there, a link itself; None for nothing.

        Raises:
            HostError: `access`.
        """
        if room != "cwd":
            return
        passed = status is not None and inode_of(status) in self._moved_by_none
        places = self._workspace.closed | self._workspace.kept_places
        if passed or any(place[: len(segments)] == segments for place in places):
            raise HostError("access", detail="the host keeps its own files below it: it stays where it is")

    def place(self, path: str) -> Place:
        """Read a guest's path. An absolute one is looked for below the workspace's names.

        Raises:
            HostError: as `spellings.place`.
        """
        return read_place(path, self._workspace.names)

    @property
    def workspace(self) -> str:
        """The absolute path of the workspace, links resolved."""
        return os.fsencode(self._real).decode("utf-8", "replace")

    def root(self, room: Room, principal: str, capsule: str) -> Root:
        """The root that a room of `Place` means to a capsule and principal; made when it is missing.

        Raises:
            HostError: `access` when it cannot be made or opened.
        """
        if room == "cwd":
            return self._workspace
        below: tuple[str, ...] = (HOMES, _folder(principal, _PRINCIPAL))
        if room == "tmp":
            below = (SCRATCH, _folder(principal, _PRINCIPAL), _folder(capsule, _CAPSULE))
        with self._lock:
            root = self._kept.get(below)
            if root is None:
                root = self._kept[below] = self._make(below, HOME_FOLDERS if room == "home" else ())
                if len(self._kept) > OPEN_ROOTS:
                    self._kept.popitem(last=False)  # whoever walks from it still holds it
            else:
                self._kept.move_to_end(below)
            return root

    def _make(self, below: Sequence[str], folders: Sequence[Sequence[str]]) -> Root:
        fd = os.dup(self._state.fd)
        try:
            for name in below:
                fd = _enter(fd, name)
            for folder in folders:
                _bear(fd, folder)
        except OSError as error:
            os.close(fd)
            detail = f"the folder {self._state_path.joinpath(*below)} cannot be made or opened: {error.strerror}"
            raise HostError("access", detail=detail) from error
        return Root(self._state_path.joinpath(*below), fd)

    def close(self) -> None:
        """Let go of the homes and scratch folders. A walk that is under way keeps its root to its end."""
        with self._lock:
            self._kept.clear()


def inode_of(status: os.stat_result) -> Inode:
    """What identifies a file or folder, by whatever path it was reached."""
    return status.st_dev, status.st_ino


def _passed(path: Path) -> Iterator[Inode]:
    """The folders and links that a path goes through, its end included, as far as they are there."""
    left = [*reversed(path.absolute().parts[1:])]
    at, links = "/", 0
    with contextlib.suppress(OSError):  # so far and no farther
        while left and links <= LINKS:
            name = left.pop()
            if name == "..":
                at = os.path.dirname(at)
                continue
            here = os.path.join(at, name)
            status = os.lstat(here)
            yield inode_of(status)
            if not stat.S_ISLNK(status.st_mode):
                at = here
                continue
            links += 1
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            left += [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _opened(path: Path, what: str, names: Names = ()) -> Root:
    try:
        return Root(Path(os.path.realpath(path)), os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), names)
    except OSError as error:
        raise AstridError(f"the {what} {path} cannot be opened: {error.strerror}; give a folder that exists") from error


def _folder(name: str, form: re.Pattern[str]) -> str:
    if form.fullmatch(name) is None:
        raise HostError("access", detail=f"{name!r} has no folder: a name is {form.pattern}")
    if name.islower() or not any(map(str.isalpha, name)):
        return name
    # Some file systems take Alice and alice for one name, but they are two principals.
    return f"{name}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _make_folder(fd: int, name: str) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=fd)
    except FileExistsError:
        return


def _bear(home: int, folder: Sequence[str]) -> None:
    """Make a folder that a home is born with; whatever else took its place is left as it is."""
    fd = os.dup(home)
    try:
        for name in folder:
            _make_folder(fd, name)
            below = os.open(name, FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    finally:
        os.close(fd)


def _enter(fd: int, name: str) -> int:
    """The folder `name` below `fd`, made when missing; `fd` is closed."""
    _make_folder(fd, name)
    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    os.close(fd)
    return below


_CASES = {
    errno.ENOENT: "not-found",
    errno.EACCES: "access",
    errno.EPERM: "access",
    errno.EROFS: "access",
    errno.EBUSY: "access",  # something is mounted there
    errno.ENOTDIR: "not-directory",
    errno.EISDIR: "is-directory",
    errno.ENOTEMPTY: "not-empty",
    errno.EEXIST: "already-exists",
    errno.ENAMETOOLONG: "invalid-path",
    errno.EILSEQ: "invalid-path",
    errno.EXDEV: "cross-vfs",
    errno.EFBIG: "too-large",
    errno.ENOSPC: "quota",
    errno.EDQUOT: "quota",
    errno.EMLINK: "quota",
    errno.EMFILE: "quota",
    errno.ENFILE: "quota",
    errno.EAGAIN: "would-block",
    errno.ELOOP: "invalid-path",  # a link took the place of what was there a moment ago
    errno.ENXIO: "access",  # a fifo did
}


def refused(error: OSError) -> HostError:
    """What the system answered, as a case of astrid:fs. A guest is not told where on the host its files lie."""
    case = _CASES.get(error.errno or 0)
    if case is None:
        return HostError("unknown", error.strerror or "the operating system failed", detail=str(error))
    return HostError(case, detail=error.strerror or "")
