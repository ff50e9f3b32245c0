"""`astrid-host tools`: what can be called."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import Boot
from astrid_host.cli.served import run_with_served
from astrid_host.cli.tables import print_table

if TYPE_CHECKING:
    from astrid_host.cli.served import Served


def tools(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    allow_local: options.AllowLocal = None,
    proxy_from_env: options.ProxyFromEnv = False,
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """List the tools that the loaded capsules describe."""
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    async def body(host: Served) -> int:
        found = await host.describe()
        if as_json:
            import msgspec

            sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
            return 0
        if not found:
            sys.stderr.write(f"astrid-host: {_none(len(await host.ask('ListCapsules')))}\n")
            return 0
        print_table(
            ("tool", "capsule", "changes things", "description"),
            ((tool.name, tool.capsule, "yes" if tool.mutable else "no", tool.description) for tool in found),
        )
        return 0

    local = tuple(allow_local or ())
    boot = Boot(
        capsules or [], no_bundled, workspace, state_dir, principal, debug, local, proxy_from_env=proxy_from_env
    )
    run_with_served(context, boot, body)


def _none(loaded: int) -> str:
    """Why there is nothing to list, and what to do."""
    if not loaded:
        return "no capsule is loaded, so none provides tools: name a capsule's folder with --capsules"
    return f"none of the {loaded} loaded capsules provides tools: `astrid-host check` says what a manifest lacks"
