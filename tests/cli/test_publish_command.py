"""`astrid-host publish`: an event on the bus of a running host; 2 for what cannot be published, 3 without a host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from running_hosts import until_it_listens

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]


def test_without_a_host_it_says_how_to_start_one(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("publish", "a.b", "{}", "--state-dir", tmp_path / "state")
    assert (done.stdout, done.returncode) == ("", 3)
    assert done.stderr == (
        f"astrid-host: no host runs with the state folder {tmp_path / 'state'}: start `astrid-host run`\n"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("payload", ["{", "NaN", '"\\ud800"', "\udcff", "[" * 100_000])
def test_what_is_no_json_is_wrong_usage(astrid: Astrid, payload: str) -> None:
    done = astrid("publish", "a.b", payload)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith("astrid-host: the payload is not JSON")
    assert len(done.stderr.splitlines()) == 1


def test_events_are_numbered_and_refused_with_a_reason(astrid: Astrid, start: Start, tmp_path: Path) -> None:
    state = ("--state-dir", tmp_path / "state")
    process = start("run", "--no-bundled", *state)
    until_it_listens(process)
    first, second = (astrid("publish", "a.b", payload, *state) for payload in ("{}", "[1]"))
    assert (first.stderr, first.returncode) == ("", 0)
    assert int(second.stdout) > int(first.stdout)
    for topic, why in (("a..b", "segment"), ("astrid.v1.dispatch.failed.x", "only the host itself")):
        done = astrid("publish", topic, "{}", *state)
        assert (done.stdout, done.returncode) == ("", 2)
        assert why in done.stderr
    done = astrid("publish", "a.b", "{}", "--principal", "no/one", *state)
    assert done.returncode == 2
