"""Where a host's control socket is, and the lock that says that a host runs there.

The lock is a file with the process id of who holds it. It is the lock that counts, not the file or the socket: both may be left
behind by a killed host, and are then used again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path

from astrid_host.errors import AstridError
from astrid_host.sockets import FOLDER, place_of, private_folder

LOCK, SOCKET = "host.pid", "control.sock"
LOOKED_AT_S, LOOK_S = 0.5, 0.005


class AlreadyRunning(AstridError):
    """A host runs with that state folder. `pid` is its process, 0 when it cannot be told."""

    def __init__(self, state: Path, pid: int) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"a host runs with the state folder {state} already ({who}): stop it, or give this one another --state-dir"
        )
        self.pid = pid


def socket_path(state: Path) -> Path:
    """Where the control socket of a host with that state folder is."""
    return place_of(state, SOCKET)


def running_pid(state: Path) -> int | None:
    """The process of the host that runs with that state folder, 0 when it cannot be told; None when none does."""
    try:
        file = _opened(state / FOLDER / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(os.read(file, 32))
    finally:
        os.close(file)
    return None


@contextlib.contextmanager
def locked(state: Path) -> Generator[Path]:
    """Hold the lock of a state folder, which is made when there is none; gives the path for the socket, at which nothing is.

    Raises:
        AlreadyRunning: another process holds it.
        AstridError: the folder cannot be made, or is not this user's alone.
    """
    path = socket_path(state)
    try:
        folder = private_folder(state)
        private_folder(path.parent, itself=True)
        file = _opened(folder / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise AstridError(_fault(state, error)) from error
    try:
        if not _lock(file):
            raise AlreadyRunning(state, _pid_in(os.read(file, 32)))
        try:
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
            path.unlink(missing_ok=True)
        except OSError as error:
            raise AstridError(_fault(state, error)) from error
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _opened(path: Path, how: int) -> int:
    """A regular file, opened without waiting and without following a link.

    Raises:
        OSError: it cannot be, or is something else.
    """
    file = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "what is there has to be a file, so remove it", str(path))
    return file


def _lock(file: int) -> bool:
    """Lock it; False when another host has it. Who only looks whether a host runs has it for a moment."""
    until = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_S)
        else:
            return True


def _fault(state: Path, error: OSError) -> str:
    why = f"cannot make the control socket in {state}: {error.strerror}: {error.filename}"
    if isinstance(error, IsADirectoryError):
        return f"{why}: remove it"
    if error.errno in (errno.EPERM, errno.EINVAL, errno.ELOOP):  # something that is there
        return why
    return f"{why}. Give a folder of yours that can be written, or free the place"


def _pid_in(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
