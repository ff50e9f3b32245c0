"""The audit: rows are chained, what is tampered with is found and named, and a row costs the same after any number of others."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import StoreError
from astrid_host.stores.audit import FIRST, NAME_CHARACTERS, TARGET_CHARACTERS, AuditStore, Head
from astrid_host.stores.database import FILE, Database, Parameters


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database.open(tmp_path)) as database:
        yield database


@pytest.fixture
def audit(database: Database) -> AuditStore:
    return AuditStore(database)


def fill(audit: AuditStore, rows: int = 5) -> None:
    for number in range(1, rows + 1):
        audit.append("alice", "fs-tools", "fs.fs-open", f"cwd://{number}", "ok")


def tamper(folder: Path, *statements: str) -> None:
    """Write to the file as somebody would who wants to hide something."""
    with closing(sqlite3.connect(folder / FILE)) as raw, raw:
        for trigger in ("audit_is_never_changed", "audit_is_never_cut"):
            raw.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            raw.execute(statement)


def test_a_row_says_who_called_what_on_what_and_how_it_ended(database: Database) -> None:
    audit = AuditStore(database, now=lambda: 1_700_000_000_250_000_000)
    assert audit.append("alice", "fs-tools", "fs.fs-open", "cwd://a", "not-found") == 1
    assert audit.append("bob", "shell", "process.spawn", "ls", "ok") == 2
    assert list(audit.rows()) == [
        (1, 1_700_000_000.25, "alice", "fs-tools", "fs.fs-open", "cwd://a", "not-found"),
        (2, 1_700_000_000.25, "bob", "shell", "process.spawn", "ls", "ok"),
    ]


def test_an_empty_chain_is_whole(audit: AuditStore) -> None:
    assert audit.verify() == (0, [], (0, FIRST), 0, 0)


def test_a_chain_goes_on_when_the_database_is_opened_again(tmp_path: Path) -> None:
    for _ in range(3):
        with closing(Database.open(tmp_path)) as database:
            fill(AuditStore(database), 2)
    with closing(Database.open(tmp_path)) as database:
        found = AuditStore(database).verify()
    assert (found.rows, found.faults, found.head.seq) == (6, [], 6)


def test_two_processes_append_to_one_chain(tmp_path: Path) -> None:
    with closing(Database.open(tmp_path)) as one, closing(Database.open(tmp_path)) as other:
        stores = AuditStore(one), AuditStore(other)
        for number in range(30):
            stores[number % 3 % 2].append("alice", "x", "fs.fs-stat", str(number), "ok")
        assert [row.target for row in stores[0].rows()] == [str(number) for number in range(30)]
        assert stores[1].verify().faults == []


def test_many_threads_append_to_one_chain(audit: AuditStore) -> None:
    threads = [threading.Thread(target=fill, args=(audit, 100)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = audit.verify()
    assert (found.rows, found.faults) == (800, [])


def test_the_table_only_grows(audit: AuditStore, database: Database) -> None:
    fill(audit)
    for statement in ("UPDATE audit SET target = 'x'", "DELETE FROM audit WHERE seq = 5"):
        with pytest.raises(StoreError, match="the audit only grows"):
            database.change(statement)
    assert audit.verify().rows == 5


def test_texts_are_cut_and_say_how_long_they_were(audit: AuditStore) -> None:
    audit.append("p" * 1000, "c" * 1000, "f" * 1000, "t" * 5000, "v" * 1000)
    audit.append("p", "c", "f", "t" * TARGET_CHARACTERS, "v")
    cut, whole = audit.rows()
    assert cut.principal == "p" * NAME_CHARACTERS + "… (1000 characters)"
    assert cut.target == "t" * TARGET_CHARACTERS + "… (5000 characters)"
    assert whole.target == "t" * TARGET_CHARACTERS
    assert audit.verify().faults == []


@pytest.mark.parametrize("target", ["", "a\nb\x1b[31m", "nul\0nul", "ü字\U0001f600", "half \ud800"])
def test_any_text_is_kept(audit: AuditStore, target: str) -> None:
    audit.append("alice", "x", "fs.fs-stat", target, "ok")
    (row,) = audit.rows()
    assert row.target == target.encode("utf-8", "backslashreplace").decode()
    assert audit.verify().faults == []


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.text(max_size=2000), st.text()), max_size=8))
def test_every_chain_verifies_and_every_row_is_read_as_it_was_written(
    rows: list[tuple[str, str, str, str, str]],
) -> None:
    with closing(Database.in_memory()) as database:
        audit = AuditStore(database)
        for row in rows:
            audit.append(*row)
        found = audit.verify()
        assert (found.rows, found.faults, found.head.seq) == (len(rows), [], len(rows))
        for row, read in zip(rows, audit.rows(), strict=True):
            assert all(text == kept or kept.startswith(text[:200]) for text, kept in zip(row, read[2:], strict=True))


@given(st.data())
def test_every_change_of_a_row_is_found(data: st.DataObject) -> None:
    with closing(Database.in_memory()) as database:
        audit = AuditStore(database)
        fill(audit, 6)
        for trigger in ("audit_is_never_changed", "audit_is_never_cut"):
            database.change(f"DROP TRIGGER {trigger}")
        seq = data.draw(st.integers(1, 6))
        column = data.draw(st.sampled_from(("time", "principal", "capsule", "target", "verdict", "previous", "hash")))
        before = database.row(f"SELECT {column} FROM audit WHERE seq = ?", (seq,))
        value = data.draw(st.one_of(st.text(), st.binary(max_size=40), st.integers(-(1 << 63), (1 << 63) - 1)))
        database.change(f"UPDATE audit SET {column} = ? WHERE seq = ?", (value, seq))
        if database.row(f"SELECT {column} FROM audit WHERE seq = ?", (seq,)) != before:
            assert {fault.seq for fault in audit.verify().faults} & {seq, seq + 1}


@pytest.mark.parametrize(
    ("statements", "faults"),
    [
        (["UPDATE audit SET target = 'cwd://innocent' WHERE seq = 3"], [("changed", 3)]),
        (["UPDATE audit SET verdict = 'ok', time = 'x' WHERE seq = 3"], [("changed", 3)]),
        (["UPDATE audit SET target = CAST(x'ff' AS TEXT) WHERE seq = 3"], [("changed", 3)]),
        (["UPDATE audit SET hash = 1 WHERE seq = 3"], [("changed", 3), ("unchained", 4)]),
        (["DELETE FROM audit WHERE seq = 1"], [("missing", 1)]),
        (["DELETE FROM audit WHERE seq IN (2, 3)"], [("missing", 2)]),
        (["DELETE FROM audit WHERE seq > 3"], [("cut", 4)]),
        (["DELETE FROM audit"], [("cut", 1)]),
        (
            [
                "UPDATE audit SET seq = -seq",
                "UPDATE audit SET seq = 5 + seq WHERE seq > -5",
                "DELETE FROM audit WHERE seq < 1",
            ],
            [(kind, row) for row in (1, 2, 3, 4) for kind in ("unchained", "changed")] + [("cut", 5)],
        ),
        (
            [
                "UPDATE audit SET seq = 9 WHERE seq = 2",
                "UPDATE audit SET seq = 2 WHERE seq = 3",
                "UPDATE audit SET seq = 3 WHERE seq = 9",
            ],
            [("unchained", 2), ("changed", 2), ("unchained", 3), ("changed", 3), ("unchained", 4)],
        ),
        (
            [
                "UPDATE audit SET seq = 6 WHERE seq = 5",
                "INSERT INTO audit SELECT 5, time, principal, capsule, function, 'forged', verdict, previous, hash "
                "FROM audit WHERE seq = 6",
            ],
            [("changed", 5), ("unchained", 6), ("changed", 6)],
        ),
        (
            [
                "INSERT INTO audit SELECT 0, time, principal, capsule, function, target, verdict, previous, hash "
                "FROM audit LIMIT 1"
            ],
            [("unchained", 0)],
        ),
    ],
)
def test_what_was_tampered_with_is_named(
    tmp_path: Path, audit: AuditStore, statements: list[str], faults: list[tuple[str, int]]
) -> None:
    fill(audit)
    tamper(tmp_path, *statements)
    found = audit.verify().faults
    assert [(fault.kind, fault.seq) for fault in found] == faults
    assert all(str(fault.seq) in fault.text for fault in found)


def test_a_tail_that_was_cut_stays_known_when_the_host_goes_on(tmp_path: Path, audit: AuditStore) -> None:
    fill(audit)
    tamper(tmp_path, "DELETE FROM audit WHERE seq > 3")
    with closing(Database.open(tmp_path)) as again:
        fill(AuditStore(again), 4)
    found = audit.verify()
    assert [(fault.kind, fault.text) for fault in found.faults] == [("missing", "rows 4 to 5 are missing")]
    assert found.head.seq == 9


def test_a_chain_that_was_computed_anew_is_found_by_a_head_that_was_kept(tmp_path: Path, database: Database) -> None:
    fill(AuditStore(database))
    kept = AuditStore(database).verify().head
    fill(AuditStore(database), 2)
    assert AuditStore(database).verify(kept).faults == []
    tamper(tmp_path, "DELETE FROM audit", "DELETE FROM sqlite_sequence WHERE name = 'audit'")
    assert AuditStore(database).verify().faults == [], "an empty audit whose counter is gone looks like a new one"
    assert [fault.kind for fault in AuditStore(database).verify(kept).faults] == ["cut"]
    fill(AuditStore(database), 9)
    assert [(fault.kind, fault.seq) for fault in AuditStore(database).verify(kept).faults] == [("rewritten", 5)]


def test_only_so_many_faults_are_named(tmp_path: Path, audit: AuditStore) -> None:
    fill(audit, 300)
    tamper(tmp_path, "UPDATE audit SET target = 'x'")
    assert len(audit.verify().faults) == 100


@pytest.mark.parametrize("text", ["", "1", "1:", ":" + "0" * 64, "x:" + "0" * 64, "1:" + "0" * 63, "²:" + "0" * 64])
def test_a_head_is_a_number_and_a_hash(text: str) -> None:
    with pytest.raises(ValueError):
        Head.parse(text)


def test_a_head_is_read_as_it_is_written() -> None:
    head = Head(17, bytes(range(32)))
    assert Head.parse(str(head)) == head


@pytest.mark.parametrize(
    ("filters", "targets"),
    [
        ({}, ["0", "1", "2", "3", "4", "5"]),
        ({"principal": "alice"}, ["0", "2", "4"]),
        ({"capsule": "b"}, ["1", "4"]),
        ({"principal": "alice", "capsule": "b"}, ["4"]),
        ({"principal": "nobody"}, []),
        ({"principal": "nobody", "limit": 2}, []),
        ({"since": 3.0}, ["3", "4", "5"]),
        ({"since": 3.5}, ["4", "5"]),
        ({"limit": 2}, ["4", "5"]),
        ({"limit": 2, "principal": "alice"}, ["2", "4"]),
        ({"limit": 99}, ["0", "1", "2", "3", "4", "5"]),
    ],
)
def test_rows_are_chosen(database: Database, filters: dict[str, object], targets: list[str]) -> None:
    clock = iter(range(0, 10**12, 10**9))
    audit = AuditStore(database, now=lambda: next(clock))
    for number in range(6):
        audit.append(("alice", "bob")[number % 2], "abc"[number % 3], "fs.fs-stat", str(number), "ok")
    rows: Callable[..., Iterator[object]] = audit.rows
    assert [row.target for row in rows(**filters)] == targets  # type: ignore[attr-defined]


def test_more_rows_than_a_page_are_read(audit: AuditStore, database: Database) -> None:
    with database.transaction():  # for speed only
        fill(audit, 2500)
    assert sum(1 for _ in audit.rows()) == 2500
    assert sum(1 for _ in audit.rows(limit=1700)) == 1700
    assert audit.verify()[:2] == (2500, [])


class Growing(Database):
    """Each page that is read finds more rows behind it."""

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[object, ...]]:
        fill(AuditStore(self), 1000)
        return super().rows(sql, parameters)


@pytest.mark.parametrize("end", [0, 1, 1500])
def test_reading_ends_with_the_row_that_was_last_when_it_began(tmp_path: Path, end: int) -> None:
    with closing(Growing.open(tmp_path)) as database:
        audit = AuditStore(database)
        with database.transaction():
            fill(audit, end)
        found = audit.verify()
        assert (found.rows, found.faults, found.head.seq) == (end, [], end)
        before = AuditStore(database).append("alice", "x", "fs.fs-stat", "a", "ok")
        assert sum(1 for _ in audit.rows()) == before
        assert sum(1 for _ in audit.rows(limit=1)) == 1


def test_a_row_costs_as_much_after_ten_thousand_as_at_first(tmp_path: Path) -> None:
    """The best of rounds, so that another process of this machine does not decide: what grows with history shows in each."""
    with closing(Database.open(tmp_path)) as database:
        audit = AuditStore(database)

        def took(rows: int) -> float:
            begun = time.perf_counter()
            fill(audit, rows)
            return time.perf_counter() - begun

        fill(audit, 10)
        first = min(took(50) for _ in range(5))
        with database.transaction():
            fill(audit, 10_000)
        last = min(took(50) for _ in range(5))
    assert last <= 1.5 * first
