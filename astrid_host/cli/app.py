"""The commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from astrid_host import __version__
from astrid_host.cli import (
    approvals,
    audit,
    call,
    chat,
    check,
    config,
    doctor,
    inspect,
    publish,
    run,
    tail,
    tools,
    trust,
)

app = typer.Typer(
    name="astrid-host",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"astrid-host {__version__}\n")
        raise typer.Exit


@app.callback()
def astrid_host(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Run Astrid capsules: sandboxed WebAssembly tools, joined by an event bus."""


app.command("run")(run.run)
app.command("call")(call.call)
app.command("tools")(tools.tools)
app.command("chat")(chat.chat)
app.command("publish")(publish.publish)
app.command("tail")(tail.tail)
app.command("check")(check.check)
app.command("trust")(trust.trust)
app.command("inspect")(inspect.inspect)
app.add_typer(config.app, name="config")
app.add_typer(approvals.app, name="approvals")
app.command("audit")(audit.audit)
app.command("doctor")(doctor.doctor)
