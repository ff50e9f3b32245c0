"""`astrid-host run`: serve until Ctrl-C."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, Boot, fail, run_with_host
from astrid_host.cli.tables import print_table, printable

if TYPE_CHECKING:
    from astrid_host.host import Host


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

        show(host)
        await trio.sleep_forever()

    boot = Boot(capsules or [], no_bundled, workspace, state_dir, principal, debug)
    run_with_host(boot, body, until_signal=True)


def show(host: Host) -> None:
    """On stdout, a table of what loaded, and why the rest did not."""
    infos = host.capsules.values()
    print_table(
        ("capsule", "version", "state", "tools", "handlers"),
        (
            (info.id, info.version or "-", info.state, ", ".join(info.tools) or "-", str(len(info.handlers)))
            for info in infos
        ),
    )
    for info in infos:
        if info.error:
            sys.stdout.write(f"{printable(info.id)}: {info.state}: {printable(info.error)}\n")
        if info.state == "ready" and info.inactive:
            rows = ", ".join(info.inactive)
            sys.stdout.write(f"{printable(info.id)}: rows that are never called: {printable(rows)}\n")
    sys.stdout.flush()
