"""The options that every command which boots a host has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

NAME_BYTES = 255  # in one part of a path

CapsulePlaces: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--capsules", metavar="DIR", help="A capsule's folder, or one that contains some. Repeatable."),
]
NoBundled: TypeAlias = Annotated[
    bool, typer.Option("--no-bundled", help="Leave out the capsules that come with the host.")
]
Workspace: TypeAlias = Annotated[Path, typer.Option(metavar="DIR", help="What cwd:// means to capsules.")]


def _folder(given: str) -> Path:
    """A folder that may be made: it has a name that the system can have."""
    if not given:
        raise typer.BadParameter("the name of a folder is empty: give one, such as . for this folder")
    longest = max(len(os.fsencode(part)) for part in Path(given).absolute().parts)
    if longest > NAME_BYTES:
        raise typer.BadParameter(f"a name in the path has {longest} bytes; {NAME_BYTES} are allowed")
    return Path(given)


StateDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="DIR", parser=_folder, help="Databases, homes, and the drop-in folder `capsules`."),
]
AllowLocal: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--allow-local", metavar="HOST:PORT", help="A private address that capsules may reach. Repeatable."),
]
ProxyFromEnv: TypeAlias = Annotated[
    bool, typer.Option("--proxy-from-env", help="Ask servers through HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, but NO_PROXY.")
]


def _memory(given: str) -> int:
    """A size that the guests of a host may have."""
    from astrid_host.limits import bytes_of, value_of

    try:
        return int(value_of("memory", bytes_of(given)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Memory: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="SIZE", parser=_memory, help="What all guests may have together, such as 2GiB."),
]
Principal: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="On whose behalf.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
LogFormat: TypeAlias = Annotated[str, typer.Option(metavar="pretty|json", help="How log lines on stderr look.")]
