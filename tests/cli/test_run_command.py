"""`astrid-host run`: shows what loaded, logs to stderr, and leaves with 0 on SIGINT and SIGTERM whatever its guests do."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import trio

from astrid_host.cli import logs
from astrid_host.control.client import Running
from astrid_host.control.places import socket_path

Start: TypeAlias = Callable[..., subprocess.Popen[str]]
MakeCapsule: TypeAlias = Callable[..., Path]
LEAVES_WITHIN_S = 2.0
SHADOWING = """
[publish]
"tool.v1.execute.*.result" = { wit = "opaque" }

[subscribe]
"tool.v1.execute.word_count" = { wit = "opaque", handler = "tool_describe" }
"""


def _table(process: subprocess.Popen[str], last: str) -> dict[str, list[str]]:
    """The rows of what loaded, by capsule, once the line that begins with `last` is shown."""
    assert process.stdout is not None
    rows: dict[str, list[str]] = {}
    for line in process.stdout:
        name, *cells = re.split(r"\s{2,}", line.strip())
        rows[name] = cells
        if name.startswith(last):
            return rows
    raise AssertionError(f"it ended before it showed {last}: {process.stderr.read() if process.stderr else ''}")


def _leave(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    """Send a signal, see it leave in time and with 0; what it logged."""
    begun = time.monotonic()
    process.send_signal(number)
    _, logged = process.communicate(timeout=30)
    assert time.monotonic() - begun < LEAVES_WITHIN_S
    assert process.returncode == 0, logged
    assert "Traceback" not in logged
    return logged


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_shows_what_loaded_and_leaves_on_a_signal(start: Start, number: signal.Signals) -> None:
    process = start("run")
    rows = _table(process, "word-tools")
    assert rows["capsule"] == ["version", "state", "tools", "handlers"]
    assert rows["word-tools"][1:] == ["ready", "word_count, reverse_text", "3"]
    assert rows["router"][1:] == ["ready", "-", "2"]
    assert f"{number.name}: leaving" in _leave(process, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_leaves_while_a_guest_computes(start: Start, capsule: MakeCapsule, number: signal.Signals) -> None:
    process = start("run", "--no-bundled", "--capsules", capsule("busy", guest="ready-spinner"))
    assert _table(process, "busy")["busy"][1] == "ready"
    _leave(process, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_leaves_while_it_still_loads(start: Start, capsule: MakeCapsule, number: signal.Signals) -> None:
    """A run loop that never reaches the host is waited for; the first capsule's log line says how far loading is."""
    broken = capsule("a-broken")
    (broken / "guest.wasm").write_bytes(b"not wasm")
    capsule("b-busy", guest="silent-spinner")
    process = start("run", "--no-bundled", "--capsules", broken.parent)
    assert process.stderr is not None
    assert "a-broken" in process.stderr.readline()
    _leave(process, number)


def test_log_lines_can_be_json(start: Start, capsule: MakeCapsule) -> None:
    broken = capsule("broken")
    (broken / "guest.wasm").write_bytes(b"not wasm")
    process = start("run", "--log-format", "json", "--capsules", broken)
    _table(process, "broken: failed")
    lines = [json.loads(line) for line in _leave(process).splitlines()]
    assert {line["level"] for line in lines} >= {"error", "info"}
    assert any("broken" in line["event"] for line in lines)
    assert all({"event", "level", "logger", "timestamp"} <= set(line) for line in lines)


def test_a_log_format_that_is_none_is_wrong_usage(start: Start) -> None:
    process = start("run", "--log-format", "xml")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said == "astrid-host: --log-format is 'pretty' or 'json'; given 'xml'\n"


def test_a_folder_that_was_dropped_in_is_loaded(start: Start, capsule: MakeCapsule, tmp_path: Path) -> None:
    state = tmp_path / "state"
    capsule("dropped", parent=state / "capsules")
    process = start("run", "--state-dir", state, "--no-bundled")
    rows = _table(process, "dropped")
    assert rows["dropped"] == ["1.2.3", "ready", "-", "0"]
    assert "word-tools" not in rows
    _leave(process)


def test_a_bundled_capsule_steps_aside_for_a_given_one(start: Start, capsule: MakeCapsule) -> None:
    folder = capsule("my-words", SHADOWING)
    assert start("trust", "--yes", folder).wait(30) == 0
    process = start("run", "--capsules", folder)
    rows = _table(process, "word-tools: shadowed: steps aside for my-words")
    assert rows["word-tools"][1:] == ["shadowed", "-", "0"]
    assert rows["my-words"] == ["1.2.3", "ready", "word_count", "1"]
    _leave(process)


def test_of_two_given_capsules_with_one_tool_the_second_has_an_inactive_row(start: Start, capsule: MakeCapsule) -> None:
    given = capsule("a-first", SHADOWING).parent
    capsule("b-second", SHADOWING)
    process = start("run", "--no-bundled", "--capsules", given)
    rows = _table(process, "b-second: rows that are never called: tool.v1.execute.word_count")
    assert rows["a-first"] == ["1.2.3", "ready", "word_count", "1"]
    assert rows["b-second"] == ["1.2.3", "ready", "-", "0"]
    assert "a-first and b-second both bind tool.v1.execute.word_count" in _leave(process)


def test_a_capsule_that_fails_does_not_stop_the_host(start: Start, capsule: MakeCapsule) -> None:
    unwritten = capsule("unwritten", "[subscribe\n")
    process = start("run", "--capsules", unwritten)
    rows = _table(process, "unwritten: failed: ")
    assert rows["unwritten"] == ["-", "failed", "-", "0"]
    assert rows["word-tools"][1] == "ready"
    _leave(process)


def test_a_second_host_is_refused_while_one_runs_and_not_after(start: Start, tmp_path: Path) -> None:
    state = ("--state-dir", tmp_path / "state", "--no-bundled")
    first = start("run", *state)
    _table(first, "listening: ")
    second = start("run", *state)
    _, said = second.communicate(timeout=30)
    assert second.returncode == 3
    assert f"a host runs with the state folder {tmp_path / 'state'} already (process {first.pid})" in said
    _leave(first)
    third = start("run", *state)
    _table(third, "listening: ")
    third.kill()
    third.wait()
    fourth = start("run", *state)
    _table(fourth, "listening: ")  # what a killed host left behind is in nobody's way
    _leave(fourth)


def test_it_leaves_when_it_is_asked_to_over_its_socket(start: Start, tmp_path: Path) -> None:
    process = start("run", "--state-dir", tmp_path / "state", "--no-bundled")
    _table(process, "listening: ")
    path = socket_path(tmp_path / "state")
    assert path.stat().st_mode & 0o777 == 0o600
    assert trio.run(Running(path, "default").ask, "Shutdown") == {}
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("module", ["astrid_host.cli.boot", "astrid_host.control.places", "astrid_host.host"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_leaves_before_it_has_begun(
    surroundings: dict[str, str], number: signal.Signals, module: str, tmp_path: Path
) -> None:
    """The signal comes when it is about to import that module."""
    code = f"""
import os, sys
from astrid_host.cli import main

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), {number.value})

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["run", "--no-bundled", "--state-dir", {str(tmp_path)!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("folder", "code", "why"),
    [
        ("", 2, "the name of a folder is empty"),
        ("x" * 300, 2, "a name in the path has 300 bytes; 255 are allowed"),
        ("/proc/x", 3, "cannot make the control socket in /proc/x: "),
    ],
)
def test_a_state_folder_that_cannot_be_is_told(start: Start, folder: str, code: int, why: str) -> None:
    process = start("run", "--state-dir", folder)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert why in said
    assert "Errno" not in said


def test_a_traceback_shows_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("astrid_host")
    kept = (log.handlers[:], log.propagate, log.level)
    try:
        logs.set_up("pretty", logging.INFO)
        secret = "".join(("sk-", "local"))
        try:
            raise ValueError(f"{len(secret)}")
        except ValueError:
            log.exception("failed")
    finally:
        log.handlers[:], log.propagate = kept[:2]
        log.setLevel(kept[2])
    shown = capsys.readouterr().err
    assert "ValueError: 8" in shown
    assert "sk-local" not in shown
