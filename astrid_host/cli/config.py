"""`astrid-host config`: what is set for capsules. A running host with the same state folder sees a change within a second."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, Boot, check_name, fail, told
from astrid_host.cli.state import state_folder
from astrid_host.cli.tables import print_table
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.capsules.consent import Found
    from astrid_host.stores import Stores

app = typer.Typer(help="Show and set what capsules are configured with.", no_args_is_help=True, rich_markup_mode=None)

_NAME = re.compile(r"([a-z0-9-]+)\.(\S+)")
_INTEGER = re.compile(r"[+-]?\d+")
HIDDEN = "(secret)"

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="CAPSULE.KEY", help="A capsule's name, and a key of its [env].")
]
Value: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE",
        help="What to set, after -- when it begins with a dash; a secret is asked for, or read from stdin.",
    ),
]
ForPrincipal: TypeAlias = Annotated[
    str, typer.Option("--principal", metavar="NAME", help="Only for this principal; by default for everybody.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")]


class Row(NamedTuple):
    """One value as it is listed. `origin` is `set`, `default` or `unset`; of a secret, the value is None."""

    capsule: str
    key: str
    principal: str
    value: str | None
    secret: bool
    origin: str


@app.command("set", context_settings={"allow_extra_args": True})
def set_value(
    context: typer.Context,
    name: Name,
    value: Value = None,
    principal: ForPrincipal = "",
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Set a value for a capsule."""
    capsule, key = _split(name)
    whose = _whose(principal)
    _check_one(name, [value or "", *context.args])
    with _opened(capsules, no_bundled, state_dir, debug) as (stores, known):
        found = _found(known, capsule)
        manifest, kept = found.manifest, found.storage_id
        whose += f", for the capsule in {printable(str(found.folder))}" if found.is_given else ""
        row = manifest.env.get(key)
        if row is not None and row.type == "secret":
            if value is not None:
                fail(f"{name} is a secret: leave VALUE out, and type it when asked, or send it to stdin", USAGE)
            place = stores.secrets.set(principal, kept, key, _ask(_prompt(name, row.request)))
            where = "this user's keyring" if place == "keyring" else "a file that only this user can read"
            sys.stdout.write(f"{name} is set for {whose}; it is kept in {where}\n")
            return
        if value is None:
            fail(f"{name} is no secret: give its VALUE", USAGE)
        if row is None:
            declared = f"; it declares {', '.join(manifest.env)}" if manifest.env else ""
            sys.stderr.write(
                f"astrid-host: warning: the manifest of {capsule} does not declare {key}{printable(declared)}\n"
            )
        if any("\udc80" <= sign <= "\udcff" for sign in value):
            fail(f"the value is not UTF-8: {value!r}", USAGE)
        if row is not None and (fault := _fault(row.type, row.enum_values, value)) is not None:
            fail(f"{name} is {printable(fault)}; given {value!r}", USAGE)
        stores.settings.set(principal, kept, key, value)
        sys.stdout.write(f"{name} is set for {whose}\n")


@app.command("get")
def get_value(
    name: Name,
    principal: ForPrincipal = "",
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Print what a capsule gets for a key. A secret is not printed.

    Exits with 1 when nothing is set.
    """
    capsule, key = _split(name)
    _whose(principal)
    with _opened(capsules, no_bundled, state_dir, debug) as (stores, known):
        rows = [row for row in _rows(stores, [_found(known, capsule)]) if row.key == key]
        own = [row for row in rows if row.principal == principal] or [row for row in rows if not row.principal]
        if not own or own[0].origin == "unset":
            fail(f"{name} is not set", SAID_NO)
        text = HIDDEN if own[0].secret else own[0].value or ""
        sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")


@app.command("list")
def list_values(
    capsule: Annotated[str | None, typer.Argument(metavar="CAPSULE", help="Only this one's.")] = None,
    as_json: AsJson = False,
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """List what is declared and what is set. Secrets are not printed."""
    with _opened(capsules, no_bundled, state_dir, debug) as (stores, known):
        chosen = known.values() if capsule is None else [_found(known, capsule)]
        rows = _rows(stores, chosen)
        if as_json:
            sys.stdout.write(json.dumps([row._asdict() for row in rows], indent=2) + "\n")
            return
        print_table(("key", "principal", "value", "origin"), (_cells(row) for row in rows))


@app.command("unset")
def unset_value(
    name: Name,
    principal: ForPrincipal = "",
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Take back what was set.

    Exits with 1 when nothing was.
    """
    capsule, key = _split(name)
    whose = _whose(principal)
    with _opened(capsules, no_bundled, state_dir, debug) as (stores, known):
        done = False
        for kept in [known[capsule].storage_id] if capsule in known else _filed(stores, capsule):
            done |= stores.settings.unset(principal, kept, key)
            done |= stores.secrets.unset(principal, kept, key)
        if not done:
            fail(f"{name} was not set for {whose}", SAID_NO)
        sys.stdout.write(f"{name} is no longer set for {whose}\n")


@contextmanager
def _opened(
    capsules: list[Path] | None, no_bundled: bool, state_dir: Path | None, debug: bool
) -> Generator[tuple[Stores, dict[str, Found]]]:
    """The stores, and the capsules that a host would load."""
    with told(debug):
        from astrid_host.cli import logs
        from astrid_host.cli.consenting import consent_with
        from astrid_host.stores import Stores

        logs.set_up("pretty", logging.DEBUG if debug else logging.WARNING)
        boot = Boot(capsules or [], no_bundled, Path(), state_dir, "", debug)
        with closing(Stores(state_folder(state_dir))) as stores:
            consent = consent_with(stores.trusted, state_dir)
            known = dict(sorted(consent.survey(boot.places()).items()))
            for name, found in known.items():  # what older versions filed under a name alone
                if found.is_given and not consent.is_bundled_name(name):
                    stores.origins.claim(name, found.storage_id)
            yield stores, known


def _filed(stores: Stores, name: str) -> list[str]:
    """Under what something is kept for a name of which no capsule is here any more."""
    from astrid_host.stores import name_in

    kept = [row.capsule for row in stores.settings.all()] + [row.capsule for row in stores.secrets.all()]
    return [one for one in dict.fromkeys(kept) if name_in(one) == name]


def _found(known: Mapping[str, Found], capsule: str) -> Found:
    found = known.get(capsule)
    if found is None:
        fail(
            f"there is no capsule named {capsule!r} here, but {', '.join(known) or 'none at all'}: "
            "name its folder with --capsules",
            USAGE,
        )
    return found


def _split(name: str) -> tuple[str, str]:
    found = _NAME.fullmatch(name)
    if found is None or not found[2].isprintable():
        fail(f"{name!r} names no value: expected CAPSULE.KEY, such as openai-compat.base_url", USAGE)
    from astrid_host.stores.settings import RESERVED

    if found[2] in RESERVED:
        fail(f"{found[2]} is the host's to say and cannot be set", USAGE)
    return found[1], found[2]


def _whose(principal: str) -> str:
    """For whom a value is, in words; leaves when that is no principal."""
    if not principal:
        return "everybody"
    check_name(principal)
    return f"the principal {principal}"


def _check_one(name: str, values: list[str]) -> None:
    """Leave when the shell made several values of one."""
    if len(values) > 1:
        whole = shlex.quote(" ".join(values))
        fail(f"{len(values)} values are given for {name}, which has one: put it in quotes, such as {whole}", USAGE)


def _prompt(name: str, request: str | None) -> str:
    """What is asked for, in the host's words first: a capsule's own may pretend to be somebody else's."""
    return f"{name} ({' '.join(printable(request).split())}): " if request else f"{name}: "


def _ask(prompt: str) -> str:
    """A secret from the terminal, without echo, or else the first line of stdin."""
    if sys.stdin.isatty():
        from getpass import getpass

        value = getpass(prompt)
    else:
        try:
            value = sys.stdin.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            fail("what was sent to stdin is not UTF-8", USAGE)
    if not value:
        fail("a secret has at least one character; `config unset` takes it back", USAGE)
    return value


def _fault(kind: str, choices: tuple[str, ...], value: str) -> str | None:
    """What a value of that type is, when the given one is not."""
    if choices and value not in choices:
        return f"one of {', '.join(choices)}"
    if kind == "integer" and not _INTEGER.fullmatch(value):
        return "an integer"
    return None


def _rows(stores: Stores, capsules: Iterable[Found]) -> list[Row]:
    from astrid_host.hostcalls.sys import configured

    plain, secret = stores.settings.all(), stores.secrets.all()
    rows = []
    for each in capsules:
        manifest, kept = each.manifest, each.storage_id
        capsule = manifest.package.name
        hidden = {key for key, row in manifest.env.items() if row.type == "secret"}
        found = [Row(capsule, one.key, one.principal, one.value, False, "set") for one in plain if one.capsule == kept]
        found = [row for row in found if row.key not in hidden]
        found += [Row(capsule, of.key, of.principal, None, True, "set") for of in secret if of.capsule == kept]
        for_all = {row.key for row in found if not row.principal}
        for key in manifest.env:
            if key not in for_all:
                default = configured(manifest, key)
                found.append(Row(capsule, key, "", default or None, key in hidden, "default" if default else "unset"))
        rows += sorted(found, key=lambda row: (row.key, row.principal))
    return rows


def _cells(row: Row) -> tuple[str, str, str, str]:
    value = HIDDEN if row.secret and row.origin == "set" else printable(row.value or "-")
    return f"{row.capsule}.{row.key}", row.principal or "everybody", value, row.origin
