"""Another process keeps the database locked: who writes waits for it, everybody else goes on, and no row is lost."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest
import trio
from guests_in_wat import FAILED

from astrid_host import BUNDLED, Host, ToolCallResult, open_host
from astrid_host.stores import Database, KvStore, Retries
from astrid_host.stores.audit import AuditStore
from astrid_host.stores.database import FILE

HELD_S = 1.5
MEDIAN_S, WORST_S = 0.05, 0.5  # a loop that is held is held for all of HELD_S
AFTER_S = 0.5
WRITERS = 8

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO settings VALUES ('', 'other', 'key', 'not committed')")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@asynccontextmanager
async def host_at(tmp_path: Path) -> AsyncIterator[Host]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    places = [Path(BUNDLED) / name for name in ("router", "fs", "kv-notes", "word-tools", "dead-letter")]
    async with open_host(places, trust=True, state_dir=tmp_path / "state", workspace=work) as host:
        for tool, arguments in (("list_directory", {"dir_path": "."}), ("word_count", {"text": "a b"})):
            assert not (await host.tools.execute(tool, arguments)).is_error  # instances are made
        yield host


@asynccontextmanager
async def locked(tmp_path: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A process that has the database locked until something is written to its stdin, or at the end."""
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "state" / FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == b"locked\n"
        yield process
        process.communicate(b"\n")


def let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.wait()


class Work:
    """Tool calls under way."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ended: dict[str, float] = {}
        self.results: dict[str, ToolCallResult] = {}

    async def run(self, name: str, tool: str, arguments: dict[str, str], principal: str = "default") -> None:
        self.results[name] = await self.host.tools.execute(tool, arguments, principal=principal)
        self.ended[name] = time.monotonic()

    async def count(self, until: float) -> list[float]:
        """How long another capsule's calls take meanwhile, in seconds."""
        took = []
        while time.monotonic() < until:
            begun = time.monotonic()
            assert not (await self.host.tools.execute("word_count", {"text": "a b"})).is_error
            took.append(time.monotonic() - begun)
            await trio.sleep(0.005)
        return took


async def test_who_writes_waits_and_everybody_else_goes_on(tmp_path: Path) -> None:
    async with host_at(tmp_path) as host:
        work = Work(host)
        async with locked(tmp_path) as process, trio.open_nursery() as nursery:
            for number in range(WRITERS):
                who = f"p{number}"
                save = {"key": "todo", "text": str(number)}
                nursery.start_soon(work.run, f"save {number}", "note_save", save, who)
                nursery.start_soon(work.run, f"list {number}", "list_directory", {"dir_path": "."}, who)
            took = await work.count(time.monotonic() + HELD_S)
            assert work.ended == {}
            await trio.to_thread.run_sync(let_go, process)
            free = time.monotonic()
        assert statistics.median(took) < MEDIAN_S
        assert max(took) < WORST_S
        assert len(work.ended) == 2 * WRITERS
        assert max(work.ended.values()) - free < AFTER_S
        assert [name for name, result in work.results.items() if result.is_error] == []
        for number in range(WRITERS):
            read = await host.tools.execute("note_read", {"key": "todo"}, principal=f"p{number}")
            assert str(number) in read.content
    with closing(Database.open(tmp_path / "state")) as database:
        audit = AuditStore(database)
        assert audit.verify().faults == []
        rows = [row for row in audit.rows() if row.capsule == "fs" and row.principal.startswith("p")]
        assert {row.principal for row in rows} == {f"p{number}" for number in range(WRITERS)}
        assert {row.verdict for row in rows} == {"ok"}


async def test_a_call_that_is_cancelled_while_it_waits_writes_nothing_and_ends_at_once(tmp_path: Path) -> None:
    async with host_at(tmp_path) as host:
        async with locked(tmp_path) as process, host.subscribe(f"{FAILED}tool.v1.execute.note_save") as reports:
            begun = time.monotonic()
            with trio.move_on_after(0.2) as scope:
                await host.tools.execute("note_save", {"key": "todo", "text": "never"})
            assert scope.cancelled_caught
            async for report in reports:
                assert report.payload["reason"] == "cancelled"
                break
            assert time.monotonic() - begun < 0.2 + WORST_S
            await trio.to_thread.run_sync(let_go, process)
        assert (await host.tools.execute("note_read", {"key": "todo"})).is_error
    with closing(Database.open(tmp_path / "state")) as database:
        assert KvStore(database).list_keys("default:capsule:kv-notes") == []


async def test_a_database_that_stays_locked_is_said_and_what_was_done_is_called_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("astrid_host.stores.database.Retries", partial(Retries, bound_s=0.3))
    async with host_at(tmp_path) as host:
        work = Work(host)
        async with locked(tmp_path):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work.run, "save", "note_save", {"key": "todo", "text": "x"})
                nursery.start_soon(work.run, "list", "list_directory", {"dir_path": "."})
                took = await work.count(time.monotonic() + 0.5)
            assert statistics.median(took) < MEDIAN_S
        assert all(result.is_error for result in work.results.values())
        assert "the key-value store failed" in work.results["save"].content
        assert "it was done, but the audit cannot be written" in work.results["list"].content
        assert "Stop that process" in caplog.text
        assert not (await host.tools.execute("note_save", {"key": "todo", "text": "y"})).is_error
        assert json.dumps((await host.tools.execute("note_read", {"key": "todo"})).content).count("y")
    with closing(Database.open(tmp_path / "state")) as database:
        assert AuditStore(database).verify().faults == []
