"""`astrid-host call`: one tool call."""

from __future__ import annotations

import logging
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.answering import answer_at_terminal
from astrid_host.cli.boot import SAID_NO, USAGE, Boot, fail, where
from astrid_host.cli.keyboard import Keyboard
from astrid_host.cli.served import run_with_served

if TYPE_CHECKING:
    from astrid_host.cli.served import Served
    from astrid_host.control.executed import Approvals


def call(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments, a JSON object.")] = "{}",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for the result.")] = 60.0,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve what the called tool asks for; else a person is asked.")
    ] = False,
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    allow_local: options.AllowLocal = None,
    proxy_from_env: options.ProxyFromEnv = False,
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """Call a tool and print its result. Exits with 1 when the result is an error."""
    given = _read(tool, arguments)
    if not timeout > 0:
        fail(f"--timeout must be more than 0 seconds; given {timeout:g}", USAGE)
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    keyboard = Keyboard()
    approvals: Approvals = "approve" if yes else "ask" if keyboard.is_terminal else "deny"

    async def body(host: Served) -> int:
        import trio

        async with trio.open_nursery() as nursery:
            if approvals == "ask":
                await nursery.start(answer_at_terminal, host, keyboard)
            call_id = f"call-{secrets.token_hex(16)}"
            done = await host.execute(tool, given, call_id=call_id, timeout=timeout, approvals=approvals)
            nursery.cancel_scope.cancel()
        sys.stdout.write(done.result.content + "\n")
        if done.denied:
            options = where((await host.about()).workspace, state_dir)
            for line in done.denied:
                sys.stderr.write(f"astrid-host: {_complete(line, options)}\n")
        return SAID_NO if done.result.is_error else 0

    local = tuple(allow_local or ())
    boot = Boot(
        capsules or [], no_bundled, workspace, state_dir, principal, debug, local, proxy_from_env=proxy_from_env
    )
    run_with_served(context, boot, body)


def _complete(line: str, options: str) -> str:
    """A line that may end with the command that allows what was denied, for the host that denied it."""
    return f"{line} {options}" if options and "astrid-host approvals allow" in line else line


def _read(tool: str, arguments: str) -> object:
    """The arguments as JSON; whatever is wrong with what was typed ends the command."""
    import msgspec

    if not _is_text(tool):
        fail(f"{tool!r} is not UTF-8: expected the name of a tool, as `astrid-host tools` lists them", USAGE)
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        fail(
            f"the arguments are not JSON: {error}; given {arguments[:200]!r}, expected an object such as '{{}}'", USAGE
        )
    if not isinstance(given, dict):
        fail(f"the arguments are no JSON object: given {arguments[:200]!r}, expected one such as '{{}}'", USAGE)
    return given


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8 before Python read it."""
    return not any("\udc80" <= sign <= "\udcff" for sign in argument)
