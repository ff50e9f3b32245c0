"""`astrid-host approvals`: what was allowed for good, to see, to add to and to revoke.

Allowances are read at each request, so what changes here counts at once for a host that runs with the same state folder.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, Boot, check_name, fail, told
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.stores.approvals import Allowed, ApprovalStore

app = typer.Typer(
    help="What capsules were allowed for good.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command("list")
def list_approvals(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """List what was allowed, oldest first."""
    with told(debug), _opened(state_dir) as store:
        rows = store.all()
        if as_json:
            import msgspec

            objects = [_object(row) for row in rows]
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(objects), indent=2).decode() + "\n")
            return
        from astrid_host.cli.tables import print_table
        from astrid_host.stores import name_in

        print_table(
            ("id", "allowed", "capsule", "principal", "workspace", "module", "since"),
            (
                (
                    str(row.id),
                    _allowance(row),
                    name_in(row.capsule),
                    row.principal,
                    row.workspace,
                    row.wasm_hash[:12],
                    _since(row),
                )
                for row in rows
            ),
        )


@app.command("allow")
def allow(
    capsule: Annotated[str, typer.Argument(help="The capsule, by its package's name.")],
    action: Annotated[
        str, typer.Argument(help="What it may do, such as 'git status': that, and that with more words.")
    ],
    resource: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only this resource, which is what the capsule names.")
    ] = None,
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """Allow a capsule something for good, as it is built now.

    It is allowed for one principal in one workspace.
    """
    from astrid_host.gates.allowances import Allowance

    check_name(principal)
    allowance = Allowance(action, resource)
    _check(allowance.action, allowance.resource)
    with told(debug):
        if not workspace.is_dir():
            fail(f"{workspace} is no folder: name the workspace in which it is to be allowed", USAGE)
        boot = Boot(capsules or [], no_bundled, workspace, state_dir, principal, debug)
        kept, wasm_hash = _build_of(boot, capsule)
        with _opened(state_dir) as store:
            from astrid_host.stores.approvals import Holder

            row = store.allow(Holder(principal, str(workspace.resolve()), kept, wasm_hash), *allowance)
    sys.stdout.write(f"{row.id}: {capsule} may {_allowance(row)} in the workspace {printable(row.workspace)}\n")


@app.command("revoke")
def revoke(
    numbers: Annotated[list[int], typer.Argument(metavar="ID...", help="As `approvals list` numbers them.")],
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Revoke what was allowed.

    Exits with 1 when one of the numbers is none; the others are revoked all the same.
    """
    with told(debug), _opened(state_dir) as store:
        from astrid_host.stores import name_in

        rows = {row.id: row for row in store.all()}
        unknown = []
        for number in dict.fromkeys(numbers):
            if number in rows and store.revoke(number):
                row = rows[number]
                sys.stdout.write(f"{number}: {name_in(row.capsule)} may no longer {_allowance(row)}\n")
            else:
                unknown.append(number)
    if unknown:
        names = ", ".join(map(str, unknown))
        fail(f"nothing was allowed under {names}: `astrid-host approvals list` shows the numbers", SAID_NO)


@contextmanager
def _opened(state_dir: Path | None) -> Generator[ApprovalStore]:
    """The allowances of a state folder."""
    from astrid_host.cli.state import state_folder
    from astrid_host.stores.approvals import ApprovalStore
    from astrid_host.stores.database import Database

    database = Database.open(state_folder(state_dir))
    try:
        yield ApprovalStore(database)
    finally:
        database.close()


def _check(action: str, resource: str | None) -> None:
    """Whatever could never match ends the command."""
    from astrid_host.gates.allowances import Allowance, has_operator, request_fault

    fault = request_fault(action, resource or "")
    if fault is not None:
        fail(fault, USAGE)
    asked = action if resource is None else resource
    if has_operator(asked):
        fail(
            f"{asked!r} has an operator of the shell in it, one of ; & | ` $ < > ( ) or a line's end, and is always asked for: "
            "allow the one command that it begins with",
            USAGE,
        )
    if not Allowance(action, resource).covers(action, asked):
        fail("the action is empty: say what is allowed, such as 'git status'", USAGE)


def _build_of(boot: Boot, name: str) -> tuple[str, str]:
    """Under which what belongs to the capsule that a host would load by this name is kept, and the BLAKE3 of its module."""
    from contextlib import closing

    from blake3 import blake3

    from astrid_host.capsules.files import read_wasm
    from astrid_host.cli.consenting import consent_with
    from astrid_host.cli.state import state_folder
    from astrid_host.stores import Database
    from astrid_host.stores.trust import TrustStore

    with closing(Database.open(state_folder(boot.state_dir))) as database:
        known = consent_with(TrustStore(database), boot.state_dir).survey(boot.places())
    found = known.get(name)
    if found is None:
        fail(f"there is no capsule {name!r}; there are: {', '.join(sorted(known)) or 'none'}", USAGE)
    return found.storage_id, blake3(read_wasm(found.folder, found.manifest)).hexdigest()


def _allowance(row: Allowed) -> str:
    from astrid_host.gates.allowances import Allowance

    return str(Allowance(row.action, row.resource))


def _since(row: Allowed) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(row.allowed_at).astimezone().strftime("%Y-%m-%d %H:%M")


def _object(row: Allowed) -> dict[str, object]:
    import datetime

    when = datetime.datetime.fromtimestamp(row.allowed_at, datetime.UTC).isoformat()
    from astrid_host.stores import name_in

    return {**row._asdict(), "capsule": name_in(row.capsule), "allowed_at": when}
