"""Where a host's Unix sockets are: in a folder below its state folder that only its user may enter."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from pathlib import Path

FOLDER = "run"
PATH_BYTES = 107  # what a Unix socket's address has room for


def place_of(state: Path, name: str) -> Path:
    """Where the socket of that name is, for a host with that state folder.

    Where its path is too long for a socket, it is in a folder of this user's alone elsewhere, by the hash of the path.
    """
    path = (state / FOLDER / name).absolute()
    if len(os.fsencode(path)) <= PATH_BYTES:
        return path
    digest = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=12).hexdigest()
    return Path(tempfile.gettempdir()) / f"astrid-host-{os.geteuid()}" / f"{digest}.sock"


def private_folder(place: Path, itself: bool = False) -> Path:
    """Make the folder for sockets below a state folder, or, with `itself`, that folder, so that only this user may enter it.

    Raises:
        OSError: it cannot be made; something else is there, or it is another user's.
    """
    folder = place if itself else place / FOLDER
    if not itself:
        place.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(
            errno.EPERM, "what is there has to be a folder of this user's own, so remove it", str(folder)
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder
