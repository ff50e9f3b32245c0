"""`astrid-host audit`: what guests did through the host, and whether the record of it is whole."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, fail, told
from astrid_host.cli.state import state_folder

if TYPE_CHECKING:
    from astrid_host.stores.audit import AuditRow, AuditStore, Head, Verification

_AGO = re.compile(r"(\d{1,9})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLUMNS = "{:<23}  {:<12}  {:<16}  {:<26}  {:<17}  {}\n"


def audit(
    verify: Annotated[bool, typer.Option("--verify", help="Verify the whole chain; exit 1 when it is broken.")] = False,
    expect: Annotated[
        str | None,
        typer.Option(metavar="SEQ:HASH", help="With --verify: a last row it named before, which has to be there."),
    ] = None,
    principal: Annotated[str | None, typer.Option(metavar="NAME", help="Only this principal's rows.")] = None,
    capsule: Annotated[str | None, typer.Option(metavar="NAME", help="Only this capsule's rows.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only rows since then: 30m, 2h, 7d, or a date and time (ISO 8601)."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Only the newest N; 0 for all.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of lines.")] = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Show what capsules did, or verify that nothing was changed.

    Rows are shown oldest first.
    """
    begin = None if since is None else _moment(since)
    head = None if expect is None else _head(expect)
    if head is not None and not verify:
        fail("--expect says what --verify has to find: give both", USAGE)
    with told(debug):
        from astrid_host.stores.database import FILE, Database

        folder = state_folder(state_dir)
        if not (folder / FILE).exists():
            fail(f"there is no audit in {folder}: no host has run with that state folder", SAID_NO)
        from contextlib import closing

        from astrid_host.stores.audit import AuditStore
        from astrid_host.stores.retention import seal_key

        with closing(Database.open(folder)) as database:
            store = AuditStore(database, key=seal_key(folder, make=False))
            if verify:
                code = _verify(store, head, as_json)
            else:
                rows = store.rows(principal=principal, capsule=capsule, since=begin, limit=limit or None)
                if as_json:
                    _print_json(rows)
                elif not _print(rows):
                    chosen = (principal, capsule, since) != (None, None, None)
                    sys.stderr.write(f"astrid-host: there are no rows{' of what was asked for' if chosen else ''}\n")
                code = 0
    raise typer.Exit(code)


def _verify(store: AuditStore, head: Head | None, as_json: bool) -> int:
    found = store.verify(head)
    if as_json:
        _print_verification(found)
    else:
        from astrid_host.cli.terminal import printable

        for fault in found.faults:
            sys.stdout.write(f"{fault.kind}: {printable(fault.text)}\n")
        state = "broken" if found.faults else "whole"
        sys.stdout.write(f"{found.rows} rows, the chain is {state}; its last row is {found.head}\n")
        if found.let_go:
            sys.stdout.write(
                f"{found.let_go} older rows, up to row {found.let_go_to}, were let go behind a checkpoint\n"
            )
    return SAID_NO if found.faults else 0


def _print_verification(found: Verification) -> None:
    import msgspec

    content = {
        "rows": found.rows,
        "whole": not found.faults,
        "faults": [fault._asdict() for fault in found.faults],
        "head": str(found.head),
        "let_go": found.let_go,
        "let_go_to": found.let_go_to,
    }
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n")


def _print(rows: Iterable[AuditRow]) -> int:
    """A line each, as they are read: there may be millions. Control characters are shown, not obeyed. Returns how many."""
    from astrid_host.cli.terminal import printable

    count = 0
    for row in rows:
        count += 1
        moment = datetime.datetime.fromtimestamp(row.time).isoformat(" ", "milliseconds")
        texts = (row.principal, row.capsule, row.function, row.verdict, row.target)
        sys.stdout.write(_COLUMNS.format(moment, *(printable(text).replace("\n", "\\n") for text in texts)))
    return count


def _print_json(rows: Iterable[AuditRow]) -> None:
    import msgspec

    first = True
    for row in rows:
        moment = datetime.datetime.fromtimestamp(row.time, datetime.UTC).isoformat()
        line = msgspec.json.encode({**row._asdict(), "time": moment}).decode()
        sys.stdout.write(f"{'[' if first else ','}\n  {line}")
        first = False
    sys.stdout.write("[]\n" if first else "\n]\n")


def _moment(text: str) -> float:
    """A moment in seconds since 1970; leaves when the text names none."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        import time

        return time.time() - int(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        fail(f"--since is 30m, 2h, 7d, or a date and time such as 2026-01-31T12:00; given {text!r}", USAGE)


def _head(text: str) -> Head:
    from astrid_host.stores.audit import Head

    try:
        return Head.parse(text)
    except ValueError:
        fail(f"--expect is SEQ:HASH as --verify names it; given {text!r}", USAGE)
