"""The functions of astrid:fs that change what is there.

A whole file is written under a temporary name and moved to its place, so that no reader sees half of it and a failure
leaves what was there. What may take long runs on a thread; the rest is plain. What a home only shows is not written to.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial

from astrid_host.errors import HostError
from astrid_host.gates import covers, may_read
from astrid_host.hostcalls.fs.content import (
    CONTENT_TAKES,
    FILE_BYTES,
    Shared,
    append,
    check_file,
    copy_all,
    open_file,
    replace,
    write_all,
)
from astrid_host.hostcalls.fs.folders import make_folder, remove_folder
from astrid_host.hostcalls.fs.gated import READ, SHORT_BYTES, WRITE, Gated, denied
from astrid_host.hostcalls.fs.status import status_of
from astrid_host.hostcalls.fs.walk import Segments
from astrid_host.hostcalls.interface import Running, hostcall
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.spellings import Place, Room


class Writing(Gated):
    """Each needs an `fs_write` row for what it names and for what links on the way lead to; what it raises beyond what it
    says itself is told at `Gated.reach`, and `quota` means that the disk is full."""

    @hostcall("write-file", takes=CONTENT_TAKES, audited=lambda path, content: path)
    async def write_file(self, call: Running, path: str, content: bytes) -> None:
        """Create a file, or replace all that is in it; its mode and owner stay. `is-directory`; `access` for what is
        neither file nor folder; `too-large` for more than 10 MiB. Cancelled, it ends when the file is written."""
        _check_content(content)

        def written(fd: int, name: str, _at: Segments) -> bool | None:
            return replace(fd, name, lambda file: write_all(file, content, self._roots.left_free))

        await self._run(call, len(content), lambda: self.reach(call, path, WRITE, written))

    @hostcall("fs-append", takes=CONTENT_TAKES, audited=lambda path, content: path)
    async def fs_append(self, call: Running, path: str, content: bytes) -> None:
        """Add to the end of a file, which is created if it is not there. Errors as `write-file`. A file that has other
        names gets a content of its own first."""
        _check_content(content)
        left = self._roots.left_free

        def appended(detach: bool) -> bool:
            return self.reach(call, path, WRITE, lambda fd, name, _at: append(fd, name, content, detach, left))

        try:
            await self._run(call, len(content), lambda: appended(False))
        except Shared:
            await self.aside(call, lambda: appended(True))

    @hostcall("fs-copy", audited=lambda src, dst: f"{src} -> {dst}")
    async def fs_copy(self, call: Running, src: str, dst: str) -> None:
        """Copy a file with its mode, from any root to any root; a file that is there is replaced as a whole. Needs
        `fs_read` for the source. `is-directory`; `access` for what is neither file nor folder; `too-large` for more than 1
        GiB. Cancelled, it ends within a MiB and leaves nothing."""

        def opened(fd: int, name: str, _at: Segments) -> int | None:
            return open_file(fd, name, "read")

        source = self.reach(call, src, READ, opened)
        try:
            status = os.fstat(source)
            mode = stat.S_IMODE(status.st_mode)

            def copied(check: Callable[[], object]) -> bool:
                def act(fd: int, name: str, _at: Segments) -> bool | None:
                    return replace(fd, name, lambda file: copy_all(source, file, check, self._roots.left_free), mode)

                return self.reach(call, dst, WRITE, act)

            if status.st_size <= SHORT_BYTES:
                copied(_go_on)
            else:
                of_thread = self._threads.place(call)
                await self._threads.run_in(of_thread, partial(copied, of_thread.between_pieces))
        finally:
            os.close(source)

    @hostcall("fs-mkdir", audited=lambda path: path)
    def fs_mkdir(self, call: Running, path: str) -> None:
        """Make a folder; one that is there is fine. `not-found` without its parent, `already-exists` for what is no
        folder."""
        self.reach(call, path, WRITE, lambda fd, name, _at: make_folder(fd, name))

    @hostcall("fs-mkdir-all", audited=lambda path: path)
    def fs_mkdir_all(self, call: Running, path: str) -> None:
        """Make a folder and those it lies in; what is there is fine. `already-exists` and `not-directory` for what is no
        folder."""
        self.reach(call, path, WRITE, lambda fd, name, _at: make_folder(fd, name), parents=True)

    @hostcall("fs-unlink", audited=lambda path: path)
    def fs_unlink(self, call: Running, path: str) -> None:
        """Remove a file, or a link itself. `is-directory`; `access` for a link that leads to the host's own files."""
        room = self._roots.place(path).room

        def unlinked(fd: int, name: str, at: Segments) -> bool:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise HostError("is-directory", detail=f"{name!r} is a folder: remove it with fs-remove-dir-all")
            self._roots.protect(room, at, status)
            os.unlink(name, dir_fd=fd)
            return True

        self.reach(call, path, WRITE, unlinked)

    @hostcall("fs-remove-dir-all", audited=lambda path: path)
    async def fs_remove_dir_all(self, call: Running, path: str) -> int:
        """Remove a folder and all in it, links themselves; says how many entries that were, the folder included.
        `not-directory`, also for a link; `access` for a root and for what has the host's own files in it; `too-large` after
        a million entries. Cancelled, it ends before the next entry, and what was removed until then is gone."""
        room = self._roots.place(path).room

        def removed(fd: int, name: str, at: Segments) -> int:
            self.keep(room, at, fd, name)
            return remove_folder(fd, name, of_thread.between_pieces, self._roots.hidden | self._roots.kept)

        of_thread = self._threads.place(call)
        return await self._threads.run_in(of_thread, lambda: self.reach(call, path, WRITE, removed))

    @hostcall("fs-rename", audited=lambda src, dst: f"{src} -> {dst}")
    def fs_rename(self, call: Running, src: str, dst: str) -> None:
        """Move a file, a folder or a link itself within its root; a file that is there is replaced. What may not be read
        is not moved to where it may. `cross-vfs` from root to root; `not-empty`, `is-directory` and `not-directory` for what
        cannot be replaced; `invalid-path` for a folder that is to move into itself; `access` for a root and for what has the
        host's own files in it."""
        room = _one_room(self._roots, src, dst)

        def moved(fd: int, name: str, at: Segments) -> bool:
            self.keep(room, at, fd, name)

            def to(there: int, new: str, new_at: Segments) -> bool:
                self.keep(room, new_at, there, new)
                _keep_secret(call, Place(room, at), Place(room, new_at))
                _renamed(fd, name, there, new)
                return True

            return self.reach(call, dst, WRITE, to)

        self.reach(call, src, WRITE, moved)

    @hostcall("fs-hard-link", audited=lambda src, link_path: f"{src} -> {link_path}")
    def fs_hard_link(self, call: Running, src: str, link_path: str) -> None:
        """Give a file a second name in its root. Needs `fs_write` for both; what may not be read gets no name where it may.
        `cross-vfs` from root to root; `is-directory`; `access` for what is neither file nor folder; `already-exists`."""
        room = _one_room(self._roots, src, link_path)

        def linked(fd: int, name: str, at: Segments) -> bool | None:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return None
            check_file(status, name)

            def to(there: int, new: str, new_at: Segments) -> bool:
                if new == "." or status_of(there, new) is not None:
                    raise HostError("already-exists", detail=f"{new!r} is there already")
                _keep_secret(call, Place(room, at), Place(room, new_at))
                os.link(name, new, src_dir_fd=fd, dst_dir_fd=there, follow_symlinks=False)
                return True

            return self.reach(call, link_path, WRITE, to)

        self.reach(call, src, WRITE, linked)

    async def _run(self, call: Running, size: int, work: Callable[[], object]) -> None:
        if size <= SHORT_BYTES:
            work()
        else:
            await self.aside(call, work)


def _go_on() -> None:
    """What is short is not interrupted."""


def _check_content(content: bytes) -> None:
    if len(content) > FILE_BYTES:
        raise HostError("too-large", detail=f"{len(content)} bytes; at most {FILE_BYTES} are written at once")


def _one_room(roots: Roots, src: str, dst: str) -> Room:
    rooms = roots.place(src).room, roots.place(dst).room
    if rooms[0] != rooms[1]:
        raise HostError("cross-vfs", detail=f"{src!r} and {dst!r} are in different roots: copy it, then remove it")
    return rooms[0]


def _keep_secret(call: Running, src: Place, dst: Place) -> None:
    """What a capsule may only write shall not become readable to it by another name."""
    manifest = call.capsule.manifest
    denial = may_read(manifest, str(src))
    if denial is None:
        return
    below = (str(dst),)  # a folder takes along what is in it, to where a row may cover it
    if may_read(manifest, str(dst)) is None or any(covers(below, row) for row in manifest.capabilities.fs_read):
        raise denied(denial)


def _renamed(fd: int, name: str, there: int, new: str) -> None:
    try:
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=there)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise HostError("invalid-path", detail=f"{name!r} cannot be moved into itself") from error
        raise
