"""Where a child is to work, what it may use, and where files may be put for it."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import HostError
from astrid_host.gates.process import may_use_network
from astrid_host.hostcalls.fs.walk import is_link, walk
from astrid_host.hostcalls.interface import Running
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.spellings import Place, Room

_PATH_OF = getattr(fcntl, "F_GETPATH", None)
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Below /etc: what names people, hosts and certificates. Other files there name programs that are run.
_ETC = frozenset(
    f"/etc/{name}"
    for name in (
        *("group", "hostname", "hosts", "localtime", "machine-id", "passwd", "protocols", "resolv.conf", "services"),
        *("timezone", "pki/tls/certs/ca-bundle.crt", "ssl/cert.pem", "ssl/certs/ca-certificates.crt"),
    )
)
_CASES = {"boundary-escape": "boundary-escape", "unknown": "unknown"}


class Grants(NamedTuple):
    """What a child may use: folders that it may write to (the workspace, the principal's home, and what stands at /tmp), and
    why the host's network is not open to it, or None when it is."""

    workspace: str
    home: str
    scratch: str
    no_network: str | None


class Folder(NamedTuple):
    """A folder: its path without links, and the (device, inode) that are to be there."""

    path: str
    inode: tuple[int, int]


def grants(roots: Roots, call: Running) -> Grants:
    """The folders of a call's principal and capsule, made when they are missing; and the network, if its manifest says so.

    Raises:
        HostError: `unknown` when they cannot be made or opened.
    """
    try:
        workspace, home, scratch = (
            roots.root(room, call.principal, call.capsule.storage_id) for room in ("cwd", "home", "tmp")
        )
    except HostError as error:
        raise HostError("unknown", "the folders of the caller cannot be opened", detail=error.detail) from error
    denial = may_use_network(call.capsule.manifest)
    no_network = None if denial is None else denial.detail
    return Grants(_path_of(workspace.fd), _path_of(home.fd), _path_of(scratch.fd), no_network)


def working_folder(roots: Roots, call: Running, path: str | None) -> Folder:
    """The folder that a `cwd` names: of the workspace, which it is relative to, or of `home://`.

    Raises:
        HostError: `boundary-escape` for an absolute path that is not below the workspace, a `..`, and a link that leads out;
            `invalid-input` when no folder is there.
    """
    try:
        named = roots.place(path or "cwd://")
        if named.room == "tmp":
            raise HostError("boundary-escape", detail="/tmp is no place to start in: name a folder of the workspace")
        root = roots.root(named.room, call.principal, call.capsule.storage_id)
        return walk(root, named.segments, _folder)
    except HostError as error:
        case = _CASES.get(error.case, "invalid-input")
        raise HostError(case, error.payload, detail=f"cwd: {error.detail or error.case}") from error


def check_injection(path: str, roots: Roots, call: Running, allowed: Grants) -> None:
    """Refuse to put a file where a child takes it for something else than its capsule's: it may stand in /run, which is the
    child's own; over a file that is there in /tmp, its home or its workspace; and over a few below /etc. Never over programs,
    their libraries, and what says which of these are run. The supervisor looks again where it has come to stand.

    Args:
        path: absolute, without `.` and `..`.
        roots: what the child's folders are.
        call: whose child it is.
        allowed: its folders, by path.

    Raises:
        HostError: `invalid-input`.
    """
    if path.startswith("/run/"):
        return
    rooms: tuple[tuple[Room, str], ...]
    rooms = (("home", allowed.home), ("cwd", allowed.workspace), ("tmp", "/tmp"))
    for room, folder in rooms:
        below = path.removeprefix(folder.rstrip("/") + "/")
        if below != path:
            segments = tuple(below.split("/"))
            try:
                found = walk(roots.root(room, call.principal, call.capsule.storage_id), segments, _file)
            except HostError:
                found = None
            if found == segments:
                return
            break
    else:
        if path in _ETC and os.path.isfile(path) and os.path.realpath(path) == path:
            return
    detail = (
        f"no file can be put at {path[:256]!r}: only below /run; over files of /tmp, the home and the workspace that are there "
        f"and are not reached through links; and over files that are {', '.join(sorted(_ETC))}"
    )
    raise HostError("invalid-input", detail=detail)


def _file(fd: int, name: str, segments: tuple[str, ...]) -> tuple[str, ...] | None:
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    return segments if stat.S_ISREG(status.st_mode) else None if is_link(status) else ()


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
