"""The core module of a capsule: the file itself, or the main module inside a component.

A component made by the usual tools holds one main module with canonical names, and small ones that glue it to its imports.
The main one exports `memory` and `astrid-hook-trigger` or `run`, and imports functions by interface id. It is run as it is,
on those names; how the component would have wired it otherwise is not looked at. Anything else is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from astrid_host.abi.binary import COMPONENT, CORE, MAGIC, CoreExport, CoreImport, Layout, read_layout, sections
from astrid_host.errors import ModuleRefused

DEPTH = 8
ENTRIES = ("astrid-hook-trigger", "run")
_CORE_MODULE, _COMPONENT = 1, 4


@dataclass(frozen=True, slots=True, eq=False)
class CoreModule:
    """A core module, and what it consists of."""

    wasm: bytes
    was_component: bool
    layout: Layout

    @property
    def imports(self) -> tuple[CoreImport, ...]:
        return tuple(self.layout.imports)

    @property
    def exports(self) -> tuple[CoreExport, ...]:
        return tuple(self.layout.exports)

    @property
    def custom_sections(self) -> tuple[str, ...]:
        return tuple(self.layout.customs)


def core_module(wasm: bytes) -> CoreModule:
    """The core module to run.

    Raises:
        ModuleRefused: it is no WebAssembly, is malformed, or is a component without one such module.
    """
    if not wasm.startswith(MAGIC) or len(wasm) < 8:
        raise ModuleRefused(_not_wasm(wasm))
    version = wasm[4:8]
    if version == CORE:
        return CoreModule(wasm, False, read_layout(wasm))
    if version != COMPONENT:
        raise ModuleRefused(f"WebAssembly of an unknown version ({version.hex(' ')}): expected a core module or a component")
    found: list[CoreModule] = []
    for inner in _modules(wasm, 8, len(wasm), 0):
        layout = read_layout(inner)
        names = {export.name for export in layout.exports}
        if "memory" in names and any(entry in names for entry in ENTRIES):
            found.append(CoreModule(inner, True, layout))
    if len(found) != 1:
        count = f"has {len(found)} core modules" if found else "has no core module"
        raise ModuleRefused(
            f"the component {count} that export 'memory' and {' or '.join(ENTRIES)}: expected exactly one, with the names "
            "of the canonical ABI; build the capsule with the Astrid SDK for wasm32-unknown-unknown"
        )
    return found[0]


def _modules(data: bytes, begin: int, end: int, depth: int) -> Iterator[bytes]:
    if depth > DEPTH:
        raise ModuleRefused(f"the component nests others more than {DEPTH} deep")
    for number, reader in sections(data, begin, end):
        if number not in (_CORE_MODULE, _COMPONENT):
            continue
        head = data[reader.at : reader.at + 8]
        expected = MAGIC + (CORE if number == _CORE_MODULE else COMPONENT)
        if reader.end - reader.at < 8 or head != expected:
            raise ModuleRefused(f"malformed WebAssembly: a section at byte {reader.at:#x} is not what it says it is")
        if number == _CORE_MODULE:
            yield data[reader.at : reader.end]
        else:
            yield from _modules(data, reader.at + 8, reader.end, depth + 1)


def _not_wasm(wasm: bytes) -> str:
    if wasm.lstrip().startswith((b"(module", b"(component", b";;")):
        return "it is WebAssembly text: expected the binary form; convert it with a tool such as wat2wasm"
    if wasm.startswith(MAGIC):
        return "it is cut off after a few bytes"
    return f"it is no WebAssembly: it begins with {wasm[:8]!r}, expected {MAGIC!r}"
