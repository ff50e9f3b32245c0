"""Settings: what operators set for capsules, for one principal or for everybody."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from astrid_host.stores import Database, KvStore
from astrid_host.stores.settings import EVERYBODY, SettingsStore


def test_a_value_is_for_one_principal_or_for_everybody() -> None:
    with closing(Database.in_memory()) as database:
        store = SettingsStore(database)
        store.set(EVERYBODY, "x", "base_url", "http://a")
        store.set("alice", "x", "base_url", "http://b")
        store.set("alice", "a", "k", "")
        store.set("alice", "x", "base_url", "http://c")
        assert store.all() == [
            ("alice", "a", "k", ""),
            (EVERYBODY, "x", "base_url", "http://a"),
            ("alice", "x", "base_url", "http://c"),
        ]
        assert store.unset("alice", "x", "base_url")
        assert not store.unset("alice", "x", "base_url")
        assert [row.principal for row in store.all()] == ["alice", EVERYBODY]


def test_what_another_process_writes_is_noticed_and_what_this_one_writes_is_not(tmp_path: Path) -> None:
    with closing(Database.open(tmp_path)) as one, closing(Database.open(tmp_path)) as other:
        store = SettingsStore(one)
        before = store.version()
        store.set(EVERYBODY, "x", "k", "1")
        assert store.version() == before
        SettingsStore(other).set(EVERYBODY, "x", "k", "2")
        assert store.version() != before
        assert [row.value for row in store.all()] == ["2"]


def test_no_key_of_a_guest_is_a_setting() -> None:
    with closing(Database.in_memory()) as database:
        KvStore(database).set("alice:capsule:x", "base_url", b"http://evil")
        assert SettingsStore(database).all() == []
