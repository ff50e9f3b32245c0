"""`astrid-host check`: everything that is wrong with a capsule, before it runs."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, fail, told

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest, Problem


def check(
    path: Annotated[Path, typer.Argument(help="A capsule's folder, one that contains some, or a Capsule.toml.")],
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of lines.")] = False,
    debug: options.Debug = False,
) -> None:
    """Say everything that is wrong with a capsule before it runs.

    Each problem has file, line and what to write; exits with 1 when one of them is an error.
    """
    with told(debug):
        from astrid_host.capsules import find_folders
        from astrid_host.cli import logs

        logs.set_up("pretty", logging.DEBUG if debug else logging.CRITICAL)
        is_manifest = path.name == "Capsule.toml" and path.exists()
        if not is_manifest and not path.is_dir():
            fail(f"{path} is neither a folder nor a Capsule.toml: name a capsule's, or one that contains some", USAGE)
        folders = [path.parent] if is_manifest else find_folders([path])
        if not folders:
            fail(f"{path} is no capsule and contains none: there is no Capsule.toml", USAGE)
        problems = [problem for folder in folders for problem in _check(folder)]
        if as_json:
            _print_json(problems)
        else:
            for problem in problems:
                sys.stdout.write(f"{problem}\n")
            errors = sum(problem.severity == "error" for problem in problems)
            names = ", ".join(folder.name or str(folder.resolve()) for folder in folders)
            warnings = len(problems) - errors
            sys.stdout.write(f"{names}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}\n")
    raise typer.Exit(SAID_NO if any(problem.severity == "error" for problem in problems) else 0)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _check(folder: Path) -> list[Problem]:
    import trio

    from astrid_host import manifest
    from astrid_host.bundled import capsules_folder, contracts_files
    from astrid_host.convention import check_contracts, check_convention
    from astrid_host.gates import Contracts
    from astrid_host.probe import probe

    found, problems = manifest.check(folder / "Capsule.toml")
    if found is None:
        return problems
    has_errors = any(problem.severity == "error" for problem in problems)
    bundled = folder.resolve().parent == capsules_folder().resolve()
    contracts = Contracts.read(contracts_files())
    if not bundled:
        problems = [*problems, *_asks(found, folder)]
    problems = [*problems, *check_convention(found), *check_contracts(found, contracts, bundled=bundled)]
    if _has_module(folder, found) or not has_errors:  # else its errors say what is wrong with the module's file
        problems += trio.run(probe, folder, found)
    return sorted(problems, key=lambda problem: (problem.severity, problem.line, problem.column))


def _asks(found: Manifest, folder: Path) -> list[Problem]:
    """What it asks for that needs the operator's consent."""
    from astrid_host.capsules.files import read_manifest
    from astrid_host.cli.consenting import consent_with
    from astrid_host.errors import LoadError
    from astrid_host.manifest import Problem

    consent = consent_with(None, None)
    read = read_manifest(folder.resolve())
    try:
        asks = consent.judge(read, found, consent.bundled_manifests()).asks
    except LoadError:  # its module is missing, which is told elsewhere
        asks = consent.asks(found, consent.bundled_manifests())
    mend = f"it loads after consent only: {consent.command(folder.resolve())}"
    return [
        Problem("warning", f"it {ask.tells}: {ask.row}", folder / "Capsule.toml", ask.line, 1, mend)
        for ask in asks
        if ask.needed
    ]


def _has_module(folder: Path, manifest: Manifest) -> bool:
    """Whether the first component is a file inside the folder; nothing outside is read."""
    try:
        path = folder / manifest.components[0].file
        return path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except (IndexError, OSError, ValueError, RuntimeError):  # none, too long, no name at all, or links in a circle
        return False


def _print_json(problems: list[Problem]) -> None:
    import msgspec

    rows = [
        {
            "severity": problem.severity,
            "message": problem.message,
            "file": str(problem.file),
            "line": problem.line,
            "column": problem.column,
            "mend": problem.mend,
        }
        for problem in problems
    ]
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
