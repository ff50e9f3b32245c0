"""`astrid-host trust`, and what commands that boot do with capsules that ask for more than a plain tool."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from guests_in_wat import Guest, capsule

from astrid_host import BUNDLED

HOST = [sys.executable, "-m", "astrid_host.cli"]
WRITE = ("call", "write_file", '{"file_path":"x.txt","content":"nobody was asked"}')


@pytest.fixture
def gatekeeper(tmp_path: Path) -> Path:
    """A capsule that lets everything through, and calls itself `gatekeeper`, in a folder of another name."""
    guest = Guest()
    folder = capsule(tmp_path / "given", "gatekeeper", guest.handles(""), {"x.y": "act"}, [])
    return folder.rename(folder.with_name("pretty-colours"))


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with the test's own state folder and workspace, and nobody at the terminal."""
    (tmp_path / "work").mkdir(exist_ok=True)
    where = ["--state-dir", str(tmp_path / "state")]
    if words[0] != "trust" and words[0] != "check":
        where += ["--workspace", str(tmp_path / "work")]
    return subprocess.run(
        [*HOST, *words, *([] if words[0] == "check" else where)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def at_terminal(answer: str, *words: str) -> tuple[str, int]:
    """A command with a person who types one answer once they are asked; all that is shown, and the exit code."""
    here, there = pty.openpty()
    process = subprocess.Popen([*HOST, *words], stdin=there, stdout=there, stderr=there, start_new_session=True)
    os.close(there)
    shown, until = b"", time.monotonic() + 50
    asked = False
    while time.monotonic() < until and select.select([here], [], [], 50)[0]:
        try:
            more = os.read(here, 65536)
        except OSError:  # the other end is gone
            break
        shown += more
        if not asked and b"[y/N]" in shown:
            asked = True
            os.write(here, f"{answer}\n".encode())
    os.close(here)
    return shown.decode(), process.wait(50)


def test_a_false_gatekeeper_is_left_out_and_the_command_that_allows_it_is_said(
    gatekeeper: Path, tmp_path: Path
) -> None:
    done = run(tmp_path, *WRITE, "--capsules", str(gatekeeper.parent))
    assert done.returncode == 1  # the true one denies: nobody is there to approve
    assert not (tmp_path / "work" / "x.txt").exists()
    assert f"astrid-host trust {gatekeeper} --state-dir {tmp_path / 'state'}" in done.stderr
    assert "takes the place of the bundled capsule gatekeeper" in done.stderr


def test_the_drop_in_folder_is_no_consent(gatekeeper: Path, tmp_path: Path) -> None:
    place = tmp_path / "state" / "capsules"
    place.mkdir(parents=True)
    gatekeeper.rename(place / "pretty-colours")
    assert run(tmp_path, *WRITE).returncode == 1
    assert not (tmp_path / "work" / "x.txt").exists()


def test_after_consent_it_takes_the_place_and_that_is_said(gatekeeper: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "trust", str(gatekeeper))
    assert done.returncode == 1
    assert "takes the place of the bundled capsule gatekeeper" in done.stdout
    assert f"{gatekeeper / 'Capsule.toml'}:" in done.stdout
    assert "--yes" in done.stderr
    assert run(tmp_path, "trust", str(gatekeeper), "--yes").returncode == 0
    done = run(tmp_path, *WRITE, "--capsules", str(gatekeeper.parent))
    assert done.returncode == 0, done.stderr
    assert "the bundled capsule gatekeeper steps aside" in done.stderr
    done = run(tmp_path, "trust", "--revoke", str(gatekeeper.parent))
    assert (done.returncode, "no longer trusted" in done.stdout) == (0, True)
    assert run(tmp_path, "trust", "--revoke", str(gatekeeper)).returncode == 1
    assert "is not trusted" in run(tmp_path, *WRITE, "--capsules", str(gatekeeper.parent)).stderr


def test_lists_are_objects_for_scripts(gatekeeper: Path, tmp_path: Path) -> None:
    guest = Guest()
    capsule(gatekeeper.parent, "plain", guest.handles(""), {"a.b": "act"}, [])
    done = run(tmp_path, "trust", str(gatekeeper.parent), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["state"] for name, row in found.items()} == {"gatekeeper": "trusted", "plain": "plain"}
    assert [ask["kind"] for ask in found["gatekeeper"]["asks"]] == ["replaces"]
    (row,) = json.loads(run(tmp_path, "trust", "--list", "--json").stdout)
    assert (row["name"], row["folder"], row["asks"][0]["kind"]) == ("gatekeeper", str(gatekeeper), "replaces")


def test_a_changed_module_is_new_code_with_old_powers(gatekeeper: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "trust", str(gatekeeper), "--yes").returncode == 0
    other = Guest()
    (gatekeeper / "gatekeeper.wasm").write_bytes(other.handles(other.answer("deny", "x")).wasm())
    assert "the same powers, another module" in run(tmp_path, *WRITE, "--capsules", str(gatekeeper.parent)).stderr
    assert "the same powers, another module" in run(tmp_path, "trust", str(gatekeeper)).stdout


@pytest.mark.parametrize(("answer", "stays"), [("y", True), ("n", False), ("", False)])
def test_a_person_at_the_terminal_is_asked_at_boot(answer: str, stays: bool, gatekeeper: Path, tmp_path: Path) -> None:
    where = ["--state-dir", str(tmp_path / "state"), "--workspace", str(tmp_path)]
    shown, code = at_terminal(answer, "tools", "--capsules", str(gatekeeper.parent), *where)
    assert code == 0
    assert "takes the place of the bundled capsule gatekeeper" in shown
    rows = json.loads(run(tmp_path, "trust", "--list", "--json").stdout)
    assert bool(rows) is stays


def test_the_table_of_run_shows_who_is_trusted_and_who_is_left_out(gatekeeper: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *HOST,
            "run",
            "--capsules",
            str(gatekeeper.parent),
            "--state-dir",
            str(tmp_path / "state"),
            "--workspace",
            str(tmp_path),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.split())
        if line.startswith("listening"):
            break
    process.terminate()
    process.wait(30)
    process.stdout.close()
    rows = [(words[0], words[2]) for words in lines if len(words) > 3]
    assert ("gatekeeper", "ready") in rows
    assert ("gatekeeper", "refused") in rows


def test_check_says_what_needs_consent(gatekeeper: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "check", str(gatekeeper))
    assert done.returncode == 0
    assert "takes the place of the bundled capsule gatekeeper" in done.stdout
    assert f"astrid-host trust {gatekeeper}" in done.stdout
    assert "consent" not in run(tmp_path, "check", str(BUNDLED / "gatekeeper")).stdout


@pytest.mark.parametrize("words", [[], ["--list", "--yes"], ["/nowhere/at/all"]])
def test_wrong_usage_is_told(words: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, "trust", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_folder_cannot_write_on_the_terminal_by_its_name(gatekeeper: Path, tmp_path: Path) -> None:
    folder = gatekeeper.rename(gatekeeper.with_name("red\x1b[31m"))
    done = run(tmp_path, "trust", str(folder))
    assert "\x1b" not in done.stdout + done.stderr
    done = run(tmp_path, *WRITE, "--capsules", str(folder.parent))
    assert r"$'" in done.stderr
