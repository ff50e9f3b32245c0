"""What the operator trusts: a capsule's folder, under one package name, with exactly the bytes that were looked at.

A record belongs to the state folder, and so to its user. Any change of the manifest, the module or the meta.json makes another
digest, which the record does not cover. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from astrid_host.stores.database import Database

_COLUMNS = "folder, package, digest, wasm_hash, asks, trusted_at"


class AskedFor(msgspec.Struct, frozen=True):
    """One thing that was asked for when the operator consented: what kind, in plain words, and the manifest's row."""

    kind: str
    tells: str
    row: str


class TrustRecord(msgspec.Struct, frozen=True):
    """What the operator consented to.

    Attributes:
        folder: the capsule's, absolute and without links.
        package: its name.
        digest: of all that the host reads there, BLAKE3 in hexadecimal.
        wasm_hash: of its module.
        asks: what it asked for.
        trusted_at: when, in seconds since 1970.
    """

    folder: Path
    package: str
    digest: str
    wasm_hash: str
    asks: tuple[AskedFor, ...]
    trusted_at: float


class TrustStore:
    """The records of a database.

    Args:
        database: where they are kept.
        now: the clock, in seconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    def find(self, folder: Path, package: str) -> TrustRecord | None:
        """The record of a folder under that name."""
        sql = f"SELECT {_COLUMNS} FROM trusted WHERE folder = ? AND package = ?"
        row = self._database.row(sql, (os.fsencode(folder), package))
        return None if row is None else _record(row)

    def keep(self, folder: Path, package: str, digest: str, wasm_hash: str, asks: tuple[AskedFor, ...]) -> None:
        """Record consent, in place of an earlier one. It may wait while another process has the database locked."""
        values = (os.fsencode(folder), package, digest, wasm_hash, msgspec.json.encode(asks), self._now())
        sql = f"INSERT OR REPLACE INTO trusted ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        self._database.patiently(lambda: self._database.change(sql, values))

    def revoke(self, folder: Path) -> int:
        """Forget what was recorded of a folder; returns how many records there were."""
        sql = "DELETE FROM trusted WHERE folder = ?"
        return self._database.patiently(lambda: self._database.change(sql, (os.fsencode(folder),)))

    def all(self) -> list[TrustRecord]:
        """Every record, by folder."""
        return [_record(row) for row in self._database.rows(f"SELECT {_COLUMNS} FROM trusted ORDER BY folder, package")]


def _record(row: tuple[bytes, str, str, str, bytes, float]) -> TrustRecord:
    folder, package, digest, wasm_hash, asks, when = row
    read = msgspec.json.decode(asks, type=tuple[AskedFor, ...])
    return TrustRecord(Path(os.fsdecode(folder)), package, digest, wasm_hash, read, when)
