"""A compiled module, and the same module linked to the host's functions and ready to be instantiated."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import wasmtime

from astrid_host.abi import CoreModule, compile_export
from astrid_host.engine import failures, native
from astrid_host.engine.instance import ELEMENT_BYTES, TABLE_ELEMENTS, Entry, Instance
from astrid_host.errors import ModuleRefused
from astrid_host.wit.types import Function

if TYPE_CHECKING:
    from astrid_host.engine.pool import Pool

PAGE_BYTES = 1 << 16
TABLE_GROWTH = 10_000  # elements that a small table may grow to; what tables begin with is counted as memory


class Module:
    """A compiled core module.

    Args:
        name: what it is called in messages: the capsule's name.
        compiled: the engine's form of it.
        core: the core module itself, with its imports and exports.
        inner_imports: which imports its allocator and post-return functions may call.
    """

    __slots__ = ("compiled", "core", "exports", "imports", "inner_imports", "name")

    def __init__(
        self,
        name: str,
        compiled: wasmtime.Module,
        core: CoreModule,
        inner_imports: Callable[[], frozenset[tuple[str, str]]],
    ) -> None:
        self.inner_imports = inner_imports
        self.name = name
        self.compiled = compiled
        self.core = core
        self.imports = core.imports
        self.exports = {export.name: export for export in core.exports}

    def check(self, name: str, function: Function) -> bool:
        """Whether it exports this function.

        Raises:
            ModuleRefused: it exports something of that name with another signature.
        """
        export = self.exports.get(name)
        if export is None:
            return False
        wanted = compile_export(function).signature
        if export.kind != "func" or (export.params, export.results) != (wanted.params, wanted.results):
            raise ModuleRefused(
                f"{self.name} exports {name} as {export.describe()}, but a capsule's {name} is "
                f"({', '.join(wanted.params)}) -> ({', '.join(wanted.results)})"
            )
        return True


class Prelinked:
    """A module linked to the host's functions.

    Args:
        entries: the exports that may be called, by name; those it does not export are left out.
        waits: whether its allocator or a post-return function might reach an import that may suspend it.
        callbacks: what its imports call; kept, because nothing else may.

    Attributes:
        initial_bytes: what an instance begins with: memory and tables.
        table_elements: the most that each table may have.

    Raises:
        ModuleRefused: it exports no memory, or an entry, its post-return function or `cabi_realloc` with another signature.
    """

    __slots__ = ("_keep", "_pre", "engine_at", "entries", "initial_bytes", "name", "pre_at", "table_elements", "waits")

    def __init__(
        self,
        engine: wasmtime.Engine,
        linker: wasmtime.Linker,
        module: Module,
        entries: Mapping[str, Function],
        waits: bool,
        callbacks: object,
    ) -> None:
        self.name = module.name
        self.waits = waits
        memory = module.exports.get("memory")
        if memory is None or memory.kind != "memory":
            raise ModuleRefused(f"{module.name} exports no memory named 'memory'")
        for name, function in (("_initialize", Function("_initialize", (), None)), *entries.items()):
            module.check(name, function)
            self._check_inner(module, f"cabi_post_{name}", (compile_export(function).signature.results, ()))
        tables = module.core.outline.tables
        self.table_elements = min(max(TABLE_GROWTH, *tables, 0), TABLE_ELEMENTS)
        pages = memory.pages[0] if memory.pages is not None else 0
        self.initial_bytes = pages * PAGE_BYTES + ELEMENT_BYTES * sum(tables)
        self._check_inner(module, "cabi_realloc", (("i32",) * 4, ("i32",)))
        self.entries = {
            name: Entry(name, compile_export(function)) for name, function in entries.items() if name in module.exports
        }
        self._keep = (engine, linker, module, callbacks)
        pre: Any = ctypes.POINTER(native.wasmtime_instance_pre_t)()
        error = native.PRELINK(
            native.address(linker.ptr()), native.address(module.compiled.ptr()), ctypes.addressof(pre)
        )
        if error:
            raise ModuleRefused(f"{module.name} cannot be linked: {failures.take_error(error).message}")
        self._pre = pre
        self.pre_at = native.address(pre)
        self.engine_at = native.address(engine.ptr())

    def _check_inner(self, module: Module, name: str, wanted: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        """These are called unchecked, on buffers of just that size: any other signature would write outside them."""
        export = module.exports.get(name)
        if export is not None and (export.kind, export.params, export.results) != ("func", *wanted):
            raise ModuleRefused(
                f"{module.name} exports {name} as {export.describe()}, but the canonical ABI's is "
                f"({', '.join(wanted[0])}) -> ({', '.join(wanted[1])})"
            )

    def new(self, memory_bytes: int, pool: Pool | None = None) -> Instance:
        """A store for one instance; its first activation instantiates it.

        Args:
            memory_bytes: the most memory that it may have.
            pool: whose it is; without one nobody counts its memory.
        """
        return Instance(self, memory_bytes, pool)

    def close(self) -> None:
        """Free the linked module. Its instances are closed before."""
        pre_at, self.pre_at = self.pre_at, 0
        if pre_at:
            native.PRELINK_DELETE(pre_at)
