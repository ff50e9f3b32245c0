"""The database: what it opens, what it refuses and leaves alone, and what it says when it fails."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from astrid_host.errors import StoreError
from astrid_host.stores import Database, KvStore
from astrid_host.stores.checkpoints import Checkpoints
from astrid_host.stores.database import FILE, explained
from astrid_host.stores.schema import APPLICATION_ID, STEPS


def test_a_new_state_folder_is_private(tmp_path: Path) -> None:
    """The folder gets mode 0700, the file and what SQLite puts beside it 0600."""
    state = tmp_path / "a" / "state"
    database = Database.open(state)
    KvStore(database).set("n", "k", b"v")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in state.iterdir()} == {0o600}
    database.close()


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    Database.open(tmp_path).close()
    (tmp_path / FILE).chmod(0o644)
    Database.open(tmp_path).close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_it_writes_ahead_and_syncs_at_checkpoints(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    assert database.row("PRAGMA journal_mode") == ("wal",)
    assert database.row("PRAGMA synchronous") == (1,)
    database.close()


def test_what_was_written_is_there_after_it_is_opened_again(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    KvStore(database).set("n", "k", b"v")
    database.close()
    database = Database.open(tmp_path)
    assert KvStore(database).get("n", "k") == b"v"
    database.close()


def test_a_database_in_memory_is_forgotten_at_its_end() -> None:
    database = Database.in_memory()
    KvStore(database).set("n", "k", b"v")
    database.close()
    database = Database.in_memory()
    assert KvStore(database).get("n", "k") is None
    database.close()


@pytest.mark.parametrize("content", [b"not a database, not at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000, b"x"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StoreError, match=r"not a database|damaged"):
        Database.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_damaged_page_is_told_as_damage(tmp_path: Path) -> None:
    """What the header hides comes out when the page is read; the store says what to do then."""
    database = Database.open(tmp_path)
    store = KvStore(database)
    for i in range(500):
        store.set("n", f"k{i}", b"v" * 300)
    database.close()
    raw = bytearray((tmp_path / FILE).read_bytes())
    raw[8192:] = os.urandom(len(raw) - 8192)
    (tmp_path / FILE).write_bytes(raw)
    with pytest.raises(StoreError, match="it is damaged"):
        KvStore(Database.open(tmp_path)).list_keys("n")


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Database.open(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as raw:
        raw.execute("PRAGMA user_version=999")
    raw.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match=r"version 999.*newer astrid-host wrote it\. Upgrade"):
        Database.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as raw:
        raw.execute("CREATE TABLE songs (title TEXT)")
    raw.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Database.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """A host that ended between making the file and filling it leaves one."""
    (tmp_path / FILE).touch()
    database = Database.open(tmp_path)
    assert database.row("PRAGMA user_version") == (len(STEPS),)
    assert database.row("PRAGMA application_id") == (APPLICATION_ID,)
    database.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot keep state in .*file/state.*Give a folder"):
        Database.open(tmp_path / "file" / "state")


def test_a_closed_database_says_that_it_is_closed() -> None:
    database = Database.in_memory()
    database.close()
    database.close()
    store = KvStore(database)
    for use in (lambda: store.get("n", "k"), lambda: store.set("n", "k", b""), lambda: store.list_keys("n")):
        with pytest.raises(StoreError, match="it is closed"):
            use()
    with pytest.raises(StoreError, match="it is closed"), database.transaction():
        raise AssertionError("a closed database has no transactions")


def test_a_transaction_that_raises_changes_nothing() -> None:
    database = Database.in_memory()
    store = KvStore(database)

    def fail() -> None:
        with database.transaction():
            store.set("n", "k", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.get("n", "k") is None
    with database.transaction():
        store.set("n", "k", b"v")
    assert store.get("n", "k") == b"v"
    database.close()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (sqlite3.SQLITE_FULL, "disk is full. Make room"),
        (sqlite3.SQLITE_BUSY, "another process"),
        (sqlite3.SQLITE_IOERR | 1 << 8, "disk failed"),
        (sqlite3.SQLITE_READONLY, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened"),
    ],
)
def test_every_failure_of_the_disk_says_what_to_do(code: int, advice: str) -> None:
    error = sqlite3.OperationalError("sqlite says")
    error.sqlite_errorcode = code
    assert advice in str(explained(error, "/state/astrid.sqlite3"))
    assert "/state/astrid.sqlite3" in str(explained(error, "/state/astrid.sqlite3"))


def test_two_hosts_may_open_a_new_folder_at_the_same_moment(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def open_it() -> None:
        start.wait()
        try:
            Database.open(tmp_path).close()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_transaction_of_one_thread_is_not_mixed_with_writes_of_another() -> None:
    database = Database.in_memory()
    store = KvStore(database)
    store.set("n", "count", b"0")

    def add() -> None:
        for _ in range(200):
            with database.transaction():
                store.set("n", "count", b"%d" % (int(store.get("n", "count") or b"") + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("n", "count") == b"800"
    database.close()


KILLED = """
import sys
from pathlib import Path
from astrid_host.stores import Database, KvStore
store = KvStore(Database.open(Path(sys.argv[1])))
for i in range(1_000_000):
    store.set("n", f"{i:07}", b"v" * 200)
    print(i, flush=True)
"""


def test_every_write_that_returned_survives_a_killed_process(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 2500:  # past two checkpoints
            break
    process.send_signal(signal.SIGKILL)
    told = [int(line) for line in process.stdout.read().splitlines() if line]
    process.stdout.close()
    process.wait()
    database = Database.open(tmp_path)
    assert len(KvStore(database).list_keys("n")) >= max(told, default=2500) + 1
    database.close()


def test_checkpoints_keep_the_log_short(tmp_path: Path) -> None:
    """Once a checkpoint has taken all pages back, the log begins anew."""
    database = Database.open(tmp_path)
    store = KvStore(database)
    lengths = []
    for i in range(5):
        checkpoints = Checkpoints(tmp_path / FILE, every=100)
        for j in range(200):
            store.set("n", f"k{j % 10}", b"%d" % (i * 200 + j))
        checkpoints.wrote(200)
        checkpoints.close()
        lengths.append((tmp_path / f"{FILE}-wal").stat().st_size)
    assert max(lengths) == lengths[0]
    assert store.get("n", "k9") == b"999"
    database.close()


def test_a_closed_database_leaves_no_thread_and_no_log(tmp_path: Path) -> None:
    def checkpointing() -> int:
        return sum(thread.name == "astrid-checkpoints" for thread in threading.enumerate())

    before = checkpointing()
    database = Database.open(tmp_path)
    store = KvStore(database)
    for i in range(1500):
        store.set("n", "k", b"%d" % i)
    assert checkpointing() == before + 1
    database.close()
    assert checkpointing() == before
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
