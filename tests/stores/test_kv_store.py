"""The key-value store beside a plain dict, and its listings at every edge of Unicode."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from astrid_host.stores import Database, KvStore
from astrid_host.stores.kv import after_prefix

# Few characters, so that keys meet; those beside UTF-8's edges, and SQL's own wildcards.
LETTERS = st.sampled_from("ab%_*.\\'[\x01\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
KEYS = st.text(LETTERS, min_size=0, max_size=4)
NAMESPACES = st.sampled_from(["a:capsule:x", "b:capsule:x", "a:capsule:xy"])
VALUES = st.binary(max_size=8)


class StoreAsDict(RuleBasedStateMachine):
    """Whatever is done to the store, it answers as a dict of (namespace, key) would."""

    def __init__(self) -> None:
        super().__init__()
        self.database = Database.in_memory()
        self.store = KvStore(self.database)
        self.model: dict[tuple[str, str], bytes] = {}

    def keys(self, namespace: str, prefix: str) -> list[str]:
        found = [key for space, key in self.model if space == namespace and key.startswith(prefix)]
        return sorted(found, key=lambda key: key.encode())

    @rule(namespace=NAMESPACES, key=KEYS, value=VALUES)
    def set(self, namespace: str, key: str, value: bytes) -> None:
        self.store.set(namespace, key, value)
        self.model[namespace, key] = value

    @rule(namespace=NAMESPACES, key=KEYS)
    def delete(self, namespace: str, key: str) -> None:
        self.store.delete(namespace, key)
        self.model.pop((namespace, key), None)

    @rule(namespace=NAMESPACES, key=KEYS)
    def get(self, namespace: str, key: str) -> None:
        assert self.store.get(namespace, key) == self.model.get((namespace, key))

    @rule(namespace=NAMESPACES, key=KEYS, expected=st.none() | VALUES, new=VALUES)
    def cas(self, namespace: str, key: str, expected: bytes | None, new: bytes) -> None:
        fits = self.model.get((namespace, key)) == expected
        assert self.store.cas(namespace, key, expected, new) is fits
        if fits:
            self.model[namespace, key] = new

    @rule(namespace=NAMESPACES, key=KEYS, new=VALUES)
    def cas_with_the_present_value(self, namespace: str, key: str, new: bytes) -> None:
        assert self.store.cas(namespace, key, self.model.get((namespace, key)), new)
        self.model[namespace, key] = new

    @rule(namespace=NAMESPACES, prefix=KEYS)
    def list_keys(self, namespace: str, prefix: str) -> None:
        assert self.store.list_keys(namespace, prefix) == self.keys(namespace, prefix)
        assert self.store.list_keys(namespace, prefix, 2) == self.keys(namespace, prefix)[:2]

    @rule(namespace=NAMESPACES, prefix=KEYS, cursor=st.none() | KEYS, limit=st.integers(1, 4))
    def page(self, namespace: str, prefix: str, cursor: str | None, limit: int) -> None:
        page = self.store.page(namespace, prefix, cursor, limit)
        left = [k for k in self.keys(namespace, prefix) if cursor is None or k.encode() > cursor.encode()]
        assert page.keys == left[:limit]
        assert page.next_cursor == (left[limit - 1] if len(left) > limit else None)

    @rule(namespace=NAMESPACES, prefix=KEYS)
    def clear_prefix(self, namespace: str, prefix: str) -> None:
        gone = self.keys(namespace, prefix)
        assert self.store.clear_slice(namespace, prefix) == len(gone)
        for key in gone:
            del self.model[namespace, key]

    @invariant()
    def no_namespace_sees_another(self) -> None:
        for namespace in ("a:capsule:x", "b:capsule:x", "a:capsule:xy"):
            assert self.store.list_keys(namespace) == self.keys(namespace, "")

    def teardown(self) -> None:
        self.database.close()


TestStoreAsDict = StoreAsDict.TestCase
TestStoreAsDict.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(KEYS, KEYS)
def test_the_end_of_a_prefix_is_above_all_that_begins_with_it_and_nothing_else(prefix: str, key: str) -> None:
    end = after_prefix(prefix)
    inside = key.encode() >= prefix.encode() and (end is None or key.encode() < end.encode())
    assert inside is key.startswith(prefix)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("", None),
        ("a", "b"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff\U0010ffff", None),
        ("x\ud7ff", "x\ue000"),
        ("\x7f", "\x80"),
        ("\uffff", "\U00010000"),
    ],
)
def test_the_end_of_a_prefix_at_the_edges(prefix: str, end: str | None) -> None:
    assert after_prefix(prefix) == end


def test_pages_in_a_row_give_every_key_once() -> None:
    database = Database.in_memory()
    store = KvStore(database)
    names = [f"session.data.{i:04}" for i in range(1000)]
    for name in reversed(names):
        store.set("n", name, b"")
    store.set("n", "session.meta", b"")
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = store.page("n", "session.data.", cursor, 100)
        found += page.keys
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == names
    database.close()


def test_a_page_reads_only_its_own_keys() -> None:
    """SQLite answers a page by a range of the index, without sorting and without the table."""
    database = Database.in_memory()
    sql = "SELECT key FROM kv WHERE namespace = ? AND key > ? AND key < ? ORDER BY key LIMIT ?"
    plan = " ".join(str(row[3]) for row in database.rows(f"EXPLAIN QUERY PLAN {sql}", ("n", "a", "b", 3)))
    assert "COVERING INDEX" in plan
    assert "namespace=? AND key>? AND key<?" in plan
    assert "TEMP B-TREE" not in plan
    database.close()


def test_of_many_threads_that_compare_and_set_at_once_one_wins() -> None:
    database = Database.in_memory()
    store = KvStore(database)
    for i in range(50):
        wins: list[int] = []
        start = threading.Barrier(4)

        def attempt(number: int, turn: int = i, wins: list[int] = wins, start: threading.Barrier = start) -> None:
            start.wait()
            if store.cas("n", f"k{turn}", None, b"%d" % number):
                wins.append(number)

        threads = [threading.Thread(target=attempt, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert store.get("n", f"k{i}") == b"%d" % wins[0]
    database.close()


def test_a_value_of_ten_mebibytes_comes_back_as_it_was() -> None:
    database = Database.in_memory()
    store = KvStore(database)
    value = bytes(range(256)) * 40960
    store.set("n", "k", value)
    assert store.get("n", "k") == value
    assert store.cas("n", "k", value, b"")
    assert store.get("n", "k") == b""
    database.close()
