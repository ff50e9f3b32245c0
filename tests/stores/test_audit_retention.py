"""An audit that is longer than its bound lets its oldest rows go, and what is left is proved from a sealed checkpoint on."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from astrid_host.errors import StoreError
from astrid_host.stores import Database, Stores
from astrid_host.stores.audit import AuditStore, Head
from astrid_host.stores.retention import KEY_BYTES, ROW_BYTES, seal_key

KEY = bytes(range(KEY_BYTES))
MOST = 1 << 20


def audit(database: Database, key: bytes | None = KEY, most: int | None = MOST) -> AuditStore:
    return AuditStore(database, key=key, most=most)


def fill(store: AuditStore, rows: int, target: str = "x" * 500) -> None:
    for _ in range(rows):
        store.append("alice", "notes", "fs.read-file", target, "ok")


def count(database: Database, table: str = "audit") -> int:
    row = database.row(f"SELECT count(*) FROM {table}")
    return 0 if row is None else int(row[0])


def test_it_stays_within_its_bound_and_is_proved_from_the_checkpoint_on() -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 20_000)
        size = 500 + len("alicenotesfs.read-fileok") + ROW_BYTES
        assert count(database) * size < 1.7 * MOST
        found = store.verify()
        assert found.faults == []
        assert found.rows + found.let_go == 20_000 == found.head.seq
        assert found.let_go == found.let_go_to
        assert [row.seq for row in store.rows(limit=1)] == [20_000]


def test_one_within_its_bound_lets_nothing_go() -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 1_200)
        assert store.verify()[:2] == (1_200, [])
        assert count(database, "audit_checkpoints") == 0


def test_rows_of_an_older_host_are_let_go_as_well() -> None:
    with closing(Database.in_memory()) as database:
        fill(audit(database, most=None), 10_000)
        fill(audit(database), 5_000)
        assert count(database) < 6_000
        assert audit(database).verify().faults == []


def test_no_row_goes_but_behind_a_checkpoint() -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 6_000)
        end = store.verify().let_go_to
        for sql in (
            f"DELETE FROM audit WHERE seq = {end + 1}",
            "DELETE FROM audit_checkpoints",
            "UPDATE audit_checkpoints SET seq = seq + 1",
        ):
            with pytest.raises(StoreError, match="grow"):
                database.change(sql)


@pytest.mark.parametrize("forgery", ["a later checkpoint", "a changed hash", "another key", "no key", "one removed"])
def test_a_forged_checkpoint_is_found(forgery: str) -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 9_000)
        key: bytes | None = KEY
        for name in ("changed", "cut"):
            database.change(f"DROP TRIGGER audit_checkpoints_are_never_{name}")
        if forgery == "a later checkpoint":
            last = store.verify().head.seq - 10
            database.change(
                "INSERT INTO audit_checkpoints (seq, hash, rows, time, before, seal) SELECT seq, hash, seq, 0, "
                "(SELECT seal FROM audit_checkpoints ORDER BY id DESC LIMIT 1), randomblob(32) FROM audit WHERE seq = ?",
                (last,),
            )
            database.change("DELETE FROM audit WHERE seq <= ?", (last,))
        elif forgery == "a changed hash":
            database.change("UPDATE audit_checkpoints SET hash = randomblob(32)")
        elif forgery == "one removed":
            assert count(database, "audit_checkpoints") > 1
            database.change("DELETE FROM audit_checkpoints WHERE id = 1")
        else:
            key = bytes(KEY_BYTES) if forgery == "another key" else None
        assert "unsealed" in {fault.kind for fault in audit(database, key).verify().faults}


def test_a_changed_row_behind_the_checkpoint_is_found() -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 6_000)
        first = store.verify().let_go_to + 1
        database.change("DROP TRIGGER audit_is_never_changed")
        database.change("UPDATE audit SET target = 'y' WHERE seq = ?", (first,))
        assert {fault.kind for fault in store.verify().faults} == {"changed"}


def test_a_head_that_was_let_go_is_no_fault_and_a_wrong_one_that_is_there_is() -> None:
    with closing(Database.in_memory()) as database:
        store = audit(database)
        fill(store, 100)
        old = store.verify().head
        fill(store, 6_000)
        assert store.verify(old).faults == []
        end = store.verify()
        assert store.verify(end.head).faults == []
        wrong = store.verify(Head(end.head.seq, bytes(32))).faults
        assert {fault.kind for fault in wrong} == {"rewritten"}
        at = store.verify(Head(end.let_go_to, bytes(32))).faults
        assert {fault.kind for fault in at} == {"rewritten"}


def test_a_store_that_was_opened_again_goes_on_with_the_same_key(tmp_path: Path) -> None:
    for _ in range(3):
        with closing(Stores(tmp_path, audit_bytes=MOST)) as stores:
            fill(stores.audit, 3_000)
            assert stores.audit.verify().faults == []
    key = seal_key(tmp_path, make=False)
    assert key is not None
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600
    with closing(Database.open(tmp_path)) as database:
        assert count(database) < 5_000
        assert audit(database, key).verify().head.seq == 9_000


def test_the_command_says_what_was_let_go(tmp_path: Path) -> None:
    with closing(Stores(tmp_path, audit_bytes=MOST)) as stores:
        fill(stores.audit, 6_000)
    command = [sys.executable, "-m", "astrid_host.cli", "audit", "--verify", "--state-dir", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "the chain is whole" in said.stdout
    assert "were let go behind a checkpoint" in said.stdout
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, timeout=60, check=True).stdout)
    assert found["let_go"] == found["let_go_to"] == 6_000 - found["rows"]
    (tmp_path / "audit.key").unlink()
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1


def test_a_damaged_key_is_told(tmp_path: Path) -> None:
    Stores(tmp_path, audit_bytes=MOST).close()
    (tmp_path / "audit.key").write_bytes(b"short")
    with pytest.raises(StoreError, match="must have 32: restore a copy"):
        Stores(tmp_path, audit_bytes=MOST)
