"""The commands, put together."""

from __future__ import annotations

import typer

from astrid_host.cli import approvals, audit, call, check, config, doctor, inspect, run, tools

app = typer.Typer(
    name="astrid-host",
    help="Run Astrid capsules: sandboxed WebAssembly tools, joined by an event bus.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("call")(call.call)
app.command("tools")(tools.tools)
app.command("check")(check.check)
app.command("inspect")(inspect.inspect)
app.add_typer(config.app, name="config")
app.add_typer(approvals.app, name="approvals")
app.command("audit")(audit.audit)
app.command("doctor")(doctor.doctor)
