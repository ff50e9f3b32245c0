"""`astrid-host run`: serve until Ctrl-C."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, Boot, fail, run_with_host

if TYPE_CHECKING:
    from astrid_host.host import Host

log = logging.getLogger("astrid_host.run")


def run(
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    principal: options.Principal = "default",
    log_format: options.LogFormat = "pretty",
    debug: options.Debug = False,
) -> None:
    """Boot, show what loaded, and serve until Ctrl-C or SIGTERM."""
    if log_format not in ("pretty", "json"):
        fail(f"--log-format is 'pretty' or 'json'; given {log_format!r}", USAGE)
    from astrid_host.cli import logs

    logs.set_up(log_format, logging.DEBUG if debug else logging.INFO)

    async def body(host: Host) -> int:
        import trio

        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            show(host)
            async for number in signals:
                log.info("%s: leaving", signal.Signals(number).name)
                break
        return 0

    run_with_host(Boot(capsules or [], no_bundled, workspace, state_dir, principal, debug), body)


def show(host: Host) -> None:
    """A table of what loaded, on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table("capsule", "version", "state", "tools", "handlers", box=None, pad_edge=False)
    for info in host.capsules.values():
        state = info.state if not info.error else f"{info.state}: {info.error}"
        table.add_row(info.id, info.version, state, ", ".join(info.tools) or "-", str(len(info.handlers)))
    Console().print(table)
