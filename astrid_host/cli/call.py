"""`astrid-host call`: one tool call."""

from __future__ import annotations

import logging
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.answering import Unattended, answer_at_terminal, provider
from astrid_host.cli.boot import SAID_NO, USAGE, Boot, fail, run_with_host

if TYPE_CHECKING:
    from astrid_host.host import Host


def call(
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
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """Call a tool and print its result; exit 1 when the result is an error."""
    given = _read(tool, arguments)
    if not timeout > 0:
        fail(f"--timeout must be more than 0 seconds; given {timeout:g}", USAGE)
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    call_id = f"call-{secrets.token_hex(4)}"
    asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    nobody = Unattended(call_id, principal, yes)

    async def body(host: Host) -> int:
        import trio

        nobody.capsule = provider(host, tool)
        async with trio.open_nursery() as nursery:
            if asks:
                await nursery.start(answer_at_terminal, host, principal)
            result = await host.tools.execute(tool, given, call_id=call_id, timeout=timeout)
            nursery.cancel_scope.cancel()
        sys.stdout.write(result.content + "\n")
        for line in nobody.denied:
            sys.stderr.write(f"astrid-host: {line}\n")
        return SAID_NO if result.is_error else 0

    run_with_host(
        Boot(capsules or [], no_bundled, workspace, state_dir, principal, debug, tuple(allow_local or ())),
        body,
        approvals=None if asks else nobody,
    )


def _read(tool: str, arguments: str) -> object:
    """The arguments as JSON; whatever is wrong with what was typed ends the command."""
    import msgspec

    if not _is_text(tool):
        fail(f"{tool!r} is not UTF-8: expected the name of a tool, as `astrid-host tools` lists them", USAGE)
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        fail(
            f"the arguments are not JSON: {error}; given {arguments[:200]!r}, expected an object such as '{{}}'", USAGE
        )


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8 before Python read it."""
    return not any("\udc80" <= sign <= "\udcff" for sign in argument)
