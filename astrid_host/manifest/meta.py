"""`meta.json`: what was written beside a capsule when it was installed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from astrid_host.errors import LoadError

FILE_BYTES = 1 << 20


class Meta(msgspec.Struct, frozen=True):
    """What counts of a meta.json; other fields are not looked at. `wasm_hash` is BLAKE3, in hexadecimal."""

    version: str | None = None
    wasm_hash: str | None = None


def read_meta(folder: Path) -> Meta | None:
    """The meta.json in a capsule's folder; None when there is none.

    Raises:
        LoadError: it cannot be read.
    """
    path = folder / "meta.json"
    try:
        if path.stat().st_size > FILE_BYTES:
            raise LoadError(f"{path} is larger than {FILE_BYTES} bytes: install the capsule again, or remove the file")
        return msgspec.json.decode(path.read_bytes(), type=Meta)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise LoadError(f"{path} cannot be read: {error}; install the capsule again, or remove the file") from None
