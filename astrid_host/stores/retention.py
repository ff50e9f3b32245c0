"""The audit's end at the front: its oldest rows are let go when it is longer than its bound, and the chain stays provable.

Before rows go, a checkpoint says which row was the last of them, with its hash, how many have gone in all, and when: sealed by
an HMAC with a key of the state folder, over the checkpoint before it. The next row follows that hash, so a verification begins
there, and whoever cuts rows off without the key is found. Nothing goes but behind a checkpoint; the database refuses it.

It works by small steps, a few for each row that is appended, so no append takes long and it keeps up with any number of them.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import StoreError
from astrid_host.stores.database import Database

log = logging.getLogger(__name__)

KEY_FILE, KEY_BYTES = "audit.key", 32
STEP_ROWS = 64  # appended between two steps
SEGMENT_ROWS, GONE_ROWS = 500, 192  # of one step: several times what was appended meanwhile
KEPT_SHARE = 0.9  # of the bound, when something was let go
ROW_BYTES = 160  # of a row beside its texts
_SIZE = "length(principal) + length(capsule) + length(function) + length(target) + length(verdict) + " + str(ROW_BYTES)
_SEGMENT = (
    f"SELECT max(seq), sum(size), count(*) FROM "
    f"(SELECT seq, {_SIZE} AS size FROM audit WHERE seq > ? ORDER BY seq LIMIT {SEGMENT_ROWS})"
)
_NUMBERS = struct.Struct("<qqq")
_CHECKPOINTS = "SELECT seq, hash, rows, time, before, seal FROM audit_checkpoints ORDER BY id"


class Checkpoint(NamedTuple):
    """Rows that were let go: the last of them, how many in all by then, when (microseconds since 1970), and the seals."""

    seq: int
    hash: bytes
    rows: int
    time: int
    before: bytes
    seal: bytes

    def sealed(self, key: bytes) -> bytes:
        """The seal that it has to have."""
        numbers = _NUMBERS.pack(self.seq, self.rows, self.time)
        return hmac.new(key, numbers + self.hash + self.before, hashlib.sha256).digest()


def seal_key(state_dir: Path, *, make: bool) -> bytes | None:
    """The key of a state folder's seals; None when there is none and none is to be made.

    Raises:
        StoreError: it cannot be read or made.
    """
    path = state_dir / KEY_FILE
    try:
        if make and not path.exists():
            part = path.with_suffix(f".{os.getpid()}.part")
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(part, path)  # of two hosts that begin, one is first
            except FileExistsError:
                pass  # the other was
            finally:
                part.unlink()
        key = path.read_bytes() if path.exists() else None
    except OSError as error:
        raise StoreError(f"the audit's key {path} cannot be used: {error.strerror or error}") from error
    if key is not None and len(key) != KEY_BYTES:
        raise StoreError(f"the audit's key {path} has {len(key)} bytes and must have {KEY_BYTES}: restore a copy of it")
    return key


def checkpoints(database: Database) -> list[Checkpoint]:
    """All checkpoints, the oldest first."""
    return [Checkpoint(*row) for row in database.rows(_CHECKPOINTS)]


class Retention:
    """Lets the oldest rows of an audit go. Its caller sees that one thread at a time is here.

    Args:
        database: where the audit is.
        most: bytes that it may have.
        key: of the seals.
        now: the clock, in nanoseconds since 1970.
    """

    def __init__(self, database: Database, most: int, key: bytes, now: Callable[[], int]) -> None:
        self._database = database
        self._most = most
        self._key = key
        self._now = now
        self._appended = 0
        self._behind = False  # rows that were let go are still there
        self._total: int | None = None
        self._segmented = 0

    def appended(self, seq: int) -> None:
        """A row was written. What goes wrong here is a log line: the row is there, and the next step tries again."""
        self._appended += 1
        if self._appended % STEP_ROWS:
            return
        try:
            self._step(seq)
        except StoreError as error:
            log.warning("the audit's oldest rows are not let go now, and the next row tries again: %s", error)

    def _step(self, last: int) -> None:
        if self._total is None:
            found = self._database.row("SELECT sum(bytes), max(last) FROM audit_segments")
            total, segmented = found or (None, None)
            gone = self._database.row("SELECT max(seq) FROM audit_checkpoints")
            self._total, self._segmented = total or 0, max(segmented or 0, (gone[0] if gone else 0) or 0)
            self._behind = True
        if last - self._segmented >= SEGMENT_ROWS:
            self._measure()
        if self._total > self._most:
            self._let_go()
        if self._behind:
            self._remove()

    def _measure(self) -> None:
        assert self._total is not None, "it was read"
        end, size, count = self._database.row(_SEGMENT, (self._segmented,)) or (None, None, 0)
        if end is None or count < SEGMENT_ROWS:
            return
        self._database.change("INSERT OR IGNORE INTO audit_segments VALUES (?, ?)", (end, size))
        self._segmented, self._total = end, self._total + size

    def _let_go(self) -> None:
        """Write the checkpoint behind which the oldest segments may go."""
        assert self._total is not None, "it was read"
        left, gone = self._total, 0
        for last, size in self._database.rows("SELECT last, bytes FROM audit_segments ORDER BY last"):
            if left <= self._most * KEPT_SHARE or last >= self._segmented:
                break
            left, gone = left - size, last
        row = self._database.row("SELECT hash FROM audit WHERE seq = ?", (gone,))
        if not gone or row is None or not isinstance(row[0], bytes):
            return
        before = self._database.row("SELECT seq, rows, seal FROM audit_checkpoints ORDER BY id DESC LIMIT 1")
        counted = self._database.row(
            "SELECT count(*) FROM audit WHERE seq > ? AND seq <= ?", (before[0] if before else 0, gone)
        )
        rows = (before[1] if before else 0) + (counted[0] if counted else 0)
        moment = self._now() // 1000
        made = Checkpoint(gone, row[0], rows, moment, before[2] if before else b"", b"")
        values = (*made[:5], made.sealed(self._key))
        with self._database.transaction():
            self._database.change(
                "INSERT INTO audit_checkpoints (seq, hash, rows, time, before, seal) VALUES (?, ?, ?, ?, ?, ?)", values
            )
            self._database.change("DELETE FROM audit_segments WHERE last <= ?", (gone,))
        self._total, self._behind = left, True
        log.info("the audit's rows up to %d are let go: it is longer than %d bytes", gone, self._most)

    def _remove(self) -> None:
        removed = self._database.change(
            "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE seq <= (SELECT max(seq) FROM audit_checkpoints) "
            f"ORDER BY seq LIMIT {GONE_ROWS})"
        )
        self._behind = removed == GONE_ROWS
