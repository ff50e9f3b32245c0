"""The command line: one module for each command. Exit codes: 0 fine, 1 the tool or check said no, 2 wrong usage, 3 host failure.

What is slow to import is imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """The `astrid-host` command."""
    if sys.argv[1:2] == ["run"]:  # it leaves with 0, also before the host is there to listen for signals
        signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
    _open_standard_streams()
    from astrid_host.cli.app import app
    from astrid_host.cli.terminal import guard

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign is no failure
    guard()
    app(prog_name="astrid-host")


def _open_standard_streams() -> None:
    """Open what the caller closed (a service, cron, `>&-`) as a place where nothing comes from and everything may go.

    Before anything else is opened: a database or a socket that got the number 1 or 2 would receive what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115 - it lives as long as the process
            setattr(sys, name, stream)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
