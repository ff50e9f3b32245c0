"""Hosts that `astrid-host run` serves in a process of its own: when they can be used, and when somebody watches them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import trio

from astrid_host.control.client import Running
from astrid_host.control.places import socket_path


def until_it_listens(process: subprocess.Popen[str]) -> None:
    """Wait for a host's line that says where it listens."""
    assert process.stdout is not None
    assert any(line.startswith("listening: ") for line in process.stdout), process.stderr and process.stderr.read()


def until_watched(state: Path, watchers: int = 1) -> None:
    """Wait until so many other commands are connected to the host with that state folder."""
    running = Running(socket_path(state), "default")
    give_up = time.monotonic() + 20
    while trio.run(running.ask, "GetStatus")["connected_clients"] < watchers + 1:
        assert time.monotonic() < give_up, "nobody watches"
        time.sleep(0.02)
