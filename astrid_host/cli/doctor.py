"""`astrid-host doctor`: what this machine gives a host, and what to do about the rest."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, told
from astrid_host.cli.state import state_folder


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of lines.")] = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Say whether a host can run here, and what to do.

    Looks at engine, folders, kernel, sandbox, toolchains and keyring; exits with 1 when a host cannot run.
    """
    with told(debug):
        from astrid_host.cli import logs
        from astrid_host.cli.diagnosis import diagnose

        logs.set_up("pretty", logging.DEBUG if debug else logging.CRITICAL)
        checks = diagnose(state_folder(state_dir))
        if as_json:
            import msgspec

            rows = [check._asdict() for check in checks]
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
        else:
            from astrid_host.cli.terminal import printable

            for check in checks:
                sys.stdout.write(f"{check.state:<5}  {check.name:<13}  {printable(check.found)}\n")
                if check.mend:
                    sys.stdout.write(f"{'':<22}-> {printable(check.mend)}\n")
    raise typer.Exit(SAID_NO if any(check.state == "wrong" for check in checks) else 0)
