"""The core module of a capsule: the file itself, or the main module inside a component.

A component made by the usual tools holds one main module with canonical names, and small ones that glue it to its imports
(they share its memory, or have none). The main one exports `memory` and `astrid-hook-trigger` or `run`, and imports functions
by interface id. It is run as it is, on those names. What the component says about it beyond that is not looked at: which
imports its instance is given, how they are lowered, and which adapters stand between. Tools name both alike, and a module
that needs more than its names say imports something that no host has, which is refused when it is linked.

Anything else is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from astrid_host.abi.binary import (
    COMPONENT,
    CORE,
    MAGIC,
    Bound,
    CoreExport,
    CoreImport,
    Outline,
    read_outline,
    sections,
)
from astrid_host.abi.encodings import check_encodings
from astrid_host.errors import ModuleRefused

DEPTH, MODULES = 8, 1_000
ENTRIES = ("astrid-hook-trigger", "run")
_ADVICE = "build the capsule with an Astrid SDK for wasm32-unknown-unknown"
_CORE_MODULE, _COMPONENT = 1, 4


class CoreModule(msgspec.Struct, frozen=True, eq=False):
    """A core module, and what it consists of.

    `wasm` are its own bytes; `was_component` says that they were found inside a component.
    """

    wasm: bytes
    was_component: bool
    outline: Outline

    @property
    def imports(self) -> tuple[CoreImport, ...]:
        """What it imports, in order."""
        return tuple(self.outline.imports)

    @property
    def exports(self) -> tuple[CoreExport, ...]:
        """What it exports, in order."""
        return tuple(self.outline.exports)

    @property
    def custom_sections(self) -> tuple[str, ...]:
        """The names of its custom sections, in order."""
        return tuple(self.outline.customs)


def core_module(wasm: bytes) -> CoreModule:
    """The core module to run.

    Args:
        wasm: a file's content: a core module or a component, in binary form.

    Raises:
        ModuleRefused: it is no WebAssembly, is malformed, has more sections, entries or names than any capsule, passes strings in
            another encoding than UTF-8, or is a component without exactly one main module.
    """
    bound = Bound()
    if not wasm.startswith(MAGIC) or len(wasm) < 8:
        raise ModuleRefused(_not_wasm(wasm))
    version = wasm[4:8]
    if version == CORE:
        outline = read_outline(wasm, bound)
        check_encodings(wasm)
        return CoreModule(wasm, False, outline)
    if version != COMPONENT:
        raise ModuleRefused(
            f"it is WebAssembly of version {version.hex(' ')}: expected a core module ({CORE.hex(' ')}) or a component "
            f"({COMPONENT.hex(' ')})"
        )
    inner: list[CoreModule] = []
    for module in _modules(wasm, 8, len(wasm), 0, bound):
        if len(inner) == MODULES:
            raise ModuleRefused(f"the component has more than {MODULES} core modules: it is not a capsule; {_ADVICE}")
        inner.append(CoreModule(module, True, read_outline(module, bound)))
    found = [module for module in inner if _is_main(module)]
    if len(found) == 1:
        check_encodings(wasm)
        return found[0]
    wanted = f"export 'memory' and '{ENTRIES[0]}' or '{ENTRIES[1]}'"
    if found:
        raise ModuleRefused(f"the component has {len(found)} core modules that {wanted}: expected one; {_ADVICE}")
    raise ModuleRefused(
        f"none of the component's {len(inner)} core modules has the names of the canonical ABI: expected one to {wanted}; "
        f"{_ADVICE}"
    )


def _is_main(module: CoreModule) -> bool:
    kinds = {export.name: export.kind for export in module.outline.exports}
    return kinds.get("memory") == "memory" and any(kinds.get(entry) == "func" for entry in ENTRIES)


def _modules(data: bytes, begin: int, end: int, depth: int, bound: Bound) -> Iterator[bytes]:
    if depth > DEPTH:
        raise ModuleRefused(f"the component nests others more than {DEPTH} deep")
    for number, reader in sections(data, begin, end, bound):
        if number not in (_CORE_MODULE, _COMPONENT):
            continue
        head = data[reader.at : reader.at + 8]
        expected = MAGIC + (CORE if number == _CORE_MODULE else COMPONENT)
        if reader.end - reader.at < 8 or head != expected:
            raise ModuleRefused(f"malformed WebAssembly: a section at byte {reader.at:#x} is not what it says it is")
        if number == _CORE_MODULE:
            yield data[reader.at : reader.end]
        else:
            yield from _modules(data, reader.at + 8, reader.end, depth + 1, bound)


def _not_wasm(wasm: bytes) -> str:
    if wasm.startswith(MAGIC):
        return f"it is cut off after {len(wasm)} bytes"
    if not wasm:
        return "it is empty"
    if wasm.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"(", b";;")):
        return "it is WebAssembly text: expected the binary form; convert it with a tool such as `wasm-tools parse`"
    return f"it is no WebAssembly: it begins with {wasm[:8]!r}, expected {MAGIC!r}"
