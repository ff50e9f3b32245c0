"""Writes that another process holds up: they are done in order as soon as it lets go, and end within a bound if it does not."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from astrid_host.errors import StoreError
from astrid_host.stores import Database, InstalledStore, KvStore, Locked, Retries, Stores
from astrid_host.stores.approvals import ApprovalStore, Holder
from astrid_host.stores.audit import AuditStore
from astrid_host.stores.database import FILE

HOLDER = Holder("alice", "/work", "shell", "aa")


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Another connection writes, which is what another process is to SQLite; what is given ends that."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")

        def let_go() -> None:
            if other.in_transaction:
                other.execute("ROLLBACK")

        yield let_go
        let_go()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database.open(tmp_path, wait_s=0)) as database:
        yield database


def fails_until(free: threading.Event, done: list[int], number: int) -> Callable[[], int]:
    def work() -> int:
        if not free.is_set():
            raise Locked("another process keeps it locked")
        done.append(number)
        return number

    return work


def test_what_waits_is_done_in_the_order_in_which_it_came() -> None:
    retries, free, done = Retries(), threading.Event(), list[int]()
    futures = [retries.put(fails_until(free, done, number)) for number in range(20)]
    assert retries.waiting
    assert not any(future.done() for future in futures)
    free.set()
    assert [future.result(1) for future in futures] == done == list(range(20))
    retries.close()
    assert not retries.waiting


def test_whoever_hears_of_the_end_need_not_go_behind_it() -> None:
    retries, free = Retries(), threading.Event()
    found: list[bool] = []
    future = retries.put(fails_until(free, [], 1))
    future.add_done_callback(lambda _: found.append(retries.waiting))
    free.set()
    retries.close()
    assert found == [False]


def test_the_thread_ends_with_the_last_that_waits() -> None:
    retries, free, before = Retries(), threading.Event(), threading.active_count()
    for _ in range(3):
        free.clear()
        future = retries.put(fails_until(free, [], 1))
        assert threading.active_count() == before + 1
        free.set()
        future.result(1)
        retries.close()
        assert threading.active_count() == before


def test_another_error_is_not_tried_again() -> None:
    retries, tries = Retries(), list[int]()

    def full() -> None:
        tries.append(1)
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        retries.put(full).result(1)
    assert len(tries) == 1


def test_a_fault_of_one_does_not_end_the_others() -> None:
    retries, free = Retries(), threading.Event()
    first = retries.put(fails_until(free, [], 1))
    faulty, last = retries.put(lambda: 1 // 0), retries.put(lambda: "done")
    free.set()
    assert first.result(1) == 1
    with pytest.raises(ZeroDivisionError):
        faulty.result(1)
    assert last.result(1) == "done"


def test_what_stays_locked_ends_at_its_bound_and_the_log_names_the_mend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    retries = Retries(bound_s=0.05)
    with closing(Database.open(tmp_path, wait_s=0)) as database, locked(tmp_path):
        store, begun = KvStore(database), time.monotonic()
        futures = [retries.put(lambda: store.set("n", "k", b"v")) for _ in range(3)]
        for future in futures:
            with pytest.raises(StoreError, match=r"another process keeps it locked\. Stop that process") as caught:
                future.result(2)
            assert not isinstance(caught.value, Locked)
        assert 0.05 <= time.monotonic() - begun < 1
    assert caplog.text.count("Stop that process") == 3
    assert "it was tried for 0.05 s" in caplog.text


def test_a_write_that_must_not_wait_says_at_once_that_it_is_locked(tmp_path: Path, database: Database) -> None:
    store, audit = KvStore(database), AuditStore(database)
    store.set("n", "k", b"1")
    with locked(tmp_path):
        begun = time.perf_counter()
        for write in (
            lambda: store.set("n", "k", b"2"),
            lambda: store.delete("n", "k"),
            lambda: store.cas("n", "k", b"1", b"2"),
            lambda: store.clear_slice("n", ""),
            lambda: audit.append("alice", "x", "fs.fs-stat", "a", "ok"),
        ):
            with pytest.raises(Locked, match="another process keeps it locked"):
                write()
        assert time.perf_counter() - begun < 0.5
        assert store.get("n", "k") == b"1"
    assert audit.append("alice", "x", "fs.fs-stat", "a", "ok") == 1


def test_another_process_that_writes_does_not_keep_readers_out(tmp_path: Path, database: Database) -> None:
    store, audit = KvStore(database), AuditStore(database)
    store.set("n", "k", b"1")
    audit.append("alice", "x", "fs.fs-stat", "a", "ok")
    with locked(tmp_path):
        with closing(sqlite3.connect(tmp_path / FILE, timeout=0)) as third, pytest.raises(sqlite3.OperationalError):
            third.execute("BEGIN IMMEDIATE")
        assert store.get("n", "k") == b"1"
        assert store.list_keys("n") == ["k"]
        assert audit.verify()[:2] == (1, [])
        assert ApprovalStore(database).of(HOLDER) == []


def test_a_command_line_waits_on_its_own_thread(tmp_path: Path) -> None:
    with closing(Stores(tmp_path)) as stores, locked(tmp_path) as let_go:
        timer = threading.Timer(0.1, let_go)
        timer.start()
        stores.settings.set("", "x", "k", "v")
        timer.join()
        assert [row.value for row in stores.settings.all()] == ["v"]


def test_a_database_that_is_locked_can_be_opened(tmp_path: Path) -> None:
    Database.open(tmp_path).close()
    with locked(tmp_path), closing(Database.open(tmp_path, wait_s=0)) as database:
        assert KvStore(database).get("n", "k") is None


@pytest.mark.parametrize(
    "write",
    [
        lambda database: ApprovalStore(database).allow(HOLDER, "git", None).id == 1,
        lambda database: InstalledStore(database).remember("x", "1.0.0", "aa", "s") is None,
    ],
)
def test_what_is_kept_for_good_waits_even_where_other_writes_do_not(
    tmp_path: Path, database: Database, write: Callable[[Database], bool]
) -> None:
    """Whoever calls these may wait, or does so on a thread that may."""
    with locked(tmp_path) as let_go:
        timer = threading.Timer(0.1, let_go)
        timer.start()
        assert write(database)
        timer.join()


def test_a_capsule_that_was_loaded_before_is_remembered_without_a_write(tmp_path: Path, database: Database) -> None:
    store = InstalledStore(database)
    store.remember("x", "1.0.0", "aa", "s")
    with locked(tmp_path):
        assert store.remember("x", "1.0.0", "aa", "s") == "1.0.0"


def test_closing_waits_for_what_waits(tmp_path: Path) -> None:
    database = Database.open(tmp_path, wait_s=0)
    store = KvStore(database)
    with locked(tmp_path) as let_go:
        future = database.retries.put(lambda: store.set("n", "k", b"v"))
        timer = threading.Timer(0.05, let_go)
        timer.start()
        database.close()
        timer.join()
    assert future.result(0) is None
    with closing(Database.open(tmp_path)) as again:
        assert KvStore(again).get("n", "k") == b"v"
