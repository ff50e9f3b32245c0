"""astrid:fs, the half that reads: fs-exists, fs-stat, fs-readdir, read-file.

What may be read is asked before the disk is: a capsule without a fitting row of `fs_read` learns nothing, not even
whether something is there. Where a row covers only part of a root, the place that links lead to has to be covered as
well. Functions are plain: a file of 10 MiB takes milliseconds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from astrid_host.errors import HostError
from astrid_host.gates import Denial, covers, may_read
from astrid_host.syscalls.interface import Interface, Running, syscall
from astrid_host.syscalls.paths import Place, Roots, Stopped, is_link, place, walk

FILE_BYTES = 10 << 20
ENTRIES = 4096

_KINDS = {
    stat.S_IFREG: "regular",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFBLK: "block-device",
    stat.S_IFCHR: "character-device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
# Whatever took the file's place meanwhile: never through a link, never waiting, never as a terminal.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

Found = TypeVar("Found")


class Datetime(NamedTuple):
    """`datetime`: seconds since 1970, and nanoseconds beyond them."""

    seconds: int
    nanoseconds: int


class FileStat(NamedTuple):
    """`file-stat`; `mode` are the permission bits."""

    size: int
    kind: str
    mode: int
    modified: Datetime | None
    created: Datetime | None
    accessed: Datetime | None


class Fs(Interface):
    """The host functions of astrid:fs that read.

    Args:
        roots: what guests' paths lead into.

    Each raises HostError `invalid-path` or `boundary-escape` for a path that is malformed or has a `..`,
    `capability-denied` without a row that covers it, and then what the walk there finds: `not-found`,
    `not-directory`, `access`, `boundary-escape` for a link that leads out of its root.
    """

    wit = ("astrid:fs/host@1.0.0",)

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    @syscall("fs-exists")
    def fs_exists(self, call: Running, path: str) -> bool:
        """Whether something is there; False for a link that leads to nothing."""
        try:
            self._reach(call, path, _status)
        except HostError as error:
            if error.case in ("not-found", "not-directory"):
                return False
            raise
        return True

    @syscall("fs-stat")
    def fs_stat(self, call: Running, path: str) -> FileStat:
        """What is there. Links are followed."""
        status = self._reach(call, path, _status)
        return FileStat(
            status.st_size,
            _KINDS.get(stat.S_IFMT(status.st_mode), "type-unknown"),
            stat.S_IMODE(status.st_mode),
            _datetime(status.st_mtime_ns),
            _created(status),
            _datetime(status.st_atime_ns),
        )

    @syscall("fs-readdir")
    def fs_readdir(self, call: Running, path: str) -> list[str]:
        """The names in a folder, sorted, without `.` and `..`. `not-directory`, and `too-large` for more than 4,096.
        Bytes that are not UTF-8 become U+FFFD."""
        return self._reach(call, path, _names)

    @syscall("read-file")
    def read_file(self, call: Running, path: str) -> bytes:
        """A file's bytes. `is-directory`; `access` for what is neither file nor folder; `too-large` for more than 10
        MiB."""
        return self._reach(call, path, _content)

    def _reach(self, call: Running, path: str, read: Callable[[int, str], Found | None]) -> Found:
        manifest = call.capsule.manifest
        named = place(path)
        denial = may_read(manifest, str(named))
        if denial is not None:
            raise _denied(denial)
        root = self._roots.root(named.room, call.principal, call.capsule.id)
        if covers(manifest.capabilities.fs_read, str(Place(named.room, ()))):
            return walk(root, named.segments, lambda fd, name, _segments: read(fd, name))

        def checked(fd: int, name: str, segments: tuple[str, ...]) -> Found | None:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if is_link(status):
                return None
            denial = may_read(manifest, str(Place(named.room, segments)))
            if denial is not None:
                raise _denied(denial)
            return read(fd, name)

        try:
            return walk(root, named.segments, checked)
        except Stopped as stopped:
            denial = may_read(manifest, str(Place(named.room, stopped.segments)))
            if denial is not None:
                raise _denied(denial) from None
            raise


def _denied(denial: Denial) -> HostError:
    return HostError(denial.case, detail=denial.detail)


def _datetime(nanoseconds: int) -> Datetime:
    return Datetime(*divmod(nanoseconds, 1_000_000_000))


def _created(status: os.stat_result) -> Datetime | None:
    seconds = getattr(status, "st_birthtime", None)  # Linux does not tell
    return None if seconds is None else _datetime(int(seconds * 1_000_000_000))


def _status(fd: int, name: str) -> os.stat_result | None:
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    return None if is_link(status) else status


def _names(fd: int, name: str) -> list[str] | None:
    status = _status(fd, name)
    if status is None:
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise HostError("not-directory", detail=f"{name!r} is not a folder")
    folder = os.open(name, _LIST, dir_fd=fd)
    try:
        names: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(names) == ENTRIES:
                    raise HostError("too-large", detail=f"{name!r} has more than {ENTRIES} entries")
                names.append(os.fsencode(entry.name).decode("utf-8", "replace"))
    finally:
        os.close(folder)
    return sorted(names)


def _content(fd: int, name: str) -> bytes | None:
    status = _status(fd, name)  # first, because opening a device may already do something
    if status is None:
        return None
    _check_file(status, name)
    file = os.open(name, _READ, dir_fd=fd)
    try:
        status = os.fstat(file)
        _check_file(status, name)
        return _all(file, status.st_size, name)
    finally:
        os.close(file)


def _check_file(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise HostError("is-directory", detail=f"{name!r} is a folder: list it with fs-readdir")
    if not stat.S_ISREG(status.st_mode):
        raise HostError(
            "access", detail=f"{name!r} is a {_KINDS.get(stat.S_IFMT(status.st_mode), 'thing')}, not a file"
        )
    if status.st_size > FILE_BYTES:
        raise _too_large(name)


def _all(file: int, size: int, name: str) -> bytes:
    parts = [os.read(file, size + 1)]
    total = len(parts[0])
    while parts[-1]:  # it may have grown, or be one whose size nobody knows
        if total > FILE_BYTES:
            raise _too_large(name)
        parts.append(os.read(file, 65536))
        total += len(parts[-1])
    return parts[0] if len(parts) <= 2 else b"".join(parts)


def _too_large(name: str) -> HostError:
    return HostError("too-large", detail=f"{name!r} has more than {FILE_BYTES} bytes, and a file is read as a whole")
