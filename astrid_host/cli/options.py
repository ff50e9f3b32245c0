"""The options that every command which boots a host has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

CapsulePlaces: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--capsules", metavar="DIR", help="A capsule's folder, or one that contains some. Repeatable."),
]
NoBundled: TypeAlias = Annotated[
    bool, typer.Option("--no-bundled", help="Leave out the capsules that come with the host.")
]
Workspace: TypeAlias = Annotated[Path, typer.Option(metavar="DIR", help="What cwd:// means to capsules.")]
StateDir: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Databases, homes, and the drop-in folder `capsules`.")
]
AllowLocal: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--allow-local", metavar="HOST:PORT", help="A private address that capsules may reach. Repeatable."),
]
Principal: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="On whose behalf.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Log everything; show tracebacks.")]
LogFormat: TypeAlias = Annotated[str, typer.Option(metavar="pretty|json", help="How log lines on stderr look.")]
