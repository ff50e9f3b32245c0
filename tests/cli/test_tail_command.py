"""`astrid-host tail`: what happens on the bus of a running host, a line each, until it is told to stop."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from running_hosts import until_it_listens, until_watched

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def state(tmp_path: Path, start: Start) -> tuple[str, Path]:
    """The options that lead to a host that runs."""
    state = ("--state-dir", tmp_path / "state")
    process = start("run", "--no-bundled", *state)
    until_it_listens(process)
    return state


def test_each_event_is_a_line(astrid: Astrid, start: Start, state: tuple[str, Path]) -> None:
    tail = start("tail", "x.*", *state)
    other = start("tail", "x.*", "--json", "--principal", "bob", *state)
    until_watched(state[1], 2)
    astrid("publish", "x.y", '{"text":"a\\u001b[2J\\nb"}', *state)
    astrid("publish", "x.z", "7", "--principal", "bob", *state)
    assert tail.stdout is not None
    assert other.stdout is not None
    first, event = tail.stdout.readline(), json.loads(other.stdout.readline())
    when, clock, topic, principal, payload = first.split(maxsplit=4)
    assert (len(when), len(clock)) == (10, 12)
    assert (topic, principal, json.loads(payload)) == ("x.y", "default", {"text": "a\x1b[2J\nb"})
    assert "\x1b" not in first
    assert tail.stdout.readline().split()[2:] == ["x.z", "bob", "7"]
    assert set(event) == {"time", "topic", "principal", "payload", "source_id", "seq"}
    assert (event["topic"], event["principal"], event["payload"]) == ("x.z", "bob", 7)
    for process in (tail, other):
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert (told, process.returncode) == ("", 0)


def test_a_pattern_that_matches_nothing_is_wrong_usage(astrid: Astrid, state: tuple[str, Path]) -> None:
    done = astrid("tail", "a..b", *state)
    assert (done.stdout, done.returncode) == ("", 2)
    assert "a..b" in done.stderr


def test_without_a_host_it_says_how_to_start_one(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("tail", "a.*", "--state-dir", tmp_path / "none")
    assert (done.stdout, done.returncode) == ("", 3)
    assert "start `astrid-host run`" in done.stderr
