"""Telling real `run`, `astrid-install` and `astrid-upgrade` exports from the stubs that SDKs emit.

A stub does nothing that a host could see. So an export is a stub when no path of calls from it leads to an imported
function; whether release builds fold stubs into one function, or real ones for that matter, does not count. Calls through
tables may reach every function that stands in one. Code that cannot be read in full is taken for real.
"""

from __future__ import annotations

import enum

from astrid_host.abi.binary import Layout, Reader
from astrid_host.abi.component import CoreModule
from astrid_host.abi.opcodes import UnknownInstruction, called
from astrid_host.errors import ModuleRefused

NAMES = ("run", "astrid-install", "astrid-upgrade")


class ExportKind(enum.Enum):
    """What an export that SDKs also emit as a stub is."""

    STUB = "a stub"
    REAL = "real"
    UNSURE = "perhaps a stub"  # it reaches the host only through a table: start it and see


def export_kinds(core: CoreModule) -> dict[str, ExportKind]:
    """The kind of each of `run`, `astrid-install` and `astrid-upgrade` that the module exports."""
    indices = {export.name: export.index for export in core.exports if export.kind == "func" and export.name in NAMES}
    return {name: _kind(core, index) for name, index in indices.items()}


def _kind(core: CoreModule, index: int) -> ExportKind:
    try:
        if _reaches(core, index, through_tables=False):
            return ExportKind.REAL
        return ExportKind.UNSURE if _reaches(core, index, through_tables=True) else ExportKind.STUB
    except UnknownInstruction:
        return ExportKind.UNSURE


def _reaches(core: CoreModule, index: int, *, through_tables: bool) -> bool:
    """Whether a path of calls leads from a function to an imported one."""
    layout = core.layout
    waiting, seen, tables_seen = [index], set[int](), False
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current < layout.imported_functions:
            return True
        body = current - layout.imported_functions
        if body >= len(layout.bodies):
            raise ModuleRefused(f"malformed WebAssembly: there is no code for the function {current}")
        direct, indirect = called(Reader(core.wasm, *layout.bodies[body]))
        waiting += direct
        if indirect and through_tables and not tables_seen:
            tables_seen = True
            waiting += _in_tables(core.wasm, layout)
    return False


def _in_tables(wasm: bytes, layout: Layout) -> list[int]:
    """Functions that may stand in a table: all of them, when their segments have another form than the common ones."""
    if layout.elements is None:
        return []
    reader = Reader(wasm, *layout.elements)
    found: list[int] = []
    for _ in range(reader.count()):
        flags = reader.number()
        if flags not in (0, 1, 2, 3):
            return list(range(len(layout.functions)))
        if flags == 2:
            reader.number()
        if flags in (0, 2):
            _skip_constant(reader)
        if flags:
            reader.byte()
        found += [reader.number() for _ in range(reader.count())]
    return found


def _skip_constant(reader: Reader) -> None:
    opcode = reader.byte()
    if opcode in (0x41, 0x42):
        reader.skip_signed()
    elif opcode == 0x23:
        reader.number()
    else:
        raise UnknownInstruction(opcode)
    if reader.byte() != 0x0B:
        raise UnknownInstruction(opcode)
