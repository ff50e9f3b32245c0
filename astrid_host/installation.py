"""What this program itself runs: where its interpreter, its packages and its own modules lie.

Whoever writes there has code run outside of every sandbox when the program starts again, so no guest may.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from astrid_host.bundled import capsules_folder, wit_folder

_PACKAGE = Path(__file__).resolve().parent


def own_program(workspace: Path) -> tuple[Path, ...]:
    """The files and folders that this program is made of: the interpreter and its environment, all on `sys.path`, this
    package with what comes with it, and the script that was started.

    Args:
        workspace: of what is imported from the workspace itself, or from a folder that holds it, each module is named.
    """
    parts = (*_environment(), _PACKAGE, capsules_folder(), wit_folder(), *_modules(exposed_in(workspace)))
    return tuple(dict.fromkeys(parts))


def exposed_in(workspace: Path) -> list[Path]:
    """The entries of `sys.path` that are the workspace or hold it: a module that is put there may be imported by this program
    later, and nothing can keep that from being done.

    Args:
        workspace: its path.
    """
    real = workspace.resolve()
    return [entry for entry in _entries() if real.is_relative_to(entry.resolve())]


def _environment() -> Iterator[Path]:
    for place in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, sys.executable):
        if place:
            yield Path(place)
    yield from _entries()


def _entries() -> Iterator[Path]:
    """The entries of `sys.path`; the empty one is the folder that the program works in."""
    return (Path(entry or ".").absolute() for entry in list(sys.path))


def _modules(beside: list[Path]) -> Iterator[Path]:
    """The script that was started, and the modules and packages that were imported from these folders."""
    folders = {*beside, *(folder.resolve() for folder in beside)}
    named = list(sys.modules.items()) if beside else [("__main__", sys.modules.get("__main__"))]
    for name, module in named:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file:
            continue
        path = Path(file).absolute()
        path = path.parent if path.stem == "__init__" else path
        if name == "__main__" or ("." not in name and path.parent in folders):
            yield path
