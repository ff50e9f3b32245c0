"""Telling real `run`, `astrid-install` and `astrid-upgrade` exports from the stubs that SDKs emit.

Calling a stub does nothing that the host could see. Whether exports share one function says nothing: release builds fold
equal bodies, real ones too, and debug builds fold none. So a stub is only what provably returns at once: neither it nor
what it calls has an import to call, a call through a table or reference, a loop, or an instruction that always traps.

That proof fails for many a stub: those of recent Astrid SDKs set a panic hook first, and so could reach the log. Nothing
short of calling them tells these from real ones; therefore most exports are `UNSURE`, and whoever loads a capsule calls
them: a stub returns at once and has called nothing.
"""

from __future__ import annotations

import enum

from astrid_host.abi.binary import Reader
from astrid_host.abi.component import CoreModule
from astrid_host.abi.opcodes import Survey, UnknownInstruction, survey
from astrid_host.errors import ModuleRefused

NAMES = ("run", "astrid-install", "astrid-upgrade")
DEPTH = 64
BYTES = 128 << 10  # of code that is looked at before it is found too much


class ExportKind(enum.Enum):
    """What an export that SDKs also emit as a stub is."""

    STUB = "a stub"
    REAL = "real"  # calling the host is the first thing it does
    UNSURE = "perhaps a stub"  # call it and see


def export_kinds(core: CoreModule) -> dict[str, ExportKind]:
    """The kind of each of `run`, `astrid-install` and `astrid-upgrade` that the module exports.

    Raises:
        ModuleRefused: the code of one of them is malformed.
    """
    calls = _Calls(core)
    indices = {export.name: export.index for export in core.exports if export.kind == "func" and export.name in NAMES}
    return {name: calls.kind(index) for name, index in indices.items()}


class _Calls:
    """The calls of a module's functions, as far as they have been looked at."""

    def __init__(self, core: CoreModule) -> None:
        self._core = core
        self._quiet: dict[int, bool] = {}
        self._begins: dict[int, bool] = {}
        self._surveys: dict[int, Survey | None] = {}
        self._left = BYTES

    def kind(self, index: int) -> ExportKind:
        if self._is_quiet(index, 0):
            return ExportKind.STUB
        return ExportKind.REAL if self._begins_with_import(index, 0) else ExportKind.UNSURE

    def _survey(self, index: int) -> Survey | None:
        """None for a function whose code is too much to look at, or has instructions that are not known."""
        if index not in self._surveys:
            outline = self._core.outline
            body = index - outline.imported_functions
            if body >= len(outline.bodies):
                raise ModuleRefused(f"malformed WebAssembly: there is no code for the function {index}")
            begin, end = outline.bodies[body]
            self._left -= end - begin
            try:
                self._surveys[index] = survey(Reader(self._core.wasm, begin, end)) if self._left >= 0 else None
            except UnknownInstruction:
                self._surveys[index] = None
        return self._surveys[index]

    def _is_quiet(self, index: int, depth: int) -> bool:
        """Whether a function, with all that it calls, returns at once without an import."""
        if depth > DEPTH or index < self._core.outline.imported_functions:
            return False
        if index not in self._quiet:
            self._quiet[index] = False  # what calls itself may not return
            found = self._survey(index)
            self._quiet[index] = (
                found is not None
                and not (found.indirect or found.stays)
                and all(self._is_quiet(called, depth + 1) for called in found.calls)
            )
        return self._quiet[index]

    def _begins_with_import(self, index: int, depth: int) -> bool:
        """Whether the first call that a function cannot avoid, or a call within it, is of an import."""
        if index < self._core.outline.imported_functions:
            return True
        if depth > DEPTH:
            return False
        if index not in self._begins:
            self._begins[index] = False
            found = self._survey(index)
            self._begins[index] = found is not None and any(
                self._begins_with_import(called, depth + 1) for called in found.first
            )
        return self._begins[index]
