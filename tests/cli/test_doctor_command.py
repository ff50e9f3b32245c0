"""`astrid-host doctor`: looks at what a host needs, says what to do, and exits with 1 when a host cannot run."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from astrid_host.cli import diagnosis
from astrid_host.hostcalls import process

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
NAMES = [
    "engine",
    "cache folder",
    "state folder",
    "pidfd",
    "openat2",
    "memfd",
    "max_map_count",
    "sandbox",
    "cargo",
    "node",
    "asc",
    "keyring",
]


@pytest.fixture(autouse=True)
def no_keyring(surroundings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No keyring of whoever runs the tests is written to."""
    surroundings["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


def test_everything_is_looked_at_and_what_is_not_well_has_a_mend(astrid: Astrid, tmp_path: Path) -> None:
    done = astrid("doctor", "--json", "--state-dir", tmp_path / "state")
    assert done.stderr == ""
    checks = json.loads(done.stdout)
    assert [check["name"] for check in checks] == NAMES
    assert all(check["found"] for check in checks)
    assert all(bool(check["mend"]) == (check["state"] != "ok") for check in checks)
    assert done.returncode == int(any(check["state"] == "wrong" for check in checks))
    by_name = {check["name"]: check for check in checks}
    assert by_name["engine"]["state"] == "ok"
    assert "an endless guest was stopped in" in by_name["engine"]["found"]
    assert not (tmp_path / "state").exists(), "looking makes nothing"


def test_people_get_a_line_for_each_and_what_to_do_below_it(astrid: Astrid, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "astrid.sqlite3").write_bytes(b"no database" * 100)
    done = astrid("doctor", "--state-dir", tmp_path / "state")
    assert (done.stderr, done.returncode) == ("", 1)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [line[7:].split("  ")[0] for line in lines] == NAMES
    assert "wrong  state folder" in done.stdout
    assert "is not a database" in done.stdout
    assert "-> do as it says, or give another folder with --state-dir" in done.stdout


def test_a_guest_that_is_not_stopped_in_time_is_a_fault_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> tuple[float, str]:
        return 0.0, "trap"

    monkeypatch.setattr(diagnosis, "_spin", never)
    check = diagnosis.engine()
    assert check.state == "wrong"
    assert "ended by trap, not by its time" in check.found


def test_a_cache_folder_of_somebody_elses_costs_compilations_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "astrid-host" / "modules"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "x.module").write_bytes(bytes(2_000_000))
    assert diagnosis.cache_folder() == ("cache folder", "ok", f"{folder}: 1 files, 2.0 MB", "")
    folder.chmod(0o777)
    check = diagnosis.cache_folder()
    assert check.state == "note"
    assert "chmod 700" in check.mend


@pytest.mark.parametrize("place", ["file/state", "link", "x" * 300, "/proc/self/state/below"])
def test_a_state_folder_that_cannot_be_made_is_wrong(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    check = diagnosis.state_folder(tmp_path / place)
    assert (check.state, check.mend) == ("wrong", "give another with --state-dir")
    assert f"{tmp_path / place} cannot be made: " in check.found


def test_what_was_made_on_the_way_to_a_folder_that_cannot_be_made_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, mode: int) -> None:
        if self.name == "state":
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        os.mkdir(self, mode)

    monkeypatch.setattr(Path, "mkdir", full)
    folder = tmp_path / "a" / "b" / "state"
    assert diagnosis.state_folder(folder).found == f"{folder} cannot be made: {folder}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_can_be_made_is_not_there_afterwards(tmp_path: Path) -> None:
    check = diagnosis.state_folder(tmp_path / "a" / "state")
    assert (check.state, check.found) == ("ok", f"{tmp_path / 'a' / 'state'} is made by the first host that runs")
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_is_a_file_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert diagnosis.state_folder(tmp_path / "state").state == "wrong"


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_programs_that_are_not_there_are_notes_with_what_to_install(programs: Path) -> None:
    for check, mend in (
        (diagnosis.cargo(), "rustup.rs"),
        (diagnosis.node(), "install Node.js"),
    ):
        assert check.state == "note"
        assert mend in check.mend


def test_programs_that_work_are_named_with_their_version(programs: Path) -> None:
    program(programs, "node", "echo v20.1.0")
    assert diagnosis.node() == ("node", "ok", "v20.1.0", "")


@pytest.mark.parametrize(
    ("works", "detail", "check"),
    [
        (True, "commands run in /usr/bin/bwrap", ("sandbox", "ok", "commands run in /usr/bin/bwrap", "")),
        (False, "it was not found: install it", ("sandbox", "note", "it was not found", "install it")),
    ],
)
def test_the_sandbox_is_what_children_run_in(
    monkeypatch: pytest.MonkeyPatch, works: bool, detail: str, check: tuple[str, ...]
) -> None:
    monkeypatch.setattr(process, "sandbox_state", lambda: process.SandboxState(works, detail))
    assert diagnosis.sandbox() == check


def test_a_rust_without_the_target_says_how_to_add_it(programs: Path, tmp_path: Path) -> None:
    program(programs, "cargo", 'echo "cargo 1.95.0"')
    program(programs, "rustc", f'echo "{tmp_path}"')
    check = diagnosis.cargo()
    assert (check.state, check.mend) == ("note", "rustup target add wasm32-unknown-unknown")
    (tmp_path / "lib" / "rustlib" / "wasm32-unknown-unknown" / "lib").mkdir(parents=True)
    assert diagnosis.cargo().state == "ok"


def test_too_few_memory_maps_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _path: "1024\n")
    check = diagnosis.max_map_count()
    assert check.state == "note"
    assert "sysctl -w vm.max_map_count=65530" in check.mend
