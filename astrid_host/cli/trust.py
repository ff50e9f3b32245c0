"""`astrid-host trust`: shows what capsules ask for, and records the operator's consent to exactly what lies there now."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, fail, told
from astrid_host.cli.state import state_folder
from astrid_host.cli.tables import print_table
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.capsules import Consent, TrustRequest
    from astrid_host.capsules.files import Files
    from astrid_host.manifest import Manifest
    from astrid_host.stores.trust import TrustStore

State = Literal["bundled", "plain", "trusted", "asked", "refused"]


class Judged(NamedTuple):
    """One folder: its package, what became of it, and the question, with the bytes that it is about, where there is one."""

    name: str
    folder: Path
    state: State
    request: TrustRequest | None = None
    files: Files | None = None


def trust(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="A capsule's folder, or one that contains some.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to what is shown; else a person is asked.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List what was consented to.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take consent back.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of text.")] = False,
    state_dir: options.StateDir = None,
    debug: options.Debug = False,
) -> None:
    """Show what a capsule asks for beyond a plain tool, and consent.

    Consent is to exactly the files that lie there now: whatever changes in them is asked about again. Exits with 1 when one of
    the capsules is not trusted.
    """
    if list_ and (paths or revoke or yes):
        fail("--list goes alone: it lists all that was consented to", USAGE)
    if not list_ and not paths:
        fail("name a capsule's folder, or one that contains some; --list shows what was consented to", USAGE)
    with told(debug), _opened(state_dir) as records:
        if list_:
            _list(records, as_json)
        elif revoke:
            _revoke(records, paths or [])
        else:
            _trust(records, paths or [], state_dir, yes, as_json)


@contextmanager
def _opened(state_dir: Path | None) -> Generator[TrustStore]:
    import logging

    from astrid_host.cli import logs
    from astrid_host.stores import Database
    from astrid_host.stores.trust import TrustStore

    logs.set_up("pretty", logging.ERROR)
    with closing(Database.open(state_folder(state_dir))) as database:
        yield TrustStore(database)


def _trust(records: TrustStore, paths: list[Path], state_dir: Path | None, yes: bool, as_json: bool) -> None:
    from astrid_host.cli.consenting import consent_with, shown

    consent = consent_with(records, state_dir)
    bundled = consent.bundled_manifests()
    done: list[Judged] = []
    for folder in _folders(paths):
        found = _judge(consent, folder, bundled)
        if found.request is not None and found.files is not None:
            if not as_json:
                sys.stdout.write(f"{shown(found.request)}\n")
                sys.stdout.flush()
            agreed = yes or (not as_json and _agreed())
            if agreed:
                consent.record(found.request, found.files)
            found = found._replace(state="trusted" if agreed else "refused")
        done.append(found)
        if not as_json:
            sys.stdout.write(f"{printable(_said(found))}\n")
    if as_json:
        _print_json([_object(found) for found in done])
    if any(found.state == "refused" for found in done):
        fail("not all of them are trusted: --yes consents without a question", SAID_NO)


def _folders(paths: list[Path]) -> list[Path]:
    from astrid_host.capsules import find_folders

    for path in paths:
        if not path.is_dir():
            fail(f"{str(path)!r} is no folder: name a capsule's, or one that contains some", USAGE)
    folders = list(dict.fromkeys(folder.resolve() for folder in find_folders(paths)))
    if not folders:
        fail(f"{', '.join(map(str, paths))}: there is no capsule, neither there nor one level below", USAGE)
    return folders


def _judge(consent: Consent, folder: Path, bundled: list[Manifest]) -> Judged:
    """Read one folder, and say whether there is a question; leaves when its manifest has errors."""
    from astrid_host.capsules.files import read_manifest

    read = read_manifest(folder)
    manifest = read.manifest
    if manifest is None or read.errors:
        fail(printable("; ".join(map(str, read.errors))), SAID_NO)
    name = manifest.package.name
    if consent.is_bundled(folder):
        return Judged(name, folder, "bundled")
    verdict = consent.judge(read, manifest, bundled)
    if verdict.original or not verdict.asks:
        return Judged(name, folder, "bundled" if verdict.original else "plain")
    if verdict.trusted:
        return Judged(name, folder, "trusted")
    request, files = consent.question(read, manifest, verdict)
    return Judged(name, folder, "asked", request, files)


def _agreed() -> bool:
    import trio

    from astrid_host.cli.consenting import agreed
    from astrid_host.cli.keyboard import Keyboard

    keyboard = Keyboard()
    return keyboard.is_terminal and trio.run(agreed, keyboard)


def _said(found: Judged) -> str:
    words = {
        "bundled": "it came with the host, or is an exact copy: it needs no consent",
        "plain": "it asks for nothing that needs consent",
        "trusted": "it is trusted as it lies there now",
        "asked": "",
        "refused": "it is not trusted",
    }
    return f"{found.name} in {found.folder}: {words[found.state]}"


def _list(records: TrustStore, as_json: bool) -> None:
    rows = records.all()
    if as_json:
        _print_json(
            [
                {
                    "name": row.package,
                    "folder": str(row.folder),
                    "digest": row.digest,
                    "wasm_hash": row.wasm_hash,
                    "trusted_at": _time(row.trusted_at).isoformat(),
                    "asks": [{"kind": ask.kind, "tells": ask.tells, "row": ask.row} for ask in row.asks],
                }
                for row in rows
            ]
        )
        return
    print_table(
        ("capsule", "folder", "module", "since", "it may"),
        (
            (
                row.package,
                str(row.folder),
                row.wasm_hash[:12],
                _time(row.trusted_at).astimezone().strftime("%Y-%m-%d %H:%M"),
                ", ".join(dict.fromkeys(ask.kind for ask in row.asks)),
            )
            for row in rows
        ),
    )


def _revoke(records: TrustStore, paths: list[Path]) -> None:
    kept = records.all()
    unknown = []
    for path in paths:
        place = path.resolve()
        found = [row for row in kept if place in (row.folder, row.folder.parent)]
        for row in found:
            records.revoke(row.folder)
            sys.stdout.write(f"{printable(f'{row.package} in {row.folder}')}: it is no longer trusted\n")
        if not found:
            unknown.append(str(path))
    if unknown:
        fail(f"nothing was consented to in {printable(', '.join(unknown))}: --list shows what was", SAID_NO)


def _object(found: Judged) -> dict[str, object]:
    request = found.request
    asks = [] if request is None else request.asks
    return {
        "name": found.name,
        "folder": str(found.folder),
        "state": found.state,
        "change": "" if request is None else request.change,
        "asks": [
            {"kind": ask.kind, "tells": ask.tells, "row": ask.row, "place": ask.place, "needed": ask.needed}
            for ask in asks
        ],
    }


def _print_json(rows: list[dict[str, object]]) -> None:
    import json

    sys.stdout.write(json.dumps(rows, indent=2) + "\n")


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
