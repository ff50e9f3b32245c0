"""What was loaded before: by it the host knows a capsule's first load and its upgrades."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from astrid_host.stores.database import Database

_COLUMNS = "package, version, wasm_hash, source_id, installed_at, updated_at"


class Installed(NamedTuple):
    """A package as it was loaded last. Times are in seconds since 1970."""

    package: str
    version: str
    wasm_hash: str
    source_id: str
    installed_at: float
    updated_at: float


class InstalledStore:
    """The packages that were loaded with a state folder. All methods raise StoreError when the database fails.

    Args:
        database: where they are kept.
        now: the clock, in seconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    def find(self, package: str) -> Installed | None:
        """A package as it was loaded last, None when it never was."""
        row = self._database.row(f"SELECT {_COLUMNS} FROM installed WHERE package = ?", (package,))
        return None if row is None else Installed(*row)

    def remember(self, package: str, version: str, wasm_hash: str, source_id: str) -> str | None:
        """Note what is loaded now. When that is new, it may wait while another process has the database locked.

        Returns:
            the version that was loaded before, equal or not; None the first time.
        """
        before = self.find(package)
        if before is not None and before[1:4] == (version, wasm_hash, source_id):
            return before.version  # as at most starts: nothing is written
        return self._database.patiently(lambda: self._replace(package, version, wasm_hash, source_id))

    def _replace(self, package: str, version: str, wasm_hash: str, source_id: str) -> str | None:
        now = self._now()
        with self._database.transaction():
            before = self.find(package)
            if before is None:
                self._database.change(
                    f"INSERT INTO installed ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                    (package, version, wasm_hash, source_id, now, now),
                )
                return None
            self._database.change(
                "UPDATE installed SET version = ?, wasm_hash = ?, source_id = ?, updated_at = ? WHERE package = ?",
                (version, wasm_hash, source_id, now, package),
            )
            return before.version

    def all(self) -> list[Installed]:
        """Every package that was ever loaded, sorted by name."""
        return [Installed(*row) for row in self._database.rows(f"SELECT {_COLUMNS} FROM installed ORDER BY package")]
