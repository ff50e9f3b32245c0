"""The functions of astrid:fs that read: what is there, what is in it, and where links lead.

All but `read-file` are plain. `read-file` reads a short file at once and a longer one on a thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partial

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.content import check_size, open_file, read_all
from astrid_host.hostcalls.fs.folders import ENTRIES, Listing, open_folder
from astrid_host.hostcalls.fs.forms import readable
from astrid_host.hostcalls.fs.gated import READ, SHORT_BYTES, Gated
from astrid_host.hostcalls.fs.status import SHOWN_FOLDER, FileStat, file_stat
from astrid_host.hostcalls.fs.walk import Segments, is_link
from astrid_host.hostcalls.interface import Running, hostcall
from astrid_host.hostcalls.paths import refused
from astrid_host.hostcalls.spellings import Place

SHORT_NAMES = 1024  # so many names are read without a thread


class Reading(Gated):
    """Each needs an `fs_read` row for what it names and for what links on the way lead to; what it raises beyond what it
    says itself is told at `Gated.reach`."""

    @hostcall("fs-exists", audited=lambda path: path)
    def fs_exists(self, call: Running, path: str) -> bool:
        """Whether something is there; False for a link that leads to nothing."""
        try:
            return self.reach(call, path, READ, _exists, lambda _names, _at: True)
        except HostError as error:
            if error.case in ("not-found", "not-directory"):
                return False
            raise

    @hostcall("fs-stat", audited=lambda path: path)
    def fs_stat(self, call: Running, path: str) -> FileStat:
        """What is there. Links are followed."""
        return self.reach(call, path, READ, _followed, _shown_folder)

    @hostcall("fs-stat-symlink", audited=lambda path: path)
    def fs_stat_symlink(self, call: Running, path: str) -> FileStat:
        """What is there. A link at the end of the path is described itself."""
        return self.reach(call, path, READ, _itself, _shown_folder)

    @hostcall("fs-readdir", audited=lambda path: path)
    async def fs_readdir(self, call: Running, path: str) -> list[str]:
        """The names in a folder, sorted, without `.` and `..`. `not-directory`, and `too-large` for more than 16,384, or 1
        MiB of them. Bytes that are not UTF-8 become U+FFFD. A long list is read on a thread; cancelled, it ends within a
        thousand names."""

        def opened(fd: int, name: str, _at: Segments) -> int | list[str] | None:
            return open_folder(fd, name)

        found = self.reach(call, path, READ, opened, _names)
        if isinstance(found, list):
            return found
        try:
            with contextlib.closing(Listing(found)) as listing:
                if not listing.read(SHORT_NAMES, _go_on):
                    return listing.sorted()

                def rest() -> list[str]:
                    listing.read(ENTRIES + 1, trio.from_thread.check_cancelled)
                    return listing.sorted()

                return await self.aside(call, rest)
        except OSError as error:
            raise refused(error) from error
        finally:
            os.close(found)

    @hostcall("fs-canonicalize", audited=lambda path: path)
    def fs_canonicalize(self, call: Running, path: str) -> str:
        """The spelling of what is there, links followed: `cwd://…`, `home://…` or `/tmp/…`. Bytes that are not UTF-8
        become U+FFFD."""
        room = self._roots.place(path).room

        def spelling(fd: int, name: str, at: Segments) -> str | None:
            return None if is_link(_status(fd, name)) else readable(str(Place(room, at)))

        return self.reach(call, path, READ, spelling, lambda _names, at: str(Place(room, at)))

    @hostcall("fs-read-link", audited=lambda path: path)
    def fs_read_link(self, call: Running, path: str) -> str:
        """Where a link leads, whether something is there or not, in the spelling of its root. `invalid-path` for what is
        no link, `boundary-escape` for a link out of its root: where on the host that is, is not told."""
        named = self._roots.place(path)
        root = self._roots.root(named.room, call.principal, call.capsule.storage_id)

        def target(fd: int, name: str, at: Segments) -> str:
            said = _said(fd, name)
            floor = self._views.floor(at) if named.room == "home" else 0
            inside: list[str] | None = [*at[:-1], *said.split("/")]
            if said.startswith("/"):
                inside = None if floor else root.inside(said)
            if inside is None:
                raise HostError("boundary-escape", detail="the link leads out of its root")
            return readable(str(Place(named.room, _without_dots(inside, floor))))

        return self.reach(call, path, READ, target)

    @hostcall("read-file", audited=lambda path: path)
    async def read_file(self, call: Running, path: str) -> bytes:
        """A file's bytes. `is-directory`; `access` for what is neither file nor folder; `too-large` for more than 10 MiB.
        Cancelled, it ends after the read that is under way."""

        def opened(fd: int, name: str, _at: Segments) -> int | None:
            return open_file(fd, name, "read")

        file = self.reach(call, path, READ, opened)
        try:
            size = os.fstat(file).st_size
            check_size(size, path)
            if size <= SHORT_BYTES:
                return read_all(file, size, path)
            return await self.aside(call, partial(read_all, file, size, path))
        finally:
            os.close(file)


def _names(shown: list[str], _at: Segments) -> int | list[str]:
    return shown


def _go_on() -> None:
    """What is short is not interrupted."""


def _status(fd: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=fd, follow_symlinks=False)


def _exists(fd: int, name: str, _at: Segments) -> bool | None:
    return None if is_link(_status(fd, name)) else True


def _followed(fd: int, name: str, _at: Segments) -> FileStat | None:
    status = _status(fd, name)
    return None if is_link(status) else file_stat(status)


def _itself(fd: int, name: str, _at: Segments) -> FileStat:
    return file_stat(_status(fd, name))


def _shown_folder(_names: list[str], _at: Segments) -> FileStat:
    return SHOWN_FOLDER


def _without_dots(path: list[str], floor: int) -> Segments:
    """A path with its `.` and `..` taken out; one that leads above its first `floor` segments is `boundary-escape`."""
    left: list[str] = []
    for segment in path:
        if segment == "..":
            if len(left) <= floor:
                raise HostError("boundary-escape", detail="the link leads out of its root")
            left.pop()
        elif segment not in ("", "."):
            left.append(segment)
    return tuple(left)


def _said(fd: int, name: str) -> str:
    """What a link says, asked for at once: what was a link a moment ago may be a folder now."""
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise HostError("invalid-path", detail=f"{name!r} is no link") from error
        raise
