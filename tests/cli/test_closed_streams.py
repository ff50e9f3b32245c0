"""Commands whose standard streams are closed, full, or have no reader: what was done is done, and is told where it can be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = ["call", "word_count", '{"text":"a b"}']
REPORTS = ["approvals", "list"]
ALL = "<&- >&- 2>&-"


def run(tmp_path: Path, arguments: list[str], streams: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command by a shell that redirects its streams."""
    state = [] if arguments[0] == "check" else ["--state-dir", str(tmp_path / "state")]
    command = [sys.executable, "-m", "astrid_host.cli", *arguments, *state]
    return subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", ALL, "<&- 2>&-"])
def test_a_tool_that_ran_is_not_told_as_failed_whatever_is_closed(tmp_path: Path, streams: str) -> None:
    done = run(tmp_path, CALL, streams)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout == (
        b"" if ">&- " in f"{streams} ".replace("2>&-", "") else b'{"words":2,"characters":3,"lines":1}\n'
    )


@pytest.mark.parametrize("arguments", [REPORTS, ["config", "list"], ["tools"], ["check", "."]])
def test_no_command_ends_in_a_traceback_when_all_is_closed(tmp_path: Path, arguments: list[str]) -> None:
    assert run(tmp_path, arguments, ALL).returncode == (2 if arguments[0] == "check" else 0)


def test_a_question_that_nobody_can_be_asked_is_denied(tmp_path: Path) -> None:
    done = run(tmp_path, ["call", "write_file", '{"file_path":"a","content":""}'], "<&-")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"AttributeError" not in done.stdout + done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
@pytest.mark.parametrize("streams", [">/dev/full", ">/dev/full 2>/dev/full"])
def test_output_that_cannot_be_written_is_a_failure_that_is_told(tmp_path: Path, streams: str) -> None:
    done = run(tmp_path, CALL, streams)
    assert done.returncode == 3
    assert (b"No space left" in done.stderr) is ("2>" not in streams)
    assert b"Traceback" not in done.stderr


def test_a_reader_that_is_gone_is_no_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, CALL, "| true")
    assert done.stderr == b""


def test_a_stream_that_cannot_show_a_sign_shows_an_escape(tmp_path: Path) -> None:
    done = run(tmp_path, ["call", "reverse_text", '{"text":"aé漢"}'], "", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (done.stdout, done.returncode) == (b"\\u6f22\\xe9a\n", 0)
