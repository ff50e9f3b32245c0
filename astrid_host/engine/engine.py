"""The engine: one configuration of wasmtime, the compiler, the cache, the clock's tick.

Every module of a host is compiled by one engine. Guests have no threads, no shared memory, no second memory, no garbage
collection and no exceptions of their own. A module that is not in the cache is compiled in a process of its own, with limits of
time and memory, and read from the cache then; only validated, compiled code of a folder of this user's is ever loaded.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import wasmtime

from astrid_host.abi import CoreModule, core_module
from astrid_host.engine import native
from astrid_host.engine.bounds import BOUNDS, Bounds
from astrid_host.engine.cache import ModuleCache
from astrid_host.engine.compiling import WORKERS, Compilation, Unkept
from astrid_host.engine.module import Module
from astrid_host.errors import ModuleRefused

log = logging.getLogger(__name__)

# Host functions run Python on the guest's stack: on wasmtime's 2 MiB a deeply nested JSON text aborts CPython 3.13.
STACK_BYTES = 8 << 20
WASM_STACK_BYTES = 1 << 20
TICK_S = 0.01


SETTINGS = f"wasmtime {native.VERSION}, epochs, memory stays, stack {WASM_STACK_BYTES}"


class Source(NamedTuple):
    """A capsule's WebAssembly, read: its core module, and where its compiled form is kept (None: nowhere)."""

    core: CoreModule
    path: Path | None


def configured() -> wasmtime.Engine:
    """The engine that compiles and runs capsules: the same in every process that has to do with them."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.wasm_threads = False
    config.wasm_multi_memory = False
    config.wasm_memory64 = False
    config.wasm_exceptions = False
    config.wasm_gc = False
    config.wasm_component_model = False
    config.cranelift_opt_level = "speed"
    # Views of guest memory rest on this. The address space that is set aside, 4 GiB each, is all that a guest can have.
    config.memory_may_move = False
    config.max_wasm_stack = WASM_STACK_BYTES
    if sys.platform == "darwin":
        config.macos_use_mach_ports = False
    native.ASYNC_STACK(native.address(config.ptr()), STACK_BYTES)
    return wasmtime.Engine(config)


class Engine:
    """Compiles capsules. Its methods may be used from any thread; those that compile or read take their time.

    Args:
        cache: the folder of compiled modules; None compiles at every start.
        bounds: of what compiling may cost, and of the cache.
    """

    def __init__(self, cache: Path | None, bounds: Bounds = BOUNDS) -> None:
        self.wasmtime = configured()
        self.at = native.address(self.wasmtime.ptr())
        self.bounds = bounds
        self.cache = ModuleCache(cache, SETTINGS, native.VERSION)
        self.compiled = 0  # how often the cache did not have it

    def tick(self) -> None:
        """Let the epoch pass: every guest that computes now yields at its next check. From any thread."""
        native.TICK(self.at)

    def source(self, wasm: bytes) -> Source:
        """Read a capsule's WebAssembly: a component or a core module, in binary form.

        Raises:
            ModuleRefused: it is not WebAssembly, or not what a capsule has to be.
        """
        core = core_module(wasm)
        return Source(core, self.cache.path(core.wasm))

    def cached(self, name: str, source: Source) -> Module | None:
        """The compiled module, when it is in the cache.

        Args:
            name: what it is called in messages.
            source: what was read.
        """
        path = source.path
        if path is None or not self.cache.holds(path):
            return None
        inner = self.cache.inner_imports(path)
        if inner is None:
            return None
        try:
            compiled = wasmtime.Module.deserialize_file(self.wasmtime, str(path))
        except wasmtime.WasmtimeError as error:
            log.warning("the compiled module %s is not usable and is made anew: %s", path, error)
            return None
        return Module(name, compiled, source.core, lambda: inner)

    def compilation(self, name: str, source: Source) -> Compilation:
        """What `compiled_by` waits for, to be ended by whoever does not want to wait any longer."""
        return Compilation(WORKERS, name, source.core.wasm, self.bounds)

    def compiled_by(self, compilation: Compilation, name: str, source: Source) -> Module:
        """Compile a module in a process of its own; this thread waits for it.

        Raises:
            ModuleRefused: it is not valid, or takes more than the bounds allow; or it was ended.
        """
        module = None
        if source.path is not None:
            try:
                compilation.run(source.path)
                module = self.cached(name, source)
                self.cache.prune(self.bounds.module_cache, source.path)
            except (Unkept, OSError) as error:
                log.warning("a compiled module was not kept in %s: %s", source.path.parent, error)
        if module is None:
            module = self._unkept(compilation, name, source)
        self.compiled += 1
        return module

    def _unkept(self, compilation: Compilation, name: str, source: Source) -> Module:
        """Compile it by way of a private folder that is removed at once."""
        with tempfile.TemporaryDirectory(prefix="astrid-host-module-") as folder:
            cache = ModuleCache(Path(folder), SETTINGS, native.VERSION)
            path = cache.path(source.core.wasm)
            assert path is not None, "the folder was just made, for this user alone"
            try:
                compilation.run(path)
                inner = cache.inner_imports(path)
                if not cache.holds(path) or inner is None:
                    raise ModuleRefused(f"{name}: what was compiled is not what lies in {folder}")
                compiled = wasmtime.Module.deserialize(self.wasmtime, path.read_bytes())
            except (Unkept, OSError) as error:
                text = f"{name}: there is no room for its compiled form, neither in the cache nor in {folder}: {error}"
                raise ModuleRefused(text) from error
            except wasmtime.WasmtimeError as error:
                raise ModuleRefused(f"{name}: its compiled form cannot be used: {error}") from None
        return Module(name, compiled, source.core, lambda: inner)

    def module(self, name: str, wasm: bytes) -> Module:
        """All of it at once: the module from the cache, or compiled.

        Args:
            name: what it is called in messages.
            wasm: the file's content.

        Raises:
            ModuleRefused: it is not WebAssembly, not what a capsule has to be, or takes more than the bounds allow.
        """
        source = self.source(wasm)
        return self.cached(name, source) or self.compiled_by(self.compilation(name, source), name, source)

    def is_cached(self, wasm: bytes) -> bool:
        """Whether `module` would find it compiled already."""
        path = self.source(wasm).path
        return path is not None and path.exists()


def wat(text: str) -> bytes:
    """WebAssembly text as bytes; for those who write guests by hand.

    Raises:
        ModuleRefused: it is not such text.
    """
    try:
        return bytes(wasmtime.wat2wasm(text))
    except wasmtime.WasmtimeError as error:
        raise ModuleRefused(f"not WebAssembly text: {error}") from None


if ctypes.sizeof(ctypes.c_void_p) != 8:
    raise ImportError("the engine needs a 64-bit platform")
