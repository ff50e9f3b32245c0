"""Open files: fs-open and the methods of `file-handle`.

A handle is a descriptor; what may be done with it was decided when it was opened. It is closed when the guest drops it or
its instance ends, also in the middle of an operation, which then goes on with a descriptor of its own.
(Astrid, fs: file-handle.)
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.content import CONTENT_TAKES, Shared, check_room, open_file
from astrid_host.hostcalls.fs.gated import READ, READ_WRITE, SHORT_BYTES, WRITE, Gated, Rights
from astrid_host.hostcalls.fs.status import FileStat, file_stat
from astrid_host.hostcalls.interface import hostcall
from astrid_host.hostcalls.paths import refused
from astrid_host.scheduler import Call

HANDLES = 64  # of one instance
DESCRIPTORS = 1024  # of all instances, and at most half of what the process may open
TRANSFER_BYTES = 1 << 20  # of one read-at or write-at
LARGEST_OFFSET = (1 << 63) - 1

Done = TypeVar("Done")

_RIGHTS: dict[str, Rights] = {"read": READ, "write": WRITE, "append": WRITE, "read-write": READ_WRITE}


class Descriptors:
    """How many files guests hold open."""

    def __init__(self) -> None:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = DESCRIPTORS if soft == resource.RLIM_INFINITY else min(DESCRIPTORS, soft // 2)
        self._count = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        """One more. Raises HostError `quota`."""
        with self._lock:
            if self._count >= self.most:
                raise HostError("quota", detail=f"guests hold {self.most} files open, and the host allows no more")
            self._count += 1

    def give_back(self) -> None:
        with self._lock:
            self._count -= 1


class FileHandle:
    """What the handle of a `file-handle` holds.

    Args:
        fd: an open file, which is closed with it.
        path: as the guest named it.
        mode: an `open-mode`.
        closed: called when it is closed.
    """

    __slots__ = ("_closed", "_fd", "_lock", "mode", "path")

    def __init__(self, fd: int, path: str, mode: str, closed: Callable[[], None]) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = closed
        self.path = path
        self.mode = mode

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd != -1:
                os.close(fd)
        if fd != -1:
            self._closed()

    def __del__(self) -> None:
        self.close()

    def duplicate(self) -> int:
        """A descriptor of the same open file, which the caller closes. No later close takes it away.

        Raises:
            HostError: `closed`.
        """
        with self._lock:
            if self._fd == -1:
                raise HostError("closed", detail=f"the handle of {self.path!r} is closed")
            return os.dup(self._fd)

    def work(self, does: str, run: Callable[[int], Done]) -> Done:
        """Do something with the file, on a duplicate of its descriptor. From any thread.

        Args:
            does: `read`, `write`, or an empty text for what every mode allows.
            run: given the descriptor.

        Raises:
            HostError: `closed`, `access` for what the file was not opened for, and what the system refuses.
        """
        if (does == "read" and self.mode in ("write", "append")) or (does == "write" and self.mode == "read"):
            raise HostError("access", detail=f"{self.path!r} was opened in the mode {self.mode}, not to {does}")
        fd = self.duplicate()
        try:
            return run(fd)
        except OSError as error:
            raise refused(error) from error
        finally:
            os.close(fd)


class Handles(Gated):
    """fs-open, and what is done with an open file. The methods raise `closed` for a handle that has ended."""

    _descriptors: Descriptors

    @hostcall("fs-open", audited=lambda path, mode: f"{path} ({mode})")
    async def fs_open(self, call: Call, path: str, mode: str) -> FileHandle:
        """Open a file. `read` needs `fs_read`, `write` and `append` need `fs_write`, `read-write` both. `write` and
        `append` create a file, `write` empties it. A file that has other names gets a content of its own before it is
        written to. `is-directory`; `access` for what is neither file nor folder; `quota` for more than 64 handles in one
        instance, or too many in all. Cancelled, it leaves nothing open."""
        instance = call.instance
        assert instance is not None, "a host function runs inside a call"
        if instance.handles.count(FileHandle) >= HANDLES:
            raise HostError("quota", detail=f"{HANDLES} files are open already: drop some")

        def opened(detach: bool) -> int:
            return self.reach(call, path, _RIGHTS[mode], lambda fd, name, _at: open_file(fd, name, mode, detach))

        self._descriptors.take()
        try:
            try:
                fd = opened(False)
            except Shared:
                fd = await self.aside(call, lambda: opened(True))
        except BaseException:
            self._descriptors.give_back()
            raise
        return FileHandle(fd, path, mode, self._descriptors.give_back)

    @hostcall("[method]file-handle.read-at", audited=lambda handle, offset, max_bytes: handle.path)
    def read_at(self, _call: Call, handle: FileHandle, offset: int, max_bytes: int) -> bytes:
        """Up to `max_bytes` from an offset, and up to 1 MiB; empty at the end. `access` if it was opened only to be
        written."""
        most = min(max_bytes, TRANSFER_BYTES)
        if offset > LARGEST_OFFSET - most:
            return handle.work("read", lambda _fd: b"")
        return handle.work("read", lambda fd: os.pread(fd, most, offset))

    @hostcall("[method]file-handle.write-at", takes=CONTENT_TAKES, audited=lambda handle, offset, data: handle.path)
    async def write_at(self, call: Call, handle: FileHandle, offset: int, data: bytes) -> int:
        """Write at an offset, or at the end if it was opened to append; says how many bytes were written. `too-large` for
        more than 1 MiB, or beyond what a file can have; `access` if it was opened only to be read. Cancelled, it ends when
        all is written."""
        if len(data) > TRANSFER_BYTES or offset > LARGEST_OFFSET - len(data):
            detail = (
                f"{len(data)} bytes at {offset}: at most {TRANSFER_BYTES} are written at once, up to {LARGEST_OFFSET}"
            )
            raise HostError("too-large", detail=detail)
        write = partial(handle.work, "write", lambda fd: self._pwrite(fd, data, offset))
        return write() if len(data) <= SHORT_BYTES else await self.aside(call, write)

    def _pwrite(self, fd: int, data: bytes, offset: int) -> int:
        check_room(fd, len(data), self._roots.left_free)
        return os.pwrite(fd, data, offset)

    @hostcall("[method]file-handle.sync-data", audited=lambda handle: handle.path)
    async def sync_data(self, call: Call, handle: FileHandle) -> None:
        """Bring the content to the disk. Cancelled, it is left to end by itself."""
        await self.aside(call, lambda: handle.work("", getattr(os, "fdatasync", os.fsync)), abandon=True)

    @hostcall("[method]file-handle.sync-all", audited=lambda handle: handle.path)
    async def sync_all(self, call: Call, handle: FileHandle) -> None:
        """Bring content and metadata to the disk. Cancelled, it is left to end by itself."""
        await self.aside(call, lambda: handle.work("", os.fsync), abandon=True)

    @hostcall("[method]file-handle.stat", audited=lambda handle: handle.path)
    def stat(self, _call: Call, handle: FileHandle) -> FileStat:
        """What the open file is."""
        return handle.work("", lambda fd: file_stat(os.fstat(fd)))

    @hostcall("[method]file-handle.set-len", audited=lambda handle, size: handle.path)
    def set_len(self, _call: Call, handle: FileHandle, size: int) -> None:
        """Cut the file, or extend it with zeros. `too-large` for more than a file can have; `access` if it was opened
        only to be read."""
        if size > LARGEST_OFFSET:
            raise HostError("too-large", detail=f"a file has at most {LARGEST_OFFSET} bytes")
        handle.work("write", lambda fd: os.ftruncate(fd, size))
