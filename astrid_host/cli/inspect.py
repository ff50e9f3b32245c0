"""`astrid-host inspect`: what a WebAssembly file imports and exports, and what of it this host cannot supply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import SAID_NO, USAGE, fail, told
from astrid_host.cli.tables import printable

if TYPE_CHECKING:
    from astrid_host.abi import CoreImport
    from astrid_host.wit import Packages

_DROP = "[resource-drop]"


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
        from astrid_host.errors import ModuleRefused
        from astrid_host.wit import Packages

        try:
            core = core_module(wasm)
        except ModuleRefused as error:
            fail(f"{file}: {error}", SAID_NO)
        packages = Packages(wit_folder())
        kinds = export_kinds(core)
        out = sys.stdout.write
        out(f"{file}: {'component' if core.was_component else 'core module'}, {len(wasm)} bytes\n\nimports:\n")
        for needed in core.imports:
            remark = _remark(packages, needed)
            out(f"  {printable(needed.module)} {printable(needed.name)} {needed.describe()}{remark}\n")
        out("\nexports:\n")
        for export in core.exports:
            kind = kinds.get(export.name)
            out(f"  {printable(export.name)} {export.describe()}{f'   ({kind.value})' if kind is not None else ''}\n")


def _remark(packages: Packages, needed: CoreImport) -> str:
    """What keeps the host from supplying an import, if anything does."""
    from astrid_host.abi import core_signature

    if needed.module == "env":
        return ""
    interface = packages.interface(needed.module)
    name = needed.name
    if interface is None or not (name in interface.functions or name.removeprefix(_DROP) in interface.types):
        return "   (unknown to this host)"
    if name not in interface.functions:
        return ""
    has = core_signature(interface.functions[name], "import")
    if (needed.params, needed.results) == (has.params, has.results):
        return ""
    return f"   (this host has ({', '.join(has.params)}) -> ({', '.join(has.results)}))"
