"""`astrid-host publish`: one event, from outside, on the bus of the host that runs."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, fail
from astrid_host.cli.served import run_with_running

if TYPE_CHECKING:
    from astrid_host.cli.served import Served


def publish(
    topic: Annotated[str, typer.Argument(help="Where, such as user.v1.prompt.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="What: any JSON value.")] = "{}",
    state_dir: options.StateDir = None,
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """Publish an event on a running host, and print its number."""
    import msgspec

    try:
        given = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        fail(f"the payload is not JSON: {error}; given {payload[:200]!r}, expected a value such as '{{}}'", USAGE)
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    async def body(host: Served) -> int:
        from astrid_host.errors import AstridError, HostClosed

        try:
            seq = await host.publish(topic, given)
        except HostClosed:
            raise
        except AstridError as error:
            fail(str(error), USAGE)
        sys.stdout.write(f"{seq}\n")
        return 0

    run_with_running(state_dir, principal, debug, body)
