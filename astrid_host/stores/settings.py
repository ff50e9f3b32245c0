"""What operators set for capsules: plain values. Secrets are kept by `astrid_host.stores.secrets`.

A value is for one principal, or for everybody, whose name here is empty. All methods raise StoreError when the database
fails.
"""

from __future__ import annotations

from typing import NamedTuple

from astrid_host.stores.database import Database

EVERYBODY = ""
SOCKET_PATH = "ASTRID_SOCKET_PATH"
PREVIOUS_VERSION = "prev_version"
RESERVED = (SOCKET_PATH, PREVIOUS_VERSION)  # keys that only the host itself sets

_SET = (
    "INSERT INTO settings (principal, capsule, key, value) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (principal, capsule, key) DO UPDATE SET value = excluded.value"
)
_UNSET = "DELETE FROM settings WHERE principal = ? AND capsule = ? AND key = ?"


class Setting(NamedTuple):
    """One value."""

    principal: str
    capsule: str
    key: str
    value: str


class SettingsStore:
    """The settings in a database. No guest can reach them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Setting]:
        """Every value, sorted by capsule, key and principal."""
        rows = self._database.rows(
            "SELECT principal, capsule, key, value FROM settings ORDER BY capsule, key, principal"
        )
        return [Setting(*row) for row in rows]

    def set(self, principal: str, capsule: str, key: str, value: str) -> None:
        """Give a key a value, whether it had one or not."""
        self._database.change(_SET, (principal, capsule, key, value), len(value))

    def unset(self, principal: str, capsule: str, key: str) -> bool:
        """Remove a value; returns whether there was one."""
        return self._database.change(_UNSET, (principal, capsule, key)) == 1

    def version(self) -> int:
        """A number that is another one after another process has written to the database."""
        row = self._database.row("PRAGMA data_version")
        return 0 if row is None else int(row[0])
