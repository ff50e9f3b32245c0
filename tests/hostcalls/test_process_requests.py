"""What a spawn-request may ask for: the gate, variables, sizes, limits, labels, files."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace
from typing import Any

import pytest
from processes import call, case, request

from astrid_host.abi import Variant
from astrid_host.gates.process import may_persist, may_spawn
from astrid_host.hostcalls.process.commands import command_of

MIB = 1 << 20


def limits(**given: int) -> Any:
    names = ("max_memory_bytes", "max_cpu_secs", "max_pids", "max_open_files")
    return SimpleNamespace(**{**dict.fromkeys(names), **given})


def injected(case: str, where: str, content: bytes = b"x") -> Any:
    return SimpleNamespace(content=content, placement=Variant(case, where))


@pytest.mark.parametrize(
    ("rows", "command", "allowed"),
    [
        (("git",), "git", True),
        (("git",), "git status --short", True),
        (("git",), "gitk", False),
        (("git status",), "git", False),
        (("git status",), "git status -s", True),
        (("git status",), "git statuses", False),
        (("git status",), "git -s status", False),
        (("git  status ",), "git status", True),
        (("git", "git status"), "git push", True),
        (("",), "", False),
        ((" ",), " ", False),
        ((), "bash", False),
        (("bash",), "/bin/bash", False),
        (("/bin/bash",), "/bin/bash -c x", True),
        (("/bin/bash",), "bash", False),
        (("/bin/bash -c",), "/bin/bash -c x", True),
        (("/bin/bash -c",), "/bin/bash -l -c", False),
        (("/bin/bash",), "/bin/../bin/bash", False),
        (("/bin/bash",), "/bin//bash", False),
        (("./bash",), "./bash", False),
        (("bin/bash",), "bin/bash", False),
        (("bash",), "bash\0", False),
        (("bash",), "Bash", False),
    ],
)
def test_a_command_is_a_row_with_the_arguments_that_the_row_has(
    rows: tuple[str, ...], command: str, allowed: bool
) -> None:
    name, *arguments = command.split(" ")
    assert (may_spawn(call(rows=rows).capsule.manifest, name, arguments) is None) is allowed


@pytest.mark.parametrize(
    ("rows", "command"),
    [
        (("git",), "git "),
        (("git",), "git status"),
        (("git",), "git /../../bin/sh"),
        (("git",), " git"),
        (("git",), "git\n"),
        (("/bin/git",), "/bin/git /../../bin/sh"),
        (("/bin/git",), "/bin/git/../sh"),
    ],
)
def test_a_command_has_no_arguments_in_its_name(rows: tuple[str, ...], command: str) -> None:
    denial = may_spawn(call(rows=rows).capsule.manifest, command)
    assert denial is not None
    assert denial.case == "capability-denied"


def test_an_argument_is_one_argument() -> None:
    manifest = call(rows=("git status",)).capsule.manifest
    assert may_spawn(manifest, "git", ["status -s"]) is not None
    assert may_spawn(manifest, "git", ["status", "a b"]) is None


def test_denials_name_the_line_to_write() -> None:
    denial = may_spawn(call(rows=("git",)).capsule.manifest, "bash")
    assert denial is not None
    assert denial.case == "capability-denied"
    assert 'host_process = ["git", "bash"]' in denial.detail
    denial = may_persist(call(persistent=False).capsule.manifest)
    assert denial is not None
    assert denial.case == "persist-unsupported"
    assert "allow_persistent = true" in denial.detail
    assert may_persist(call().capsule.manifest) is None


def test_only_a_few_variables_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/bin", "TZ": "UTC", "SECRET": "s", "LD_PRELOAD": "x"})
    assert command_of(request("true", env=[("A", "1")])).env == {"PATH": "/bin", "TZ": "UTC", "A": "1"}
    assert command_of(request("true", env=[("TZ", "CET")])).env["TZ"] == "CET"


RESERVED = [
    *("PATH", "ASTRID_SESSION_TOKEN", "BASH_ENV", "ENV", "GCONV_PATH", "NODE_OPTIONS", "PERL5OPT", "PYTHONHOME"),
    *("PYTHONPATH", "RUBYOPT", "ZDOTDIR", "DYLD_X", "DYLD_", "LD_PRELOAD", "LD_"),
]
INVALID: dict[str, dict[str, Any]] = {
    **{f"reserved {name}": {"env": [(name, "x")]} for name in RESERVED},
    **{f"name {name!r}": {"env": [(name, "x")]} for name in ("", "1A", "A-B", "A=B", "Ä", "A\0", "A ")},
    "a variable twice": {"env": [("A", "1"), ("A", "2")]},
    "a NUL in a value": {"env": [("A", "a\0b")]},
    "a label that moves the cursor": {"label": "a\x1b[2J"},
    "no life": {"max_lifetime_ms": 0},
    "no idle time": {"idle_timeout_ms": 0},
    "no memory": {"limits": limits(max_memory_bytes=0)},
    "no processes": {"limits": limits(max_pids=0)},
    "a relative place": {"file_injections": [injected("fixed-path", "etc/x")]},
    "a place that climbs": {"file_injections": [injected("fixed-path", "/etc/../x")]},
    "two files at one place": {"file_injections": [injected("fixed-path", "/etc/x")] * 2},
    "a file in a reserved variable": {"file_injections": [injected("env-pointer", "LD_PRELOAD")]},
    "a file in a variable that there is": {"env": [("A", "1")], "file_injections": [injected("env-pointer", "A")]},
}
TOO_LARGE: dict[str, dict[str, Any]] = {
    "257 variables": {"env": [(f"A{n}", "") for n in range(257)]},
    "a value": {"env": [("A", "x" * 65_537)]},
    "a value in bytes": {"env": [("A", "ü" * 32_769)]},
    "stdin": {"stdin": bytes(4 * MIB + 1)},
    "a label": {"label": "x" * 129},
    "129 files": {"file_injections": [injected("env-pointer", f"A{n}") for n in range(129)]},
    "a file": {"file_injections": [injected("env-pointer", "A", bytes(8 * MIB + 1))]},
    "files together": {"file_injections": [injected("env-pointer", f"A{n}", bytes(6 * MIB)) for n in range(3)]},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_what_is_no_request_is_invalid(fields: dict[str, Any]) -> None:
    assert case(lambda: command_of(request("true", **fields))) == "invalid-input"


@pytest.mark.parametrize("fields", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_more_than_allowed_is_too_large(fields: dict[str, Any]) -> None:
    assert case(lambda: command_of(request("true", **fields))) == "too-large"


def test_as_much_as_allowed_is_allowed() -> None:
    files = [injected("env-pointer", f"F{n}", bytes(8 * MIB)) for n in range(2)]
    command_of(
        request("true", env=[(f"A{n}", "x" * 65_536) for n in range(254)], stdin=bytes(4 * MIB), file_injections=files)
    )


def test_arguments_have_no_nul_and_a_bound() -> None:
    assert case(lambda: command_of(request("true", "a\0b"))) == "invalid-input"
    assert case(lambda: command_of(request("true", *["x"] * 4096))) == "too-large"
    assert case(lambda: command_of(request("true", "x" * MIB))) == "too-large"


def test_limits_become_those_of_the_operating_system() -> None:
    asked = limits(max_memory_bytes=1 << 64, max_cpu_secs=3, max_pids=4, max_open_files=5)
    command = command_of(request("true", limits=asked))
    most = (1 << 63) - 2
    assert command.limits == [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_AS, most, most),
        (resource.RLIMIT_CPU, 3, 4),
        (resource.RLIMIT_NOFILE, 5, 5),
    ]
    assert command.pids == 4


def test_without_limits_only_core_files_and_open_files_are_bounded() -> None:
    bounded = [(resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_NOFILE, 1024, 65_536)]
    for asked in (None, limits()):
        command = command_of(request("true", limits=asked))
        assert (command.limits, command.pids) == (bounded, None)


def test_times_and_rings_have_defaults_and_bounds() -> None:
    command = command_of(request("/usr/bin/true"))
    assert (command.lifetime_s, command.idle_s, command.retention_s) == (6 * 3600, 1800, 300)
    assert (command.ring_bytes, command.label, command.waits) == (MIB, "true", False)
    fields: dict[str, Any] = dict.fromkeys(("max_lifetime_ms", "idle_timeout_ms", "exit_retention_ms"), 1 << 63)
    command = command_of(request("true", log_ring_bytes=1 << 31, overflow="backpressure", **fields))
    assert (command.lifetime_s, command.idle_s, command.retention_s) == (6 * 3600, 6 * 3600, 3600)
    assert (command.ring_bytes, command.waits) == (8 * MIB, True)
    assert command_of(request("true", log_ring_bytes=1)).ring_bytes == 4096


def test_a_command_is_shown_as_a_shell_would_have_it_and_not_at_any_length() -> None:
    assert command_of(request("bash", "-c", "echo 'a b'")).text == """bash -c 'echo '"'"'a b'"'"''"""
    assert len(command_of(request("true", *["x" * 1000] * 100)).text) == 4096
