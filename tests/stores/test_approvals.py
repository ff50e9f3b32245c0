"""What people allowed for good: kept, listed, revoked; one holder's rows are no other's."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from astrid_host.errors import StoreError
from astrid_host.stores import Database
from astrid_host.stores.approvals import Allowed, ApprovalStore, Holder

ALICE = Holder("alice", "/work", "shell", "aa")


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database.in_memory()
    yield database
    database.close()


def test_what_is_allowed_is_kept_in_order(database: Database) -> None:
    store = ApprovalStore(database, lambda: 7.5)
    assert store.of(ALICE) == []
    row = store.allow(ALICE, "git status", None)
    assert row == Allowed(row.id, "alice", "/work", "shell", "aa", "git status", None, 7.5)
    store.allow(ALICE, "write", "cwd://a")
    assert store.of(ALICE) == [("git status", None), ("write", "cwd://a")]
    assert [kept.action for kept in store.all()] == ["git status", "write"]


def test_what_is_allowed_twice_is_kept_once(database: Database) -> None:
    store = ApprovalStore(database)
    for resource in (None, "x"):
        first = store.allow(ALICE, "a", resource)
        assert store.allow(ALICE, "a", resource) == first
    assert len(store.all()) == 2


@pytest.mark.parametrize(
    "other",
    [
        ALICE._replace(principal="bob"),
        ALICE._replace(workspace="/work/a"),
        ALICE._replace(capsule="other"),
        ALICE._replace(wasm_hash="bb"),
    ],
)
def test_no_other_holder_has_it(database: Database, other: Holder) -> None:
    store = ApprovalStore(database)
    store.allow(ALICE, "a", None)
    assert store.of(other) == []
    store.allow(other, "b", None)
    assert (store.of(ALICE), store.of(other)) == ([("a", None)], [("b", None)])


def test_what_is_revoked_is_gone_and_its_number_is_never_given_again(database: Database) -> None:
    store = ApprovalStore(database)
    first = store.allow(ALICE, "a", None)
    assert store.revoke(first.id)
    assert store.of(ALICE) == []
    assert not store.revoke(first.id)
    assert store.allow(ALICE, "a", None).id > first.id


def test_it_is_there_after_the_host_starts_again(tmp_path: Path) -> None:
    for number in range(3):
        database = Database.open(tmp_path)
        store = ApprovalStore(database)
        assert len(store.of(ALICE)) == number
        store.allow(ALICE, f"action {number}", None)
        database.close()


def test_what_another_process_revokes_ends_at_once(tmp_path: Path) -> None:
    here, there = Database.open(tmp_path), Database.open(tmp_path)
    row = ApprovalStore(here).allow(ALICE, "a", None)
    assert ApprovalStore(there).of(ALICE) == [("a", None)]
    assert ApprovalStore(there).revoke(row.id)
    assert ApprovalStore(here).of(ALICE) == []
    here.close()
    there.close()


def test_many_threads_that_allow_the_same_make_one_row(database: Database) -> None:
    store = ApprovalStore(database)
    found: list[Allowed] = []
    threads = [threading.Thread(target=lambda: found.append(store.allow(ALICE, "a", None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == set(store.all())
    assert len(store.all()) == 1


WRITER = """
import sys
from pathlib import Path
from astrid_host.stores.approvals import ApprovalStore, Holder
from astrid_host.stores.database import Database
store = ApprovalStore(Database.open(Path(sys.argv[1])))
for number in range(1_000_000):
    print(store.allow(Holder("alice", "/work", "shell", sys.argv[2]), f"action {number}", None).id, flush=True)
"""


def test_what_was_acknowledged_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for run in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, str(run)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        acknowledged += [int(process.stdout.readline()) for _ in range(20 + run * 30)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    database = Database.open(tmp_path)
    kept = {row.id for row in ApprovalStore(database).all()}
    database.close()
    assert kept.issuperset(acknowledged)
    assert len(kept) - len(acknowledged) <= 3  # written, and killed before it was said


def test_a_closed_database_is_a_typed_error() -> None:
    database = Database.in_memory()
    store = ApprovalStore(database)
    database.close()
    for use in (lambda: store.of(ALICE), store.all, lambda: store.revoke(1), lambda: store.allow(ALICE, "a", None)):
        with pytest.raises(StoreError):
            use()
