"""Keys and values in namespaces: what guests keep.

Keys are text and sort by their UTF-8 bytes. A namespace never sees another one's keys. Every write is committed when
its method returns. A namespace, and all of them together, have a quota in bytes: a write above it is `Full`, and nothing was
written. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from astrid_host.errors import StoreError
from astrid_host.stores.database import Database
from astrid_host.stores.schema import ROW_BYTES

_GET = "SELECT value FROM kv WHERE namespace = ? AND key = ?"
_SET = (
    "INSERT INTO kv (namespace, key, value) VALUES (?, ?, ?) "
    "ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value"
)
_CREATE = "INSERT INTO kv (namespace, key, value) VALUES (?, ?, ?) ON CONFLICT (namespace, key) DO NOTHING"
_REPLACE = "UPDATE kv SET value = ? WHERE namespace = ? AND key = ? AND value = ?"
_DELETE = "DELETE FROM kv WHERE namespace = ? AND key = ?"
_FROM = "namespace = ? AND key >= ?"
_AFTER = "namespace = ? AND key > ?"
_BELOW = " AND key < ?"


class KeyPage(NamedTuple):
    """One page of keys; `next_cursor` is the last of them when there are more."""

    keys: list[str]
    next_cursor: str | None


_USED = (
    "SELECT (SELECT bytes FROM kv_usage WHERE namespace = ?), (SELECT bytes FROM kv_usage WHERE namespace = ''), "
    "(SELECT length(value) FROM kv WHERE namespace = ? AND key = ?)"
)
SLICE_ROWS, SLICE_BYTES = 256, 1 << 20  # removed in one go, and at least one row
ROOM_BYTES = 64 << 10  # how much a namespace may write before it is measured again
NAMESPACES = 10_000  # whose room is remembered


class Full(StoreError):
    """A write would have gone beyond a quota. Nothing was written."""


class KvStore:
    """The key-value store in a database.

    Args:
        database: where it is.
        quota: bytes of one namespace, keys and values.
        quota_of_all: the same for all of them.
    """

    __slots__ = ("_database", "_quota", "_quota_of_all", "_room")

    def __init__(self, database: Database, quota: int = 1 << 62, quota_of_all: int = 1 << 62) -> None:
        self._database = database
        self._quota = quota
        self._quota_of_all = quota_of_all
        self._room: dict[str, int] = {}  # what each namespace may write before it is measured again

    def get(self, namespace: str, key: str) -> bytes | None:
        """A key's value, None for a key that is not there."""
        row = self._database.row(_GET, (namespace, key))
        return None if row is None else row[0]

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """Give a key a value, whether it had one or not. Raises Full."""
        self._admit(namespace, key, len(value))
        self._database.change(_SET, (namespace, key, value), len(value))

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; one that is not there is no error."""
        self._database.change(_DELETE, (namespace, key))

    def cas(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """Give a key a value if its value is `expected` (None: if it is not there), as one step.

        Returns:
            whether it was so; False leaves everything as it was.

        Raises:
            Full: it would go beyond a quota.
        """
        self._admit(namespace, key, len(new))
        if expected is None:
            return self._database.change(_CREATE, (namespace, key, new), len(new)) == 1
        return self._database.change(_REPLACE, (new, namespace, key, expected), len(new)) == 1

    def list_keys(self, namespace: str, prefix: str = "", limit: int = -1) -> list[str]:
        """The full keys that begin with `prefix`, sorted: the first `limit` of them, or all."""
        where, parameters = _within(namespace, prefix, None)
        return self._keys(where, parameters, limit)

    def page(self, namespace: str, prefix: str, cursor: str | None, limit: int) -> KeyPage:
        """A page of the keys that begin with `prefix`, sorted. It costs the same wherever in the listing it lies.

        Args:
            namespace: whose keys.
            prefix: what they begin with.
            cursor: the key after which the page begins, there or not; None for the first page.
            limit: how many keys at most; at least 1.
        """
        where, parameters = _within(namespace, prefix, cursor)
        keys = self._keys(where, parameters, limit + 1)
        if len(keys) <= limit:
            return KeyPage(keys, None)
        keys.pop()
        return KeyPage(keys, keys[-1])

    def clear_slice(self, namespace: str, prefix: str) -> int:
        """Remove some of the keys that begin with `prefix`, as one step: as many as take no time that anybody would notice.
        Returns how many they were; 0 when none was left."""
        where, parameters = _within(namespace, prefix, None)
        found = self._database.rows(
            f"SELECT rowid, length(value) FROM kv WHERE {where} ORDER BY key LIMIT {SLICE_ROWS}", parameters
        )
        chosen, size = list[int](), 0
        for rowid, length in found:
            if chosen and size + length > SLICE_BYTES:
                break
            chosen.append(rowid)
            size += length
        if not chosen:
            return 0
        marks = ", ".join("?" * len(chosen))
        return self._database.change(f"DELETE FROM kv WHERE rowid IN ({marks})", tuple(chosen), size)

    def patiently(self, work: Callable[[], int]) -> int:
        """Do a write on a thread that may wait while another process has the database locked; see `Database.patiently`."""
        return self._database.patiently(work)

    def _admit(self, namespace: str, key: str, size: int) -> None:
        """See that a write keeps the quotas. Most writes only count; the database is asked once in 64 KiB."""
        left = self._room.get(namespace, 0) - size - len(key) * 4 - ROW_BYTES
        if left < 0:
            left = self._measured(namespace, key, size)
        if len(self._room) > NAMESPACES:
            self._room.clear()
        self._room[namespace] = left

    def _measured(self, namespace: str, key: str, size: int) -> int:
        """What a namespace may write beyond this before it is measured again. Raises Full."""
        own, all_, before = self._database.row(_USED, (namespace, namespace, key)) or (None, None, None)
        cost = size - before if before is not None else size + len(key.encode()) + ROW_BYTES
        left = (self._quota - (own or 0) - cost, self._quota_of_all - (all_ or 0) - cost)
        if cost > 0 and min(left) < 0:
            if left[0] < 0:
                raise Full(
                    f"it keeps {own or 0} bytes and may keep {self._quota} ([host] kv in host.toml): remove some"
                )
            raise Full(
                f"all capsules keep {all_} bytes, and may keep {self._quota_of_all} ([host] kv_of_all in host.toml)"
            )
        return max(0, min(*left, ROOM_BYTES))

    def _keys(self, where: str, parameters: tuple[str, ...], limit: int) -> list[str]:
        sql = f"SELECT key FROM kv WHERE {where} ORDER BY key LIMIT ?"
        return [key for (key,) in self._database.rows(sql, (*parameters, limit))]


def _within(namespace: str, prefix: str, cursor: str | None) -> tuple[str, tuple[str, ...]]:
    first, parameters = (_FROM, (namespace, prefix))
    if cursor is not None and cursor >= prefix:
        first, parameters = (_AFTER, (namespace, cursor))
    end = after_prefix(prefix)
    return (first, parameters) if end is None else (first + _BELOW, (*parameters, end))


def after_prefix(prefix: str) -> str | None:
    """The smallest text that sorts after everything that begins with `prefix`; None when nothing does.

    Python compares text by code points, which is the order of UTF-8's bytes.
    """
    kept = prefix.rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    last = ord(kept[-1]) + 1
    if 0xD800 <= last <= 0xDFFF:  # no characters: UTF-8 has no bytes for them
        last = 0xE000
    return kept[:-1] + chr(last)
