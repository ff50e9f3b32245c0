"""Where a host's control socket is, and the lock that says that a host runs there.

The lock is a file with the process id of who holds it. It is the lock that counts, not the file or the socket: both may be left
behind by a killed host, and are then used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from astrid_host.errors import AstridError
from astrid_host.sockets import FOLDER, place_of, private_folder

LOCK, SOCKET = "host.pid", "control.sock"


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
        with (state / FOLDER / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _pid_in(file.read(32))
    except OSError:
        return None
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
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise AstridError(f"the control socket cannot be made: {error.filename} {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(state, _pid_in(os.read(file, 32))) from None
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        path.unlink(missing_ok=True)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _pid_in(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
