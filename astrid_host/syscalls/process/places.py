"""Where a child is to work, and what of the disk it sees."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import HostError
from astrid_host.syscalls.fs.walk import is_link, walk
from astrid_host.syscalls.interface import Running
from astrid_host.syscalls.paths import Place, Roots, place

_PATH_OF = getattr(fcntl, "F_GETPATH", None)
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CASES = {"boundary-escape": "boundary-escape", "unknown": "unknown"}


class Mounts(NamedTuple):
    """Folders that a child may write to: the workspace, the principal's home, and what stands at /tmp."""

    workspace: str
    home: str
    scratch: str


class Folder(NamedTuple):
    """A folder: its path without links, and the (device, inode) that are to be there."""

    path: str
    inode: tuple[int, int]


def mounts(roots: Roots, call: Running) -> Mounts:
    """The folders of a call's principal and capsule; made when they are missing.

    Raises:
        HostError: `unknown` when they cannot be made or opened.
    """
    try:
        workspace, home, scratch = (
            roots.root(room, call.principal, call.capsule.id) for room in ("cwd", "home", "tmp")
        )
    except HostError as error:
        raise HostError("unknown", "the folders of the caller cannot be opened", detail=error.detail) from error
    return Mounts(_path_of(workspace.fd), _path_of(home.fd), _path_of(scratch.fd))


def working_folder(roots: Roots, call: Running, path: str | None) -> Folder:
    """The folder that a `cwd` names: of the workspace, which it is relative to, or of `home://`.

    Raises:
        HostError: `boundary-escape` for an absolute path, a `..`, and a link that leads out; `invalid-input` when no folder
            is there.
    """
    if path is not None and path.startswith("/"):
        raise HostError(
            "boundary-escape", detail=f"{path[:64]!r} is absolute: name a folder of the workspace, or home://…"
        )
    try:
        named = place(path or "cwd://")
        root = roots.root(named.room, call.principal, call.capsule.id)
        return walk(root, named.segments, _folder)
    except HostError as error:
        case = _CASES.get(error.case, "invalid-input")
        raise HostError(case, error.payload, detail=f"cwd: {error.detail or error.case}") from error


def _folder(fd: int, name: str, segments: tuple[str, ...]) -> Folder | None:
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if is_link(status):
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise HostError("invalid-input", detail=f"{str(Place('cwd', segments))!r} is not a folder")
    found = os.open(name, _OPEN, dir_fd=fd)
    try:
        status = os.fstat(found)
        return Folder(_path_of(found), (status.st_dev, status.st_ino))
    finally:
        os.close(found)


def _path_of(fd: int) -> str:
    if _PATH_OF is not None:
        return os.fsdecode(fcntl.fcntl(fd, _PATH_OF, b"\0" * 1024).rstrip(b"\0"))
    return str(Path(f"/proc/self/fd/{fd}").readlink())
