"""The audit: what guests did through the host, in a table that only grows, each row chained to the one before it.

A row is committed when `append` returns: it survives the end of the process, however it ends. The last hash stays in
memory, so a row costs the same after any number of others; another process that appends to the same database is noticed
by its row. A row's hash is SHA-256 over the hash before it and everything the row says, so a row that is changed,
removed, inserted or moved breaks the chain there, and SQLite's own count of the rows that ever were tells of a tail that
was cut off. Rows that are let go, because the audit has a bound, go behind a sealed checkpoint
(`astrid_host.stores.retention`); the chain is proved from the last one on. Whoever may write the database can also compute a
whole chain anew: keep a `Head` elsewhere to find that. All methods raise StoreError when the database fails.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from astrid_host.errors import StoreError
from astrid_host.stores.database import Database, Parameters
from astrid_host.stores.retention import Checkpoint, Retention, checkpoints

NAME_CHARACTERS = 256
TARGET_CHARACTERS = 1024
PAGE = 1000
FAULTS = 100
FIRST = bytes(32)  # stands where the first row's previous hash would

_INSERT = (
    "INSERT INTO audit (seq, time, principal, capsule, function, target, verdict, previous, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (seq) DO NOTHING"
)
_LAST = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1"
_COUNTED = "SELECT seq FROM sqlite_sequence WHERE name = 'audit'"
# As bytes, because what somebody wrote into the file need not be text.
_TEXTS = ", ".join(f"CAST({name} AS BLOB)" for name in ("principal", "capsule", "function", "target", "verdict"))
_CHAIN = f"SELECT seq, time, {_TEXTS}, previous, hash FROM audit WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
# In one statement: both are of the same moment.
_END = f"SELECT (SELECT max(seq) FROM audit), ({_COUNTED})"
_NUMBERS = struct.Struct("<qq5I")


class AuditRow(NamedTuple):
    """One row. `time`, in seconds since 1970, is when it was written; `verdict` is `ok`, the case of the error that the
    guest got, `cancelled` when the call ended while it waited, or `failed`."""

    seq: int
    time: float
    principal: str
    capsule: str
    function: str
    target: str
    verdict: str


class Head(NamedTuple):
    """The last row of a chain, which stands for all before it. As text it is `SEQ:HASH`."""

    seq: int
    hash: bytes

    @classmethod
    def parse(cls, text: str) -> Head:
        """Raises ValueError when it is none."""
        seq, _, digest = text.partition(":")
        if not seq.isascii() or not seq.isdigit() or len(digest) != 2 * len(FIRST):
            raise ValueError(text)
        return cls(int(seq), bytes.fromhex(digest))

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"


class Fault(NamedTuple):
    """Where a chain is broken: `kind` is `changed`, `missing`, `unchained`, `cut`, `rewritten` or `unsealed`."""

    kind: str
    seq: int
    text: str


class Verification(NamedTuple):
    """What verifying a chain found: how many rows there are, where it is broken (the first 100 places), its last row; how many
    rows were let go, up to which one (0 when none were)."""

    rows: int
    faults: list[Fault]
    head: Head
    let_go: int = 0
    let_go_to: int = 0


class AuditStore:
    """The audit in a database.

    Args:
        database: where the rows are. A transaction in which a row was appended must not be rolled back.
        now: the clock, in nanoseconds since 1970.
        key: of the seals on checkpoints; None cannot prove them, and lets nothing go.
        most: bytes that it may have; None lets nothing go.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], int] = time.time_ns,
        key: bytes | None = None,
        most: int | None = None,
    ) -> None:
        self._database = database
        self._key = key
        self._retention = Retention(database, most, key, now) if key is not None and most is not None else None
        self._now = now
        self._lock = threading.Lock()
        self._head: Head | None = None

    def append(self, principal: str, capsule: str, function: str, target: str, verdict: str) -> int:
        """Write a row. From any thread.

        Args:
            principal: on whose behalf.
            capsule: whose guest called.
            function: `<package>.<function>`, such as `fs.fs-open`.
            target: what it was about. Of more than 1,024 characters the first are kept, and how many there were;
                likewise of the other texts beyond 256.
            verdict: how it ended.

        Returns:
            the row's number, counted from 1.
        """
        texts = (
            _cut(principal, NAME_CHARACTERS),
            _cut(capsule, NAME_CHARACTERS),
            _cut(function, NAME_CHARACTERS),
            _cut(target, TARGET_CHARACTERS),
            _cut(verdict, NAME_CHARACTERS),
        )
        with self._lock:
            head = self._head or self._read_head()
            self._head = None  # should writing fail, what is on disk counts
            after = self._insert(head, texts)
            if after is None:  # another process has appended
                with self._database.transaction():
                    after = self._insert(self._read_head(), texts)
                if after is None:
                    raise StoreError(
                        "the audit was written to by something that does not lock it: start no second host there"
                    )
            self._head = after
            if self._retention is not None:
                self._retention.appended(after.seq)
            return after.seq

    def _insert(self, head: Head, texts: tuple[str, ...]) -> Head | None:
        seq, moment = head.seq + 1, self._now() // 1000
        digest = _digest(head.hash, seq, moment, [text.encode() for text in texts])
        size = sum(map(len, texts))
        done = self._database.change(_INSERT, (seq, moment, *texts, head.hash, digest), size)
        return Head(seq, digest) if done else None

    def _read_head(self) -> Head:
        last = self._database.row(_LAST)
        counted = self._database.row(_COUNTED)
        seq, digest = last or (0, FIRST)
        # Rows that were cut off leave a gap for ever: their numbers are not given again.
        return Head(max(seq, counted[0] if counted else 0), digest if isinstance(digest, bytes) else FIRST)

    def rows(
        self,
        *,
        principal: str | None = None,
        capsule: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditRow]:
        """Rows, oldest first, read a thousand at a time, up to the one that is the last when this begins.

        Args:
            principal: only this one's.
            capsule: only this one's.
            since: only those written then or later, in seconds since 1970.
            limit: only the newest so many.
        """
        end = self._database.row(_END)
        if end is None or end[0] is None:
            return
        where, parameters = _filters(principal, capsule, since, end[0])
        after = 0 if limit is None else self._before_newest(where, parameters, limit)
        page = f"SELECT seq, time, {_TEXTS} FROM audit WHERE seq > ?{where} ORDER BY seq LIMIT ?"
        while found := self._database.rows(page, (after, *parameters, PAGE)):
            for seq, moment, *texts in found:
                yield AuditRow(seq, moment / 1e6 if isinstance(moment, int) else 0.0, *map(_shown, texts))
            after = found[-1][0]

    def _before_newest(self, where: str, parameters: Parameters, limit: int) -> int:
        oldest = f"SELECT min(seq) FROM (SELECT seq FROM audit WHERE 1{where} ORDER BY seq DESC LIMIT ?)"
        row = self._database.row(oldest, (*parameters, limit))
        return _BEYOND if row is None or row[0] is None else row[0] - 1

    def verify(self, expected: Head | None = None) -> Verification:
        """Read the whole chain, a thousand rows at a time, and say where it is broken. It ends with the row that is the last
        when this begins; what is appended meanwhile is for the next time.

        Args:
            expected: a head that was seen before: its row has to be there as it was.
        """
        end = self._database.row(_END)
        last, counted = end or (None, None)
        kept = checkpoints(self._database)
        chain, after = _Chain(expected), -_BEYOND
        chain.begin(kept, self._key)
        while last is not None and (page := self._database.rows(_CHAIN, (after, last, PAGE))):
            for row in page:
                chain.read(row)
            after = page[-1][0]
        chain.end(counted or 0)
        gone = kept[-1] if kept else None
        return Verification(chain.rows, chain.faults, chain.head, gone.rows if gone else 0, gone.seq if gone else 0)


_BEYOND = (1 << 63) - 1  # no row comes after it


class _Chain:
    """The rows of a chain, one after the other, and what is wrong with them."""

    def __init__(self, expected: Head | None) -> None:
        self.rows = 0
        self.faults: list[Fault] = []
        self.head = Head(0, FIRST)
        self._expected = expected
        self._met = expected is None
        self._gone = 0

    def begin(self, kept: list[Checkpoint], key: bytes | None) -> None:
        """What was let go: the chain begins behind it."""
        before = b""
        for checkpoint in kept:
            if key is None or checkpoint.before != before or checkpoint.seal != checkpoint.sealed(key):
                why = "its key is not there" if key is None else "it, or one before it, was changed, removed or forged"
                text = f"the checkpoint behind row {checkpoint.seq} is not proved: {why}"
                self._fault("unsealed", checkpoint.seq, text)
            before = checkpoint.seal
            self.head = Head(checkpoint.seq, checkpoint.hash)
            if self._expected is not None and self._expected.seq <= checkpoint.seq:
                self._met = True
                if self._expected.seq == checkpoint.seq and self._expected.hash != checkpoint.hash:
                    self._fault("rewritten", checkpoint.seq, f"row {checkpoint.seq} is not the one that was expected")
        self._gone = self.head.seq

    def read(self, row: tuple[Any, ...]) -> None:
        seq, moment, *texts, previous, digest = row
        if 1 <= seq <= self._gone:  # it is about to be removed
            return
        self.rows += 1
        if seq < 1:
            self._fault("unchained", seq, f"row {seq} was put before the first")
            return
        if seq != self.head.seq + 1:
            self._fault("missing", self.head.seq + 1, f"{_span(self.head.seq + 1, seq - 1)} missing")
        elif previous != self.head.hash:
            self._fault("unchained", seq, f"row {seq} does not follow row {seq - 1}: one of them was replaced")
        whole = isinstance(moment, int) and all(isinstance(part, bytes) for part in (*texts, previous, digest))
        if not whole or digest != _digest(previous, seq, moment, texts):
            self._fault("changed", seq, f"row {seq} was changed: it says {', '.join(map(_shown, texts))}")
        self.head = Head(seq, digest if isinstance(digest, bytes) else FIRST)
        if self._expected is not None and seq == self._expected.seq:
            self._met = True
            if digest != self._expected.hash:
                self._fault(
                    "rewritten", seq, f"row {seq} is not the one whose hash was expected: the chain was rewritten"
                )

    def end(self, counted: int) -> None:
        if counted > self.head.seq:
            self._fault("cut", self.head.seq + 1, f"{_span(self.head.seq + 1, counted)} missing at the end")
        elif not self._met and self._expected is not None:
            self._fault("cut", self._expected.seq, f"row {self._expected.seq}, which was expected, is not there")

    def _fault(self, kind: str, seq: int, text: str) -> None:
        if len(self.faults) < FAULTS:
            self.faults.append(Fault(kind, seq, text))


def _span(first: int, last: int) -> str:
    return f"row {first} is" if first >= last else f"rows {first} to {last} are"


def _filters(principal: str | None, capsule: str | None, since: float | None, last: int) -> tuple[str, Parameters]:
    where = " AND seq <= ?"
    parameters: list[str | int] = [last]
    for condition, value in (
        ("principal = ?", principal),
        ("capsule = ?", capsule),
        ("time >= ?", None if since is None else int(since * 1e6)),
    ):
        if value is not None:
            where += f" AND {condition}"
            parameters.append(value)
    return where, tuple(parameters)


def _digest(previous: bytes, seq: int, moment: int, texts: list[bytes]) -> bytes:
    """SHA-256 of: the previous hash, number and time (microseconds), the lengths of the texts, the texts."""
    return hashlib.sha256(previous + _NUMBERS.pack(seq, moment, *map(len, texts)) + b"".join(texts)).digest()


def _cut(text: str, most: int) -> str:
    """At most that many characters, and how many there were; what is no Unicode text is escaped."""
    if len(text) > most:
        text = f"{text[:most]}… ({len(text)} characters)"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _shown(text: object) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else "?"
