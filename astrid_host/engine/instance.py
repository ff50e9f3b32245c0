"""An instance of a module in a store of its own: memory, exports, handles, and the calls of the canonical ABI.

An instance is made by its first activation, because instantiation runs guest code: a start function, and `_initialize`
where one is exported. `view` and `realloc` are what lifting and lowering need. Pointers from the guest's allocator are
checked here. A failed or closed instance is never entered again; `close` frees all it holds.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import TYPE_CHECKING, Any

from astrid_host.abi import ExportCode, HandleTable, compile_export
from astrid_host.engine import failures, native
from astrid_host.engine.activation import Activation, here, on_epoch
from astrid_host.errors import GuestFault, ModuleRefused, Trap
from astrid_host.wit.types import Function

if TYPE_CHECKING:
    from astrid_host.engine.module import Prelinked
    from astrid_host.engine.pool import Pool

_FORMAT = {"i32": "I", "i64": "Q", "f32": "f", "f64": "d"}
_WIDTH = {"i32": 4, "i64": 8, "f32": 4, "f64": 8}
_KIND = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}
_CTYPE = {"i32": ctypes.c_uint32, "i64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double}
TABLE_ELEMENTS, TABLES, ELEMENT_BYTES = 100_000, 10, 8


def slots(types: tuple[str, ...], stride: int) -> struct.Struct:
    """Packs values of core types into slots of `stride` bytes; starts at the first value, ends with the last."""
    parts = [f"{_FORMAT[kind]}{stride - _WIDTH[kind]}x" for kind in types]
    if parts:
        parts[-1] = _FORMAT[types[-1]]
    return struct.Struct("<" + "".join(parts))


class Inner:
    """The signature of a function of the canonical ABI itself: `cabi_realloc`, or a post-return."""

    __slots__ = ("pack_raw", "pack_vals", "params", "results")

    def __init__(self, params: tuple[str, ...], results: tuple[str, ...]) -> None:
        self.params = params
        self.results = results
        self.pack_raw = slots(params, native.RAW_BYTES).pack_into
        self.pack_vals = slots(params, native.VAL_BYTES).pack_into


REALLOC = Inner(("i32", "i32", "i32", "i32"), ("i32",))
# What every call passes is wrapped once: making a C value of a Python int costs 30 ns each time.
_ONE, _FOUR = native.U64(1), native.SIZE(4)


class Entry:
    """An exported function, compiled once for all instances: how to lower its parameters and lift its result."""

    __slots__ = ("code", "name", "pack", "params", "post", "post_name", "results")

    def __init__(self, name: str, code: ExportCode) -> None:
        self.name = name
        self.code = code
        self.params: tuple[str, ...] = code.signature.params
        self.results: tuple[str, ...] = code.signature.results
        self.pack = slots(self.params, native.VAL_BYTES).pack_into
        self.post = Inner(self.results, ())
        self.post_name = f"cabi_post_{name}"


INITIALIZE = Entry("_initialize", compile_export(Function("_initialize", (), None)))


class _Export:
    """An entry in one instance: its function, the buffer for its parameters and result, and all that a call passes."""

    __slots__ = ("buffer", "call", "keep", "post_at", "result")

    def __init__(self, entry: Entry, func: Any, post: Any, out_at: int) -> None:
        count = len(entry.params)
        self.keep = (func, post)
        self.post_at = native.VOID(ctypes.addressof(post.of)) if post is not None else None
        self.buffer = ctypes.create_string_buffer(native.VAL_BYTES * (count + len(entry.results) + 1))
        for i, kind in enumerate(entry.params + entry.results):
            self.buffer[i * native.VAL_BYTES] = _KIND[kind]  # type: ignore[call-overload]
        params_at = ctypes.addressof(self.buffer)
        self.call = (
            native.VOID(ctypes.addressof(func.of)),
            native.VOID(params_at),
            native.SIZE(count),
            native.VOID(params_at + count * native.VAL_BYTES),
            native.SIZE(len(entry.results)),
            native.VOID(out_at),
            native.VOID(out_at + 8),
        )
        self.result: Any = None
        if entry.results:
            at = count * native.VAL_BYTES + native.VAL_AT
            self.result = _CTYPE[entry.results[0]].from_buffer(self.buffer, at)


class Instance:
    """One instance, in one store, for one principal at a time.

    Args:
        module: the pre-linked module.
        memory_bytes: the most that its memory may take.
        pool: whose instance it is; None when nobody counts its memory.

    Attributes:
        limit: what the engine lets it have now.
        counted: bytes that it has, as far as the host's account of memory knows.
        granted: bytes that it may add while it runs, where that had to be asked for.
    """

    __slots__ = (
        "_exports",
        "_inner_at",
        "_inner_buffer",
        "_inner_out",
        "_instance",
        "_memory",
        "_memory_at",
        "_raw",
        "_raw_at",
        "_raw_result",
        "_realloc",
        "_realloc_at",
        "_stage",
        "_store",
        "calling",
        "context",
        "counted",
        "entered",
        "granted",
        "handles",
        "idle_since",
        "limit",
        "memory",
        "memory_bytes",
        "module",
        "out",
        "out_at",
        "pool",
        "principal",
        "size",
        "view",
    )

    def __init__(self, module: Prelinked, memory_bytes: int, pool: Pool | None = None) -> None:
        self.module = module
        self.pool = pool
        self.memory = pool.instances.memory if pool is not None else None
        self.memory_bytes = self.limit = memory_bytes
        self.counted = self.granted = 0
        self.entered = threading.Lock()
        self.handles = HandleTable()
        self.calling = False
        self.principal: str | None = None
        self.idle_since = 0.0
        self._store: int | None = native.STORE_NEW(module.engine_at, None, None)
        self.context = native.VOID(native.STORE_CONTEXT(self._store))
        native.STORE_LIMITS(self._store, self.limit, module.table_elements, 1, TABLES, 1)
        native.SET_ON_EPOCH(self._store, on_epoch, None, None)
        self.out = (native.VOID * 2)()
        self.out_at = ctypes.addressof(self.out)
        self._inner_out = (native.VOID * 2)()
        self._inner_at = native.VOID(ctypes.addressof(self._inner_out))
        self._raw = ctypes.create_string_buffer(4 * native.RAW_BYTES)
        self._raw_at = native.VOID(ctypes.addressof(self._raw))
        self._raw_result = ctypes.c_uint32.from_buffer(self._raw)
        self._inner_buffer: Any = ctypes.create_string_buffer(5 * native.VAL_BYTES) if module.waits else None
        self._instance = native.wasmtime_instance_t()
        self._exports: dict[str, _Export] = {}
        self._memory: Any = None
        self._memory_at = self._realloc_at = native.VOID()
        self._realloc: Any = None
        self.view = memoryview(b"")
        self.size = 0  # bytes of its memory at the last look
        self._stage = "new"

    # Making it.

    def next_future(self, activation: Activation) -> int:
        """The future to poll next on behalf of this activation: making the instance, then the call itself."""
        if self._stage == "open":
            return self._start(activation)
        native.DEADLINE(self.context, _ONE)
        if self._stage == "new":
            self._stage = "instantiating"
            future: int = native.INSTANTIATE(
                self.module.pre_at, self.context, ctypes.addressof(self._instance), self.out_at, self.out_at + 8
            )
            return future
        if self._stage == "instantiating":
            self._take_exports()
            self._stage = "initializing"
            initialize = self._find("_initialize", native.KIND_FUNC)
            if initialize is not None:
                self._exports["_initialize"] = export = _Export(INITIALIZE, initialize, None, self.out_at)
                initializing: int = native.CALL_ASYNC(self.context, *export.call)
                return initializing
        self._stage = "open"
        return self._start(activation)

    def _find(self, name: str, kind: int) -> Any:
        found = native.wasmtime_extern_t()
        raw = name.encode()
        known = native.EXPORT(self.context, ctypes.addressof(self._instance), raw, len(raw), ctypes.addressof(found))
        return found if known and found.kind == kind else None

    def _take_exports(self) -> None:
        memory = self._find("memory", native.KIND_MEMORY)
        if memory is None:
            raise ModuleRefused(f"{self.module.name} exports no memory named 'memory'")
        self._memory, self._memory_at = memory, native.VOID(ctypes.addressof(memory.of))
        self.look()
        realloc = self._find("cabi_realloc", native.KIND_FUNC)
        if realloc is not None:
            self._realloc, self._realloc_at = realloc, native.VOID(ctypes.addressof(realloc.of))
        for entry in self.module.entries.values():
            func = self._find(entry.name, native.KIND_FUNC)
            if func is not None:
                post = self._find(entry.post_name, native.KIND_FUNC)
                self._exports[entry.name] = _Export(entry, func, post, self.out_at)

    # Calling it.

    def _start(self, activation: Activation) -> int:
        entry = activation.entry
        export = self._exports[entry.name]
        native.DEADLINE(self.context, _ONE)
        flat = entry.code.lower_params(self, *activation.arguments)
        entry.pack(export.buffer, native.VAL_AT, *flat)
        self.calling = True
        future: int = native.CALL_ASYNC(self.context, *export.call)
        return future

    def end(self, activation: Activation) -> Any:
        """What the function returned, lifted; the guest is told that it may free it."""
        entry = activation.entry
        export = self._exports[entry.name]
        value: Any = None
        flat: tuple[Any, ...] = ()
        if export.result is not None:
            flat = (export.result.value,)
            try:
                value = entry.code.lift_result(self, *flat)
            except GuestFault:
                if not self.look():
                    raise
                value = entry.code.lift_result(self, *flat)  # it lies in memory that was not seen before
        if export.post_at is not None:
            self._enter(activation, export.post_at, entry.post, *flat)
        self.look()  # it may have grown its memory
        return value

    def failed(self, activation: Activation) -> BaseException:
        """Why the call failed; what the engine holds of it is freed."""
        return self._told(activation, failures.take_either(self.out))

    def _told(self, activation: Activation, told: BaseException) -> BaseException:
        failure, activation.failure = activation.failure, None
        if failure is None and self.limit < self.memory_bytes and isinstance(told, Trap) and self.memory is not None:
            failure = self.memory.refused(self, str(told))
        return failure if failure is not None else told

    def bound(self, limit: int) -> None:
        """Let its memory have so many bytes at most. It does not run now."""
        if limit != self.limit:
            self.limit = limit
            native.STORE_LIMITS(self._store, limit, self.module.table_elements, 1, TABLES, 1)

    # The canonical ABI: what lifting and lowering need.

    @property
    def is_open(self) -> bool:
        """Whether its memory can be seen."""
        return self._memory is not None

    def look(self) -> bool:
        """See memory that the guest has grown: `view` is as long as the memory was at the last look. Whether it has grown.

        Memory never moves and never shrinks, so a view that was taken before stays good for what it covers. Whenever guest code
        has run, the next one to read looks first.
        """
        size: int = native.MEMORY_SIZE(self.context, self._memory_at)
        if size != self.size:
            base = native.MEMORY_DATA(self.context, self._memory_at)
            self.view = memoryview((ctypes.c_ubyte * size).from_address(base)).cast("B")
            self.size = size
            return True
        return False

    def realloc(self, align: int, size: int) -> int:
        """Memory of the guest's own allocator: `size` bytes at a multiple of `align`, checked.

        Raises:
            GuestFault: it has no allocator, or what that returned is not such memory.
            Trap: the allocator trapped, or did not return.
        """
        activation = here.activation
        if activation is None:
            raise RuntimeError("memory is allocated on behalf of a call alone")
        if self._realloc_at and self._inner_buffer is None:  # `_enter`, written out: it runs twice a call
            activation.nested = 1
            REALLOC.pack_raw(self._raw, 0, 0, 0, align, size)
            error = native.CALL(self.context, self._realloc_at, self._raw_at, _FOUR, self._inner_at)
            activation.nested = 0
            if error or self._inner_out[0]:
                self._inner_out[1] = error
                raise self._inner_failed(activation)
            at: int = self._raw_result.value
            if not at % align and at + size <= self.size:
                return at
            return self._checked(at, align, size)
        if not self._realloc_at:
            raise GuestFault(f"{self.module.name} exports no cabi_realloc, so nothing can be passed to it")
        return self._checked(self._enter(activation, self._realloc_at, REALLOC, 0, 0, align, size), align, size)

    def _checked(self, at: int, align: int, size: int) -> int:
        self.look()
        if at % align or at + size > self.size:
            raise GuestFault(
                f"cabi_realloc returned {at:#x} for {size} bytes aligned to {align}: the memory has {self.size} bytes"
            )
        return at

    def _enter(self, activation: Activation, func_at: Any, signature: Inner, *args: Any) -> int:
        """Call a function of the canonical ABI itself, which may neither yield nor call an import.

        A waiting import that is reached in a plain call aborts the process, so a module that has one is entered by a
        future of its own; it ends at its first poll, because its imports trap and its ticks are counted.
        """
        activation.nested = 1
        try:
            if self._inner_buffer is not None:
                return self._enter_by_future(activation, func_at, signature, args)
            signature.pack_raw(self._raw, 0, *args)
            self._inner_out[1] = native.CALL(self.context, func_at, self._raw_at, _FOUR, self._inner_at)
            if self._inner_out[0] or self._inner_out[1]:
                raise self._inner_failed(activation)
            at: int = self._raw_result.value
            return at
        finally:
            activation.nested = 0

    def _enter_by_future(self, activation: Activation, func_at: Any, signature: Inner, args: tuple[Any, ...]) -> int:
        buffer, count = self._inner_buffer, len(signature.params)
        for i, kind in enumerate(signature.params):
            buffer[i * native.VAL_BYTES] = _KIND[kind]
        signature.pack_vals(buffer, native.VAL_AT, *args)
        at = ctypes.addressof(buffer)
        results_at = at + 4 * native.VAL_BYTES
        future = native.CALL_ASYNC(
            self.context,
            func_at,
            at,
            count,
            results_at,
            len(signature.results),
            self._inner_at,
            native.VOID(ctypes.addressof(self._inner_out) + 8),
        )
        ended = native.POLL(future)
        native.DELETE(future)
        if not ended:
            raise GuestFault(f"{self.module.name}: its allocator or post-return function waits")
        if self._inner_out[0] or self._inner_out[1]:
            raise self._inner_failed(activation)
        return ctypes.c_uint32.from_address(results_at + native.VAL_AT).value if signature.results else 0

    def _inner_failed(self, activation: Activation) -> BaseException:
        return self._told(activation, failures.take_either(self._inner_out))

    # Its end.

    @property
    def closed(self) -> bool:
        return self._store is None

    def close(self) -> None:
        """Free the store and what its handles hold. Futures must be gone; closing twice is allowed."""
        self.handles.clear()
        store, self._store = self._store, None
        if store is None:
            return
        self.view, self.size = memoryview(b""), 0
        self._exports.clear()
        native.STORE_DELETE(store)

    def __del__(self) -> None:
        # Stores are closed by their owners; this only keeps a forgotten one from leaking native memory.
        if getattr(self, "_store", None) is not None:
            self.close()
