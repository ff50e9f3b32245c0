"""The command as a whole: help at once, and every wrong use told in a few lines with exit code 2."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import astrid_host

CHECKOUT = Path(astrid_host.__file__).parent.parent
Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = ("run", "call", "tools", "check", "inspect", "config", "approvals", "audit", "doctor")
HELP_WITHIN_S = 0.3
SLOW = ("trio", "wasmtime", "rich", "structlog", "sqlite3", "msgspec")


def computed_by_children_s() -> float:
    """What ended children computed: it does not count how long they waited for a processor that others had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_names_every_command_and_answers_at_once(astrid: Astrid) -> None:
    took = []
    for _ in range(3):
        begun = computed_by_children_s()
        done = astrid("--help")
        took.append(computed_by_children_s() - begun)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "Usage: astrid-host" in done.stdout
    assert [name for name in COMMANDS if f"  {name} " not in done.stdout] == []
    assert min(took) < HELP_WITHIN_S


def test_help_imports_nothing_that_is_slow(surroundings: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from astrid_host.cli import main\n"
        "sys.argv = ['astrid-host', '--help']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        f"    print([name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stderr, done.returncode) == ("[]\n", 0)


def test_the_version_is_that_of_the_package(astrid: Astrid) -> None:
    done = astrid("--version")
    assert (done.stdout, done.stderr, done.returncode) == (f"astrid-host {astrid_host.__version__}\n", "", 0)


@pytest.mark.parametrize("group", [(), ("config",), ("approvals",)])
def test_help_cuts_no_sentence(astrid: Astrid, group: tuple[str, ...]) -> None:
    _, commands = astrid(*group, "--help").stdout.split("Commands:\n")
    assert [line for line in commands.splitlines() if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(astrid: Astrid, command: str) -> None:
    done = astrid(command, "--help")
    assert (done.stderr, done.returncode) == ("", 0)
    assert f"Usage: astrid-host {command}" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_wrong_usage(astrid: Astrid, command: str) -> None:
    done = astrid(command, "--no-such-option")
    assert (done.stdout, done.returncode) == ("", 2)
    assert "--no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("no-such-command",), ("call",), ("check",), ("inspect",), ("call", "x", "{}", "y")]
)
def test_what_is_missing_or_too_much_is_wrong_usage(astrid: Astrid, arguments: tuple[str, ...]) -> None:
    done = astrid(*arguments)
    assert (done.stdout, done.returncode) == ("", 2)
    assert "Traceback" not in done.stderr


def test_a_fault_of_the_host_is_told_in_a_line_and_in_full_with_debug(surroundings: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from astrid_host import host\n"
        "def broken(*given, **named): raise ZeroDivisionError('the host is broken')\n"
        "host.open_host = broken\n"
        "from astrid_host.cli import main\n"
        "sys.argv = ['astrid-host', 'tools', *sys.argv[1:]]\n"
        "main()\n"
    )
    said = {}
    for option in ("--no-bundled", "--debug"):
        command = [sys.executable, "-c", program, option]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode != 0
        said[option] = done.stderr
    assert said["--no-bundled"].splitlines() == [
        "astrid-host: ZeroDivisionError: the host is broken (a fault of the host; --debug shows where)"
    ]
    assert "Traceback" in said["--debug"]


@pytest.mark.parametrize("arguments", ["tools --json", "run", "inspect capsules/router/router.wasm"])
def test_it_leaves_quietly_when_nobody_reads_what_it_prints(surroundings: dict[str, str], arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "astrid_host.cli", *arguments.split()]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=surroundings,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 1)
