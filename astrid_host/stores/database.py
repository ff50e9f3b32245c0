"""The SQLite database of one host: one connection behind a lock, for short operations from any thread.

Only one process writes at a time. What finds the database locked by another one either waits, as command lines do, or raises
`Locked` at once, as a host needs it, whose threads run guests: it has nothing done then, and goes to the database's
`Retries`. Readers are never locked out: beside a writer, the log lets them read what was committed before.

It writes ahead to a log (`journal_mode=WAL`) and syncs it only at checkpoints (`synchronous=NORMAL`): what was
committed survives the end of the process, however it ends, and a commit costs microseconds. Checkpoints, which wait for
the disk, run on a thread of their own. A file that is no database, is damaged, belongs to another program or was
written by a newer astrid-host is refused and left as it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from astrid_host.errors import StoreError
from astrid_host.stores.checkpoints import Checkpoints
from astrid_host.stores.retries import BOUND_S, Locked, Retries
from astrid_host.stores.schema import APPLICATION_ID, STEPS

FILE = "astrid.sqlite3"
BUSY_S = BOUND_S
PAGE_BYTES = 4096
LEAST_BYTES = 512  # the smallest page: SQLite takes a shorter file for an empty one, and would write over it
LOG_BYTES = (
    64 << 20
)  # a log that grows this long, because writes never pause, is taken back by the commit that finds it so

Parameters: TypeAlias = tuple[str | bytes | int | float | None, ...]
Row: TypeAlias = tuple[Any, ...]
Answer = TypeVar("Answer")


class Database:
    """An open database, made by `Database.open` or `Database.in_memory`. Any thread may use it.

    Every method raises StoreError when SQLite fails: damaged, full or closed; Locked when another process has it locked.

    Attributes:
        name: what messages call it.
        retries: where writes go that are not to wait here.
    """

    def __init__(
        self, connection: sqlite3.Connection, name: str, checkpoints: Checkpoints | None, waits: bool = False
    ) -> None:
        self._connection = connection
        self._waits = waits
        self._lock = threading.RLock()
        self._checkpoints = checkpoints
        self.name = name
        self.retries = Retries()

    @classmethod
    def open(cls, state_dir: Path, wait_s: float = BUSY_S) -> Database:
        """The database of a state folder; folder (mode 0700) and file (mode 0600) are created when missing.

        Args:
            state_dir: the folder.
            wait_s: for how many seconds a write waits, on its thread, while another process has the database locked. To open it
                may wait in any case.

        Raises:
            StoreError: the folder cannot be made, or the file in it is not a database that this version can use.
        """
        path = state_dir / FILE
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            size = _make_private(path)
        except OSError as error:
            raise StoreError(
                f"cannot keep state in {state_dir}: {error.strerror or error}. "
                "Give a folder of yours that can be written, or free the place"
            ) from error
        if 0 < size < LEAST_BYTES:
            raise StoreError(f"{path}: {_ADVICE[sqlite3.SQLITE_NOTADB]} (it has {size} bytes)")
        return cls._prepared(str(path), str(path), lambda: Checkpoints(path), wait_s)

    @classmethod
    def in_memory(cls) -> Database:
        """A database that lives as long as it is open. No other process can lock it."""
        return cls._prepared(":memory:", "the database in memory", lambda: None, 0)

    @classmethod
    def _prepared(
        cls, target: str, name: str, checkpoints: Callable[[], Checkpoints | None], wait_s: float
    ) -> Database:
        try:
            connection = sqlite3.connect(target, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise explained(error, name) from error
        try:
            _version(connection, name)
            _write_ahead(connection)
            _take_steps(connection, name)
            connection.execute(f"PRAGMA busy_timeout={int(wait_s * 1000)}")
        except sqlite3.Error as error:
            connection.close()
            raise explained(error, name) from error
        except StoreError:
            connection.close()
            raise
        return cls(connection, name, checkpoints(), wait_s > 0)

    def row(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, None without one."""
        try:
            with self._lock:
                row: Row | None = self._connection.execute(sql, parameters).fetchone()
        except sqlite3.Error as error:
            raise explained(error, self.name) from error
        return row

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        try:
            with self._lock:
                return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise explained(error, self.name) from error

    def change(self, sql: str, parameters: Parameters = (), size: int = 0) -> int:
        """Run one statement that writes; it is committed when this returns, unless a transaction is open.

        Args:
            sql: the statement.
            parameters: what stands for its question marks.
            size: about how many bytes it writes beyond one page.

        Returns:
            how many rows it changed.
        """
        try:
            with self._lock:
                count = self._connection.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            raise explained(error, self.name) from error
        if self._checkpoints is not None:
            self._checkpoints.wrote(1 + size // PAGE_BYTES)
        return count

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that this thread does within happens together, or, when it raises, not at all. Other threads wait."""
        with self._lock:
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite may have rolled back by itself
                    self._run("ROLLBACK")
                raise

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Do a write, and wait on this thread, for 5 s at most, while another process has the database locked.

        Args:
            work: called again after each Locked; it must have done nothing then.

        Returns:
            What it returned.

        Raises:
            StoreError: it failed, or the database was locked for all that time; and what else `work` raises.
        """
        try:
            return work()
        except Locked:
            if self._waits:
                raise
        return self.retries.put(work).result()

    def _run(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except sqlite3.Error as error:
            raise explained(error, self.name) from error

    def close(self) -> None:
        """Close it, once no write waits in its `retries`; whatever uses it afterwards gets a StoreError. A second time does
        nothing."""
        self.retries.close()
        if self._checkpoints is not None:
            self._checkpoints.close()
        with self._lock:
            self._connection.close()


def _make_private(path: Path) -> int:
    """Make the file, or take others' rights to it away; returns its size."""
    try:
        # Only for a new file: to close a descriptor of an open database would drop this process's locks on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    return path.stat().st_size


_STAMP = (
    "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
    "FROM pragma_application_id, pragma_user_version"
)


def _version(connection: sqlite3.Connection, name: str) -> int:
    """How many steps it has taken; raises StoreError when it is not ours, or newer."""
    # One statement, because another process may be making this very database.
    application, version, tables = connection.execute(_STAMP).fetchone()
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{name} is a database of another program. Give another state folder, or move the file away")
    if version > len(STEPS):
        raise StoreError(
            f"{name} has schema version {version}, and this astrid-host knows versions up to {len(STEPS)}: "
            "a newer astrid-host wrote it. Upgrade astrid-host, or give another state folder"
        )
    return int(version)


def _write_ahead(connection: sqlite3.Connection) -> None:
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # SQLite answers at once, without waiting, when two processes open a new file at the same moment.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={LOG_BYTES // PAGE_BYTES}")
    connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")


def _take_steps(connection: sqlite3.Connection, name: str) -> None:
    if _version(connection, name) == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[_version(connection, name) :]:  # another process may have taken them meanwhile
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={len(STEPS)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


_ADVICE = {
    sqlite3.SQLITE_NOTADB: "it is not a database. Move it away, or restore a copy; nothing in it was changed",
    sqlite3.SQLITE_CORRUPT: "it is damaged. Restore a copy, or save what `sqlite3 FILE .recover` can read",
    sqlite3.SQLITE_BUSY: "another process keeps it locked. Stop that process (`fuser FILE` names it), or try again",
    sqlite3.SQLITE_LOCKED: "another thread keeps it locked. Try again",
    sqlite3.SQLITE_FULL: "the disk is full. Make room",
    sqlite3.SQLITE_READONLY: "it cannot be written. Give its owner the right to, folder included",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Look at its rights, and at those of its folder",
    sqlite3.SQLITE_IOERR: "the disk failed. Look at the system's log",
}


def explained(error: sqlite3.Error, name: str) -> StoreError:
    """What SQLite said, as an error that says what to do."""
    code = getattr(error, "sqlite_errorcode", None)  # errors of the Python module itself have none
    if code is None and "closed database" in str(error):
        return StoreError(f"{name}: it is closed. Use it before the host ends")
    kind = code & 0xFF if code is not None else sqlite3.SQLITE_OK
    advice = _ADVICE.get(kind)
    make = Locked if kind == sqlite3.SQLITE_BUSY else StoreError
    return make(f"{name}: {advice} ({error})" if advice else f"{name}: {error}")
