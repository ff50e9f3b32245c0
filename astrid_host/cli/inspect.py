"""`astrid-host inspect`: what a WebAssembly file imports and exports, and whether a host would load it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, fail, told


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE.wasm", help="A component or a core module.")],
    debug: options.Debug = False,
) -> None:
    """Show imports, exports, ABI and limits of a WebAssembly file."""
    with told(debug):
        try:
            wasm = file.read_bytes()
        except OSError as error:
            fail(f"{file} cannot be read: {error.strerror}", USAGE)
        from astrid_host.abi import core_module, export_kinds
        from astrid_host.bundled import wit_folder
        from astrid_host.wit import Packages

        core = core_module(wasm)
        packages = Packages(wit_folder())
        out = sys.stdout.write
        out(f"{file}: {'component' if core.was_component else 'core module'}, {len(wasm)} bytes\n\nimports:\n")
        for needed in core.imports:
            interface = packages.interface(needed.module)
            known = needed.module == "env" or (interface is not None and _has(interface, needed.name))
            out(f"  {needed.module} {needed.name} {needed.describe()}{'' if known else '   (unknown to this host)'}\n")
        out("\nexports:\n")
        kinds = export_kinds(core)
        for export in core.exports:
            kind = kinds.get(export.name)
            out(f"  {export.name} {export.describe()}{f'   ({kind.value})' if kind is not None else ''}\n")


def _has(interface: object, name: str) -> bool:
    from astrid_host.wit.types import Interface

    assert isinstance(interface, Interface)
    return name in interface.functions or name.removeprefix("[resource-drop]") in interface.types
