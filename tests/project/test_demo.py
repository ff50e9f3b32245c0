"""The demo does what it is there to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_the_demo_calls_tools_and_has_a_conversation_in_which_a_file_is_written_after_an_approval() -> None:
    command = [sys.executable, "-m", "astrid_host.cli.demo"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout[done.stdout.index("a conversation") :]
    tools = ("-> list_directory", "<- list_directory", "-> write_file", "?? approved: write_file", "<- write_file")
    places = [said.index(step) for step in (*tools, "has a line.")]
    assert places == sorted(places)
    assert "haiku.txt: tools in a small box" in said
    assert "No capsule provides a tool named no_such_tool" in done.stdout
