"""What is told about a file: its kind, size, mode and times. (Astrid, fs: file-stat.)"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

_KINDS = {
    stat.S_IFREG: "regular",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFBLK: "block-device",
    stat.S_IFCHR: "character-device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


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


SHOWN_FOLDER = FileStat(0, "directory", 0o555, None, None, None)  # one that is on no disk


def status_of(fd: int, name: str) -> os.stat_result | None:
    """What is there, a link itself; None when nothing is."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def kind(status: os.stat_result) -> str:
    """A `file-type`."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "type-unknown")


def file_stat(status: os.stat_result) -> FileStat:
    """What the system said, as a guest hears it."""
    return FileStat(
        status.st_size,
        kind(status),
        stat.S_IMODE(status.st_mode),
        _datetime(status.st_mtime_ns),
        _created(status),
        _datetime(status.st_atime_ns),
    )


def _datetime(nanoseconds: int) -> Datetime:
    return Datetime(*divmod(nanoseconds, 1_000_000_000))


def _created(status: os.stat_result) -> Datetime | None:
    seconds = getattr(status, "st_birthtime", None)  # Linux does not tell
    return None if seconds is None else _datetime(int(seconds * 1_000_000_000))
