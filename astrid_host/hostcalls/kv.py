"""astrid:kv: what a capsule keeps for each principal.

There is no gate: every capsule has a namespace of its own for every principal, `<principal>:capsule:<storage id>`, and
reaches no other. What it keeps there, and what all keep, has a quota. Functions are plain, but for the one that removes many
keys, which works in slices, on a thread. Each write is committed when it returns. While another process has the database locked,
whoever writes sleeps (see `astrid_host.hostcalls.auditing`, which tries again what was locked); readers are not disturbed.
"""

from __future__ import annotations

from functools import partial

from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.interface import Interface, Running, hostcall
from astrid_host.hostcalls.threads import Threads
from astrid_host.stores import Full, KeyPage, KvStore

KEY_BYTES = 256
VALUE_BYTES = 10 << 20
VALUE_TAKES = 12 << 20
KEYS = 1024  # of one answer


def _key(key: str, *_: object) -> str:
    return key


class Kv(Interface):
    """The host functions of astrid:kv.

    Args:
        store: where keys and values are.
        threads: where what takes long is done.

    Each raises HostError `invalid-key` for a key or prefix with a NUL or of more than 256 bytes, and for an empty key;
    `unknown` when the store fails, or was locked by another process for 5 s: nothing was written then. What writes raises `quota`
    when the capsule would keep more for the principal than the operator allows, or all capsules together would.
    """

    wit = ("astrid:kv/host@1.0.0",)

    def __init__(self, store: KvStore, threads: Threads | None = None) -> None:
        self._store = store
        self._threads = threads or Threads()

    @hostcall("kv-get", audited=_key)
    def kv_get(self, call: Running, key: str) -> bytes | None:
        """A key's value, None for a key that is not there."""
        _check_key(key)
        try:
            return self._store.get(_namespace(call), key)
        except StoreError as error:
            raise _failed(error) from error

    @hostcall("kv-set", takes=VALUE_TAKES, suspends=True, audited=_key)
    def kv_set(self, call: Running, key: str, value: bytes) -> None:
        """Give a key a value. `too-large` for more than 10 MiB."""
        _check_key(key)
        _check_value(value)
        try:
            self._store.set(_namespace(call), key, value)
        except StoreError as error:
            raise _failed(error) from error

    @hostcall("kv-delete", suspends=True, audited=_key)
    def kv_delete(self, call: Running, key: str) -> None:
        """Remove a key; one that is not there is no error."""
        _check_key(key)
        try:
            self._store.delete(_namespace(call), key)
        except StoreError as error:
            raise _failed(error) from error

    @hostcall("kv-list-keys", audited=_key)
    def kv_list_keys(self, call: Running, prefix: str) -> list[str]:
        """The full keys that begin with `prefix`, sorted. `too-large` for more than 1,024 of them."""
        _check_text(prefix)
        try:
            keys = self._store.list_keys(_namespace(call), prefix, KEYS + 1)
        except StoreError as error:
            raise _failed(error) from error
        if len(keys) > KEYS:
            detail = f"more than {KEYS} keys begin with {prefix!r}: list them in pages, with kv-list-keys-page"
            raise HostError("too-large", detail=detail)
        return keys

    @hostcall("kv-list-keys-page", audited=_key)
    def kv_list_keys_page(self, call: Running, prefix: str, cursor: str | None, limit: int) -> KeyPage:
        """A page of the keys that begin with `prefix`, sorted, after the key `cursor`; `limit` 0 or above 1,024 is
        1,024."""
        _check_text(prefix)
        if cursor is not None:
            _check_text(cursor)
        try:
            return self._store.page(_namespace(call), prefix, cursor, limit if 0 < limit <= KEYS else KEYS)
        except StoreError as error:
            raise _failed(error) from error

    @hostcall("kv-clear-prefix", audited=_key)
    async def kv_clear_prefix(self, call: Running, prefix: str) -> int:
        """Remove the keys that begin with `prefix`; returns how many they were. Keys that are made meanwhile go too, or stay.
        Cancelled, what was removed until then is gone."""
        _check_text(prefix)
        namespace, removed = _namespace(call), 0
        try:
            while count := await self._threads.run(call, partial(self._clear_slice, namespace, prefix)):
                removed += count
        except StoreError as error:
            raise _failed(error) from error
        return removed

    def _clear_slice(self, namespace: str, prefix: str) -> int:
        return self._store.patiently(lambda: self._store.clear_slice(namespace, prefix))

    @hostcall("kv-cas", takes=2 * VALUE_TAKES, suspends=True, audited=_key)
    def kv_cas(self, call: Running, key: str, expected: bytes | None, new: bytes) -> None:
        """Give a key a value if it has the value `expected` (None: if it has none). Otherwise `cas-mismatch`;
        `too-large` for more than 10 MiB."""
        _check_key(key)
        _check_value(new)
        try:
            done = self._store.cas(_namespace(call), key, expected, new)
        except StoreError as error:
            raise _failed(error) from error
        if not done:
            raise HostError("cas-mismatch", detail=f"the value of {key!r} is not the expected one")


def _namespace(call: Running) -> str:
    return f"{call.principal}:capsule:{call.capsule.storage_id}"


def _check_text(text: str) -> None:
    if "\0" in text:
        raise HostError("invalid-key", detail=f"a key has no NUL characters; this one begins {text[:64]!r}")
    if len(text) > KEY_BYTES or len(text.encode()) > KEY_BYTES:
        raise HostError("invalid-key", detail=f"a key has at most {KEY_BYTES} bytes; this one begins {text[:64]!r}")


def _check_key(key: str) -> None:
    if not key:
        raise HostError("invalid-key", detail="a key has at least one character")
    _check_text(key)


def _check_value(value: bytes) -> None:
    if len(value) > VALUE_BYTES:
        raise HostError("too-large", detail=f"a value has at most {VALUE_BYTES} bytes; this one has {len(value)}")


def _failed(error: StoreError) -> HostError:
    if isinstance(error, Full):
        return HostError("quota", detail=str(error))
    # Where on the host its database lies is not the guest's to know.
    return HostError("unknown", "the key-value store failed", detail=str(error))
