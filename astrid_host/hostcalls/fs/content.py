"""Files by descriptor and name: opening, reading as a whole, replacing as a whole.

No function here follows a link, opens what is no file, or waits for another process. A file is replaced by a new one under
its name, so readers see the old content or the new, and a failure leaves the old; other names of the old file keep the old
content. What the system refuses is an `OSError`, which a walk turns into a typed error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.status import kind, status_of
from astrid_host.hostcalls.fs.walk import is_link

CONTENT_TAKES = 12 << 20
FILE_BYTES = 10 << 20  # of what is read or written as a whole
COPY_BYTES = 1 << 30
CHUNK = 1 << 20

# Whatever took the file's place meanwhile: never through a link, never waiting, never as a terminal.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FLAGS = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY | os.O_CREAT,
    "append": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "read-write": os.O_RDWR,
}


class Shared(Exception):
    """A file that is to be written has other names."""


def open_file(fd: int, name: str, mode: str, detach: bool = True) -> int | None:
    """Open a file; the caller closes the descriptor.

    A file that is to be written and has other names gets a content of its own first: another name may lie outside of
    every root.

    Args:
        fd: the folder that it is in.
        name: its name.
        mode: an `open-mode`. `write` and `append` create it, `write` empties it.
        detach: False raises `Shared` instead of copying up to 10 MiB.

    Returns:
        the descriptor, or None for a link.

    Raises:
        HostError: `is-directory`; `access` for what is neither file nor folder; `too-large` for a file of more than 10
            MiB that has other names.
        Shared: told at `detach`.
    """
    status = status_of(fd, name)
    if status is not None:
        if is_link(status):
            return None
        check_file(status, name)
        if mode != "read" and status.st_nlink > 1:
            if not detach:
                raise Shared
            _detach(fd, name, status, mode != "write")
    file = os.open(name, _FLAGS[mode] | _SAFE, 0o666, dir_fd=fd)
    try:
        status = os.fstat(file)
        check_file(status, name)
        if mode != "read" and status.st_nlink > 1:
            raise HostError("access", detail=f"{name!r} has just been given another name")
        if mode == "write":
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def check_file(status: os.stat_result, name: str) -> None:
    """Raises:
    HostError: `is-directory`; `access` for what is neither file nor folder.
    """
    if stat.S_ISDIR(status.st_mode):
        raise HostError("is-directory", detail=f"{name!r} is a folder: list it with fs-readdir")
    if not stat.S_ISREG(status.st_mode):
        raise HostError("access", detail=f"{name!r} is a {kind(status)}, not a file")


def check_size(size: int, name: str) -> None:
    """Raises:
    HostError: `too-large` for more than 10 MiB.
    """
    if size > FILE_BYTES:
        detail = f"{name!r} has more than {FILE_BYTES} bytes: a file is read and written as a whole up to there"
        raise HostError("too-large", detail=detail)


def read_all(file: int, size: int, name: str) -> bytes:
    """All that is in an open file.

    Args:
        file: its descriptor.
        size: how much is expected.
        name: for people.

    Raises:
        HostError: `too-large` for more than 10 MiB.
    """
    parts = [os.read(file, size + 1)]
    total = len(parts[0])
    while parts[-1]:  # it may have grown, or be one whose size nobody knows
        check_size(total, name)
        parts.append(os.read(file, 65536))
        total += len(parts[-1])
    return parts[0] if len(parts) <= 2 else b"".join(parts)


def check_room(file: int, size: int, left_free: int) -> None:
    """Whether so many bytes may be added to the disk that an open file is on.

    Args:
        left_free: bytes of the disk that guests leave to everybody else.

    Raises:
        HostError: `quota`: less than that would be left.
    """
    disk = os.fstatvfs(file)
    free = disk.f_bavail * disk.f_frsize
    if size and free - size < left_free:
        detail = f"the disk has {free} bytes left, and guests leave {left_free} free: disk_free in the [host] table of host.toml"
        raise HostError("quota", detail=detail)


def write_all(file: int, content: bytes, left_free: int = 0) -> None:
    """Write all of it at the file's position, or at its end if it was opened so; bounds and errors as `check_room`."""
    check_room(file, len(content), left_free)
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def copy_all(source: int, target: int, check: Callable[[], object], left_free: int = 0) -> None:
    """Copy an open file from its begin.

    Args:
        source: its descriptor.
        target: where to write.
        check: called before each MiB; what it raises ends the copying.

    Raises:
        HostError: `too-large` for more than 1 GiB; `quota` as `check_room`.
    """
    total = 0
    while chunk := os.pread(source, CHUNK, total):
        check()
        total += len(chunk)
        if total > COPY_BYTES:
            raise HostError("too-large", detail=f"at most {COPY_BYTES} bytes are copied")
        write_all(target, chunk, left_free)


def append(fd: int, name: str, content: bytes, detach: bool, left_free: int = 0) -> bool | None:
    """Add to the end of a file. Arguments, None and what is raised: as `open_file` and `check_room`."""
    file = open_file(fd, name, "append", detach)
    if file is None:
        return None
    try:
        write_all(file, content, left_free)
    finally:
        os.close(file)
    return True


def replace(fd: int, name: str, fill: Callable[[int], None], mode: int | None = None) -> bool | None:
    """Put a new file under a name, in place of the file that has it.

    Args:
        fd: the folder that it is in.
        name: its name.
        fill: writes the content to the descriptor that it is given.
        mode: the permission bits; by default those of the replaced file, or of any new file.

    Returns:
        True, or None for a link.

    Raises:
        HostError: `is-directory`; `access` for what is neither file nor folder, or may not be written.
    """
    old = status_of(fd, name)
    if old is not None:
        if is_link(old):
            return None
        check_file(old, name)
        if not os.access(name, os.W_OK, dir_fd=fd, follow_symlinks=False):
            raise HostError("access", detail=f"{name!r} may not be written")
    temporary = f".astrid-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
    file = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=fd)
    try:
        fill(file)
        if old is not None:
            _keep_owner(file, old)
        if old is not None or mode is not None:
            os.fchmod(file, (old.st_mode if mode is None and old is not None else mode or 0) & 0o777)
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        os.unlink(temporary, dir_fd=fd)
        raise
    finally:
        os.close(file)
    return True


def _keep_owner(file: int, old: os.stat_result) -> None:
    new = os.fstat(file)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # who may not give files away owns what it writes
            os.fchown(file, old.st_uid, old.st_gid)


def _detach(fd: int, name: str, status: os.stat_result, keep: bool) -> None:
    """Give a file that has other names a content of its own: the same, or none."""
    if not keep:
        replace(fd, name, lambda file: None)
        return
    check_size(status.st_size, name)
    source = os.open(name, os.O_RDONLY | _SAFE, dir_fd=fd)
    try:
        content = read_all(source, status.st_size, name)
    finally:
        os.close(source)
    replace(fd, name, lambda file: write_all(file, content))
