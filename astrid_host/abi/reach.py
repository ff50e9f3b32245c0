"""Which imports the functions of the canonical ABI itself may call: the allocator, and what is called after a return.

They are entered while a host function's result is lowered, where no guest may wait. What is found here is a bound, never too
small: a call through a table counts as a call of everything that can be in one, which is what the module's element segments,
its globals and its code take references of. Where something cannot be told, everything may be called.
"""

from __future__ import annotations

from collections.abc import Iterable

from astrid_host.abi.binary import Reader, sections
from astrid_host.abi.component import CoreModule
from astrid_host.abi.opcodes import Survey, UnknownInstruction, survey

REALLOC, POST = "cabi_realloc", "cabi_post_"
GLOBALS, ELEMENTS = 6, 9


class _Unknown(Exception):
    """Something that this walk does not understand."""


def inner_imports(core: CoreModule) -> frozenset[tuple[str, str]]:
    """The imports, as (module, name), that `cabi_realloc` and `cabi_post_*` may call, directly or not.

    Raises:
        ModuleRefused: the module is malformed.
    """
    functions = [(one.module, one.name) for one in core.outline.imports if one.kind == "func"]
    starts = [
        export.index
        for export in core.exports
        if export.kind == "func" and (export.name == REALLOC or export.name.startswith(POST))
    ]
    try:
        reached = _reached(core, starts)
    except (_Unknown, UnknownInstruction):
        return frozenset(functions)
    return frozenset(functions[index] for index in reached if index < len(functions))


def _reached(core: CoreModule, starts: Iterable[int]) -> set[int]:
    """All functions that are called from these, by index."""
    surveys = _surveys(core)
    ahead, seen, through_tables = list(starts), set[int](), False
    while ahead:
        index = ahead.pop()
        if index in seen:
            continue
        seen.add(index)
        found = surveys.get(index)
        if found is None:  # an import
            continue
        ahead += found.calls
        if found.indirect and not through_tables:
            through_tables = True
            ahead += _referenced(core, surveys)
    return seen


def _surveys(core: CoreModule) -> dict[int, Survey]:
    first = core.outline.imported_functions
    return {first + at: survey(Reader(core.wasm, begin, end)) for at, (begin, end) in enumerate(core.outline.bodies)}


def _referenced(core: CoreModule, surveys: dict[int, Survey]) -> set[int]:
    """The functions that can be in a table or a reference."""
    # A reference that code takes stands among its calls, so what takes one counts as a whole.
    found = {called for one in surveys.values() if one.references for called in one.calls}
    for number, reader in sections(core.wasm):
        if number == ELEMENTS:
            for _ in range(reader.count()):
                _read_elements(reader, found)
        elif number == GLOBALS:
            for _ in range(reader.count()):
                if reader.byte() in (0x63, 0x64):
                    reader.skip_signed()
                reader.byte()
                _read_constant(reader, found)
    return found


def _read_elements(reader: Reader, found: set[int]) -> None:
    """One element segment."""
    flags = reader.number()
    if flags > 7:
        raise _Unknown
    if not flags & 1:  # active: it says where
        if flags & 2:
            reader.number()
        _read_constant(reader, found)
    expressions = bool(flags & 4)
    if flags & 3:
        if expressions:
            if reader.byte() in (0x63, 0x64):
                reader.skip_signed()
        elif reader.byte():
            raise _Unknown
    for _ in range(reader.count()):
        if expressions:
            _read_constant(reader, found)
        else:
            found.add(reader.number())


def _read_constant(reader: Reader, found: set[int]) -> None:
    """A constant expression."""
    while (opcode := reader.byte()) != 0x0B:
        if opcode in (0x41, 0x42, 0xD0):
            reader.skip_signed()
        elif opcode == 0x43:
            reader.skip(4)
        elif opcode == 0x44:
            reader.skip(8)
        elif opcode == 0x23:
            reader.number()
        elif opcode == 0xD2:
            found.add(reader.number())
        else:
            raise _Unknown
