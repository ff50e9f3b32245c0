"""Reading the large files of a capsule: plain files only, within a bound that is looked at before anything is read.

A pipe, a device, or a file that grows while it is read is refused, and never waited for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from astrid_host.errors import LoadError

MODULE_BYTES = 256 << 20
CHUNK = 1 << 20


def read_module(path: Path) -> bytes:
    """All of a file of at most 256 MiB.

    Raises:
        LoadError: it cannot be read, is no plain file, or is larger.
    """
    return b"".join(_pieces(path))


def hash_of_module(path: Path) -> str:
    """The BLAKE3 of such a file, in hexadecimal. Raises as `read_module`."""
    digest = blake3()
    for piece in _pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    left = MODULE_BYTES
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LoadError(f"{path} is no plain file: a capsule's module is one")
            if status.st_size > MODULE_BYTES:
                raise LoadError(f"{path} has {status.st_size} bytes: a module has at most {MODULE_BYTES}")
            while piece := file.read(CHUNK):
                left -= len(piece)
                if left < 0:
                    raise LoadError(f"{path} grew while it was read: a module has at most {MODULE_BYTES} bytes")
                yield piece
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror or error}; build the capsule first") from None
