"""Commands use a host that runs with their state folder, unless an option asks for one of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from running_hosts import until_it_listens, until_watched

from astrid_host.control.places import locked

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]
MakeCapsule: TypeAlias = Callable[..., Path]
SPIN = """
[publish]
"tool.v1.execute.*.result" = { wit = "opaque" }

[subscribe]
"tool.v1.execute.spin" = { wit = "opaque", handler = "tool_execute_spin" }
"""


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, Path]:
    return ("--state-dir", tmp_path / "state")


@pytest.fixture
def running(start: Start, state: tuple[str, Path], capsule: MakeCapsule) -> subprocess.Popen[str]:
    """A host with the tool `spin`, which computes for ever."""
    process = start("run", *state, "--capsules", capsule("spinner", SPIN, "spinner"))
    until_it_listens(process)
    return process


def test_its_tools_are_listed_and_called(running: object, astrid: Astrid, state: tuple[str, Path]) -> None:
    done = astrid("call", "word_count", '{"text":"a b"}', *state)
    assert (done.stdout, done.stderr, done.returncode) == ('{"words":2,"characters":3,"lines":1}\n', "", 0)
    done = astrid("call", "no_such_tool", *state)
    assert (done.stdout, done.returncode) == ("No capsule provides a tool named no_such_tool.\n", 1)
    done = astrid("call", "spin", "--yes", "--timeout", "0.3", *state)
    assert (done.stdout, done.returncode) == ("spin did not answer within 0.3 s.\n", 1)
    done = astrid("tools", "--json", *state)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "word_count" in {tool["name"] for tool in json.loads(done.stdout)}


def test_approvals_are_denied_at_once_or_given_with_yes(
    running: object, astrid: Astrid, state: tuple[str, Path]
) -> None:
    save = ("call", "note_save", '{"key":"k","text":"t"}', *state)
    denied = astrid(*save)
    assert denied.returncode == 1
    command = f"astrid-host approvals allow gatekeeper note_save --state-dir {state[1]}\n"
    assert denied.stderr.endswith(command)  # the host and this command have one workspace
    given = astrid(*save, "--yes")
    assert (given.stderr, given.returncode) == ("", 0)


@pytest.mark.parametrize("option", [("--no-bundled",), ("--workspace", "."), ("--allow-local", "localhost:1")])
def test_an_option_for_booting_boots_a_host_beside_it(
    running: object, astrid: Astrid, state: tuple[str, Path], option: tuple[str, ...]
) -> None:
    done = astrid("call", "spin", "--timeout", "0.1", *state, *option)
    assert "spin did not answer" not in done.stdout
    assert done.returncode == 1


def test_a_host_that_still_boots_is_waited_for(start: Start, state: tuple[str, Path], tmp_path: Path) -> None:
    with locked(tmp_path / "state"):
        process = start("call", "word_count", *state)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(5)  # it has come to the lock by then, also where the machine is busy
    _, told = process.communicate(timeout=30)
    assert process.returncode == 3
    assert told == "astrid-host: the host that runs has stopped, or was killed: start it again with `astrid-host run`\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_host_that_ends_during_a_call_is_told(
    running: subprocess.Popen[str], start: Start, state: tuple[str, Path], number: signal.Signals
) -> None:
    tail = start("tail", "tool.v1.execute.spin", *state)
    call = wait_for_call(tail, state[1], lambda: start("call", "spin", "--yes", *state))
    running.send_signal(number)
    for process in (call, tail):
        said, told = process.communicate(timeout=30)
        if process.returncode == 1:  # a host that leaves may have time to answer
            assert said == "The host stopped before it answered.\n"
            continue
        assert process.returncode == 3
        assert "the host that runs has stopped, or was killed" in told
        assert len(told.splitlines()) == 1


def test_an_interrupted_call_is_cancelled_in_the_host(running: object, start: Start, state: tuple[str, Path]) -> None:
    tail = start("tail", "tool.v1.*", *state, "--json")
    call = wait_for_call(tail, state[1], lambda: start("call", "spin", "--yes", *state))
    call.send_signal(signal.SIGINT)
    said, told = call.communicate(timeout=30)
    assert (said, told, call.returncode) == ("", "", 130)
    assert tail.stdout is not None
    assert any(json.loads(line)["topic"] == "tool.v1.request.cancel" for line in tail.stdout)


def wait_for_call(
    tail: subprocess.Popen[str], state: Path, call: Callable[[], subprocess.Popen[str]]
) -> subprocess.Popen[str]:
    """Make a call once `tail` watches, and wait until it shows that the tool is called."""
    until_watched(state)
    process = call()
    assert tail.stdout is not None
    assert any("tool.v1.execute.spin" in line for line in tail.stdout)
    return process


def test_how_to_allow_what_was_denied_names_the_workspace_of_the_host(
    start: Start, astrid: Astrid, state: tuple[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    until_it_listens(start("run", *state, "--workspace", tmp_path / "work"))
    denied = astrid("call", "note_save", '{"key":"k","text":"t"}', *state)
    _, command = denied.stderr.strip().split("beforehand: astrid-host ")
    allowed = astrid(*command.split())
    assert allowed.stdout.endswith(f" in the workspace {tmp_path / 'work'}\n")
    assert astrid("call", "note_save", '{"key":"k","text":"t"}', *state).returncode == 0


def test_a_command_that_uses_it_loads_no_engine(running: object, surroundings: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "from astrid_host.cli import main\n"
        "sys.argv[1:] = ['call', 'word_count', '{\"text\":\"a\"}', '--state-dir', sys.argv[1]]\n"
        "loaded = lambda: print([name for name in ('wasmtime', 'sqlite3', 'structlog', 'astrid_host.host') "
        "if name in sys.modules])\n"
        "atexit.register(loaded)\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "state")]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ['{"words":1,"characters":1,"lines":1}', "[]"]
