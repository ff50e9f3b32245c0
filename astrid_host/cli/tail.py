"""`astrid-host tail`: the events of the host that runs, as they come, until Ctrl-C. It only watches."""

from __future__ import annotations

import logging
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, fail
from astrid_host.cli.served import run_with_running
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.cli.served import Served
    from astrid_host.payloads.outside import HostEvent


def tail(
    pattern: Annotated[str, typer.Argument(help="Topics: * is one segment, a trailing .* one or more.")],
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
    state_dir: options.StateDir = None,
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this principal's; everybody's by default.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Show the events of a running host as they come.

    Each is a line: time, topic, principal, payload; on a terminal, as much of it as there is room for.
    """
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    async def body(host: Served) -> int:
        from astrid_host.errors import AstridError, HostClosed

        try:
            async with host.subscribe(observe=[pattern], everybody=principal is None) as events:
                async for event in events:
                    sys.stdout.write((_json(event) if as_json else _line(event)) + "\n")
                    sys.stdout.flush()
        except HostClosed:
            raise
        except AstridError as error:
            fail(str(error), USAGE)
        return 0

    run_with_running(state_dir, "default" if principal is None else principal, debug, body, until_signal=True)


def _line(event: HostEvent) -> str:
    import msgspec

    when = event.timestamp.astimezone().isoformat(" ", "milliseconds")[:23]
    payload = msgspec.json.encode(event.payload).decode()
    line = f"{when}  {event.topic}  {event.principal or '-'}  {payload}"
    if not sys.stdout.isatty():
        return printable(line)
    from astrid_host.cli.screens import shortened

    return shortened(line, shutil.get_terminal_size().columns)


def _json(event: HostEvent) -> str:
    import msgspec

    return msgspec.json.encode(
        {
            "time": event.timestamp,
            "topic": event.topic,
            "principal": event.principal,
            "payload": event.payload,
            "source_id": event.source_id,
            "seq": event.seq,
        }
    ).decode()
