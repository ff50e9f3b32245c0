"""Folders by descriptor and name: making, listing, and removing them with all that is in them.

No function here follows a link. What the system refuses is an `OSError`, which a walk turns into a typed error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Collection

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.forms import readable
from astrid_host.hostcalls.fs.status import status_of
from astrid_host.hostcalls.fs.walk import is_link
from astrid_host.hostcalls.paths import Inode, inode_of

ENTRIES = 16_384  # of one listing
NAMES_BYTES = 1 << 20  # of one listing
REMOVED = 1_000_000  # entries of one removal
DEPTH = 64  # descriptors that one removal holds
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def make_folder(fd: int, name: str) -> bool | None:
    """Make a folder; one that is there is fine. None for a link.

    Raises:
        HostError: `already-exists` for what is no folder.
    """
    status = status_of(fd, name)
    if status is None:
        try:
            os.mkdir(name, dir_fd=fd)
        except FileExistsError:  # somebody else has just made something there
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        else:
            return True
    if is_link(status):
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise HostError("already-exists", detail=f"{name!r} is there, and is no folder")
    return True


def open_folder(fd: int, name: str) -> int | None:
    """Open a folder to list it; the caller closes the descriptor. None for a link.

    Raises:
        HostError: `not-directory`.
    """
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if is_link(status):
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise HostError("not-directory", detail=f"{name!r} is not a folder")
    return os.open(name, _LIST, dir_fd=fd)


class Listing:
    """The names in an open folder, read in parts. Bytes that are not UTF-8 become U+FFFD.

    Args:
        folder: its descriptor, which stays open.
    """

    def __init__(self, folder: int) -> None:
        self._entries = os.scandir(folder)
        self._bytes = 0
        self.names: list[str] = []

    def read(self, most: int, check: Callable[[], object]) -> bool:
        """Read on. From any thread.

        Args:
            most: how many names.
            check: called after each thousand; what it raises ends the reading.

        Returns:
            whether there may be more.

        Raises:
            HostError: `too-large` for more than 16,384 names, or 1 MiB of them.
        """
        for count, entry in enumerate(itertools.islice(self._entries, most), 1):
            name = readable(entry.name)
            self._bytes += len(name)
            if len(self.names) == ENTRIES or self._bytes > NAMES_BYTES:
                detail = f"a folder of more than {ENTRIES} entries, or {NAMES_BYTES} bytes of names, is not listed"
                raise HostError("too-large", detail=detail)
            self.names.append(name)
            if count % 1024 == 0:
                check()
        return len(self.names) % most == 0 and bool(self.names)

    def sorted(self) -> list[str]:
        """What was read, sorted."""
        self.names.sort()
        return self.names

    def close(self) -> None:
        self._entries.close()


def remove_folder(fd: int, name: str, check: Callable[[], object], hidden: Collection[Inode] = ()) -> int:
    """Remove a folder and all in it.

    Args:
        fd: the folder that it is in.
        name: its name.
        check: called before each entry is removed; what it raises ends the removal.
        hidden: folders that are not emptied, wherever they are mounted.

    Returns:
        how many entries were removed, the folder itself included.

    Raises:
        HostError: `not-directory`; `access` for a hidden folder in it; `too-large` after a million entries. What was
            removed until then is gone.
    """
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        raise HostError("not-directory", detail=f"{name!r} is not a folder")
    return _Removal(check, hidden).remove(fd, name)


class _Removal:
    """`top` is the folder to remove; folders that lie too deep are moved into it, and removed from there. What somebody
    else removes meanwhile is as good as removed; what is put there meanwhile may be left, and the folder with it."""

    def __init__(self, check: Callable[[], object], hidden: Collection[Inode]) -> None:
        self.check = check
        self.hidden = hidden
        self.top = -1
        self.count = 0
        self.moved = 0

    def remove(self, fd: int, name: str) -> int:
        self.top = os.open(name, _LIST, dir_fd=fd)
        try:
            self._empty(self.top, 1)
        finally:
            os.close(self.top)
        os.rmdir(name, dir_fd=fd)
        return self.count + 1

    def _empty(self, folder: int, depth: int) -> None:
        progress = -1  # until a pass removes nothing any more
        while progress != (progress := self.count + self.moved):
            with os.scandir(folder) as entries:
                some = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(entries, 1024)]
            for name, is_folder in some:
                self.check()
                if self.count == REMOVED:
                    raise HostError("too-large", detail=f"more than {REMOVED} entries are not removed at once")
                with contextlib.suppress(FileNotFoundError):
                    self._remove(folder, name, is_folder, depth)

    def _remove(self, folder: int, name: str, is_folder: bool, depth: int) -> None:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
        elif depth < DEPTH:
            inner = os.open(name, _LIST, dir_fd=folder)
            try:
                if self.hidden and inode_of(os.fstat(inner)) in self.hidden:
                    raise HostError("access", detail=f"{name!r} has the host's own files, and stays")
                self._empty(inner, depth + 1)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)
        else:
            os.rename(name, f".astrid-{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=self.top)
            self.moved += 1
            return
        self.count += 1
