"""Keys and values in namespaces: what guests keep.

Keys are text and sort by their UTF-8 bytes. A namespace never sees another one's keys. Every write is committed when
its method returns. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from astrid_host.stores.database import Database

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


class KvStore:
    """The key-value store in a database."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, namespace: str, key: str) -> bytes | None:
        """A key's value, None for a key that is not there."""
        row = self._database.row(_GET, (namespace, key))
        return None if row is None else row[0]

    def set(self, namespace: str, key: str, value: bytes) -> None:
        """Give a key a value, whether it had one or not."""
        self._database.change(_SET, (namespace, key, value), len(value))

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; one that is not there is no error."""
        self._database.change(_DELETE, (namespace, key))

    def cas(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> bool:
        """Give a key a value if its value is `expected` (None: if it is not there), as one step.

        Returns:
            whether it was so; False leaves everything as it was.
        """
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

    def clear_prefix(self, namespace: str, prefix: str) -> int:
        """Remove the keys that begin with `prefix`, as one step; returns how many they were."""
        where, parameters = _within(namespace, prefix, None)
        return self._database.change(f"DELETE FROM kv WHERE {where}", parameters)

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
