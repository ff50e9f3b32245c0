"""The engine: one configuration of wasmtime, the compiler, the cache, the clock's tick.

Every module of a host is compiled by one engine. Guests have no threads, no shared memory, no second memory, no garbage
collection and no exceptions of their own. Compiling a module that is not in the cache takes tens of milliseconds and does
not hold the GIL: callers on the loop's thread move it to another.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import partial
from pathlib import Path

import wasmtime

from astrid_host.abi import CoreModule, core_module
from astrid_host.engine import native
from astrid_host.engine.cache import ModuleCache
from astrid_host.engine.module import Module
from astrid_host.errors import ModuleRefused

log = logging.getLogger(__name__)

# Host functions run Python on the guest's stack: on wasmtime's 2 MiB a deeply nested JSON text aborts CPython 3.13.
STACK_BYTES = 8 << 20
WASM_STACK_BYTES = 1 << 20
TICK_S = 0.01


class Engine:
    """Compiles capsules.

    Args:
        cache: the folder of compiled modules; None compiles at every start.
    """

    def __init__(self, cache: Path | None) -> None:
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
        self.wasmtime = wasmtime.Engine(config)
        self.at = native.address(self.wasmtime.ptr())
        self.cache = ModuleCache(cache, f"wasmtime {native.VERSION}, epochs, memory stays, stack {WASM_STACK_BYTES}")
        self._last: tuple[bytes, CoreModule, Path | None] | None = None
        self.compiled = 0  # how often the cache did not have it

    def tick(self) -> None:
        """Let the epoch pass: every guest that computes now yields at its next check. From any thread."""
        native.TICK(self.at)

    def module(self, name: str, wasm: bytes) -> Module:
        """Compile a capsule's WebAssembly: a component or a core module, in binary form.

        Args:
            name: what it is called in messages.
            wasm: the file's content.

        Raises:
            ModuleRefused: it is not WebAssembly, or not what a capsule has to be.
        """
        core, path = self._looked_up(wasm)
        compiled = self._load(path) if path is not None else None
        if compiled is None:
            try:
                compiled = wasmtime.Module(self.wasmtime, core.wasm)
            except wasmtime.WasmtimeError as error:
                raise ModuleRefused(f"{name} does not compile: {error}") from None
            self.compiled += 1
            if path is not None:
                self.cache.write(path, bytes(compiled.serialize()))
                self.cache.inner_imports(path, core)  # here, where a thread may take its time
        return Module(name, compiled, core, partial(self.cache.inner_imports, path, core))

    def is_cached(self, wasm: bytes) -> bool:
        """Whether `module` would find it compiled already, and so return in a millisecond."""
        path = self._looked_up(wasm)[1]
        return path is not None and path.exists()

    def _looked_up(self, wasm: bytes) -> tuple[CoreModule, Path | None]:
        """A file's core module and its place in the cache; the last answer is kept, because it is asked for twice."""
        last = self._last
        if last is None or last[0] is not wasm:
            core = core_module(wasm)
            self._last = last = (wasm, core, self.cache.path(core.wasm))
        return last[1], last[2]

    def _load(self, path: Path) -> wasmtime.Module | None:
        if not self.cache.holds(path):
            return None
        try:
            return wasmtime.Module.deserialize_file(self.wasmtime, str(path))
        except wasmtime.WasmtimeError as error:
            log.warning("the compiled module %s is not usable and is made anew: %s", path, error)
            return None


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
