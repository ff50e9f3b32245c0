"""`astrid-host audit`: shows what capsules did, and says whether the record of it is whole."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import pytest
import typer
from typer.testing import CliRunner, Result

from astrid_host.cli import audit as audit_command
from astrid_host.stores.audit import AuditStore
from astrid_host.stores.database import FILE, Database

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

HOUR_NS = 3_600_000_000_000
BEGIN_NS = 1_735_689_600_000_000_000  # 2025-01-01T00:00Z


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with four rows, an hour apart."""
    folder = tmp_path / "state"
    clock = iter(range(BEGIN_NS, BEGIN_NS + 5 * HOUR_NS, HOUR_NS))
    with closing(Database.open(folder)) as database:
        audit = AuditStore(database, now=lambda: next(clock))
        audit.append("alice", "fs-tools", "fs.fs-open", "cwd://a.txt", "ok")
        audit.append("bob", "fs-tools", "fs.fs-open", "cwd://b.txt", "not-found")
        audit.append("alice", "shell", "process.spawn", "ls\n\x1b[31m", "capability-denied")
        audit.append("alice", "fs-tools", "ipc.publish", "a.topic", "capability-denied")
    return folder


@pytest.fixture
def audit(state: Path) -> Callable[..., Result]:
    """`astrid-host audit` in this process, which is faster."""
    app = typer.Typer()
    app.command()(audit_command.audit)
    return lambda *options: CliRunner().invoke(app, ["--state-dir", str(state), *options])


def targets(done: Result) -> list[str]:
    assert (done.stderr, done.exit_code) == ("", 0)
    return [row["target"] for row in json.loads(done.stdout)]


def test_rows_are_lines_oldest_first_without_control_characters(astrid: Astrid, state: Path) -> None:
    done = astrid("audit", "--state-dir", state)
    assert (done.stderr, done.returncode) == ("", 0)
    lines = done.stdout.splitlines()
    assert [line.split()[2:] for line in lines] == [
        ["alice", "fs-tools", "fs.fs-open", "ok", "cwd://a.txt"],
        ["bob", "fs-tools", "fs.fs-open", "not-found", "cwd://b.txt"],
        ["alice", "shell", "process.spawn", "capability-denied", "ls\\n\\x1b[31m"],
        ["alice", "fs-tools", "ipc.publish", "capability-denied", "a.topic"],
    ]


def test_json_is_a_list_of_objects_with_everything(astrid: Astrid, state: Path) -> None:
    done = astrid("audit", "--json", "--state-dir", state)
    row = json.loads(done.stdout)[2]
    assert datetime.fromisoformat(row.pop("time")).timestamp() * 1e9 == BEGIN_NS + 2 * HOUR_NS
    assert row == {
        "seq": 3,
        "principal": "alice",
        "capsule": "shell",
        "function": "process.spawn",
        "target": "ls\n\x1b[31m",
        "verdict": "capability-denied",
    }


def test_rows_are_chosen(audit: Callable[..., Result]) -> None:
    chosen = {
        ("--principal", "bob"): ["cwd://b.txt"],
        ("--capsule", "shell"): ["ls\n\x1b[31m"],
        ("--since", "2025-01-01T02:00:00+00:00"): ["ls\n\x1b[31m", "a.topic"],
        ("--since", "1h"): [],
        ("--limit", "1"): ["a.topic"],
        ("--limit", "0", "--principal", "alice", "--capsule", "fs-tools"): ["cwd://a.txt", "a.topic"],
    }
    for options, found in chosen.items():
        assert targets(audit("--json", *options)) == found, options


def test_people_are_told_when_there_are_no_rows(audit: Callable[..., Result], tmp_path: Path) -> None:
    none = audit("--capsule", "nope")
    assert (none.stdout, none.exit_code) == ("", 0)
    assert none.stderr == "astrid-host: there are no rows of what was asked for\n"
    as_json = audit("--capsule", "nope", "--json")
    assert (as_json.stdout, as_json.stderr, as_json.exit_code) == ("[]\n", "", 0)
    Database.open(tmp_path / "new").close()
    assert audit("--state-dir", str(tmp_path / "new")).stderr == "astrid-host: there are no rows\n"


def test_a_whole_chain_is_said_to_be_whole_and_names_its_last_row(astrid: Astrid, state: Path) -> None:
    done = astrid("audit", "--verify", "--state-dir", state)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("4 rows, the chain is whole; its last row is 4:")
    head = done.stdout.split()[-1]
    assert astrid("audit", "--verify", "--expect", head, "--state-dir", state).returncode == 0
    expected = f"3:{head.partition(':')[2]}"
    other = astrid("audit", "--verify", "--expect", expected, "--state-dir", state)
    assert other.returncode == 1
    assert "rewritten: row 3" in other.stdout


def test_a_broken_chain_is_named_row_by_row(astrid: Astrid, state: Path) -> None:
    with closing(sqlite3.connect(state / FILE)) as raw, raw:
        raw.execute("DROP TRIGGER audit_is_never_changed")
        raw.execute("DROP TRIGGER audit_is_never_cut")
        raw.execute("UPDATE audit SET target = 'cwd://innocent' WHERE seq = 2")
        raw.execute("DELETE FROM audit WHERE seq = 4")
    done = astrid("audit", "--verify", "--state-dir", state)
    assert done.returncode == 1
    changed, cut, total = done.stdout.splitlines()
    assert changed == "changed: row 2 was changed: it says bob, fs-tools, fs.fs-open, cwd://innocent, not-found"
    assert cut == "cut: row 4 is missing at the end"
    assert total.startswith("3 rows, the chain is broken")
    told = json.loads(astrid("audit", "--verify", "--json", "--state-dir", state).stdout)
    assert (told["rows"], told["whole"]) == (3, False)
    assert [(fault["kind"], fault["seq"]) for fault in told["faults"]] == [("changed", 2), ("cut", 4)]


def test_a_folder_in_which_no_host_has_run_has_no_audit_and_gets_none(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("audit", "--state-dir", tmp_path / "nothing")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "no host has run" in done.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since is 30m, 2h, 7d, or a date and time"),
        (["--verify", "--expect", "4"], "--expect is SEQ:HASH"),
        (["--expect", "4:" + "0" * 64], "give both"),
        (["--limit", "-1"], "--limit"),
    ],
)
def test_wrong_usage_is_told(audit: Callable[..., Result], options: list[str], said: str) -> None:
    done = audit(*options)
    assert (done.stdout, done.exit_code) == ("", 2)
    assert said in done.stderr
