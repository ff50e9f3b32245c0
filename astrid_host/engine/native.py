"""The C API of wasmtime, as far as the engine needs it, bound for speed.

What may run guest code is bound so that it releases the GIL (`guest=True`); the rest keeps it, because letting go costs
more than the call. Nothing here checks anything: the rooms above hold the rules. The layouts of `wasmtime_val_t` and
`wasmtime_val_raw_t` are read from the library's own bindings, and the version is pinned in pyproject.toml.
"""

from __future__ import annotations

import ctypes
from typing import Any

from wasmtime._bindings import (
    dll,
    wasmtime_error_t,
    wasmtime_extern_t,
    wasmtime_instance_pre_t,
    wasmtime_instance_t,
    wasmtime_val_t,
)

__all__ = [
    "VAL_AT",
    "VAL_BYTES",
    "VERSION",
    "wasmtime_error_t",
    "wasmtime_extern_t",
    "wasmtime_instance_pre_t",
    "wasmtime_instance_t",
]

# The version whose layouts these are; pyproject.toml allows no other. A look into the installed package costs a start 10 ms.
VERSION = "50.0.1"

VOID, SIZE, U64, I64, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64, ctypes.c_char_p


def bind(name: str, result: Any, *args: Any, guest: bool = False) -> Any:
    kind = ctypes.CFUNCTYPE if guest else ctypes.PYFUNCTYPE
    return kind(result, *args)((name, dll))


VAL_BYTES: int = ctypes.sizeof(wasmtime_val_t)
VAL_AT: int = wasmtime_val_t.of.offset
RAW_BYTES = 16
KIND_FUNC, KIND_MEMORY = 0, 3

# Calls of a guest.
CALL = bind("wasmtime_func_call_unchecked", VOID, VOID, VOID, VOID, SIZE, VOID, guest=True)
CALL_ASYNC = bind("wasmtime_func_call_async", VOID, VOID, VOID, VOID, SIZE, VOID, SIZE, VOID, VOID)
INSTANTIATE = bind("wasmtime_instance_pre_instantiate_async", VOID, VOID, VOID, VOID, VOID, VOID)
POLL = bind("wasmtime_call_future_poll", ctypes.c_bool, VOID, guest=True)
# Deleting a future that has not ended resumes its stack to unwind it.
DELETE = bind("wasmtime_call_future_delete", None, VOID, guest=True)
# One that has ended has no stack any more: nothing of the guest runs.
DELETE_ENDED = bind("wasmtime_call_future_delete", None, VOID)

# Its memory and exports.
MEMORY_DATA = bind("wasmtime_memory_data", VOID, VOID, VOID)
MEMORY_SIZE = bind("wasmtime_memory_data_size", SIZE, VOID, VOID)
EXPORT = bind("wasmtime_instance_export_get", ctypes.c_bool, VOID, VOID, TEXT, SIZE, VOID)

# Stores, time and limits.
STORE_NEW = bind("wasmtime_store_new", VOID, VOID, VOID, VOID)
STORE_CONTEXT = bind("wasmtime_store_context", VOID, VOID)
STORE_DELETE = bind("wasmtime_store_delete", None, VOID, guest=True)
STORE_LIMITS = bind("wasmtime_store_limiter", None, VOID, I64, I64, I64, I64, I64)
DEADLINE = bind("wasmtime_context_set_epoch_deadline", None, VOID, U64)
TICK = bind("wasmtime_engine_increment_epoch", None, VOID)
ON_EPOCH = ctypes.CFUNCTYPE(VOID, VOID, VOID, ctypes.POINTER(U64), ctypes.POINTER(ctypes.c_uint8))
SET_ON_EPOCH = bind("wasmtime_store_epoch_deadline_callback", None, VOID, ON_EPOCH, VOID, VOID)
ASYNC_STACK = bind("wasmtime_config_async_stack_size_set", None, VOID, SIZE)

# Host functions.
PLAIN = ctypes.CFUNCTYPE(VOID, VOID, VOID, VOID, SIZE)  # env, caller, arguments and results, their number -> trap
WAITING = ctypes.CFUNCTYPE(None, VOID, VOID, VOID, SIZE, VOID, SIZE, VOID, VOID)
GO_ON = ctypes.CFUNCTYPE(ctypes.c_bool, VOID)
DEFINE = bind("wasmtime_linker_define_func_unchecked", VOID, VOID, TEXT, SIZE, TEXT, SIZE, VOID, PLAIN, VOID, VOID)
DEFINE_WAITING = bind(
    "wasmtime_linker_define_async_func", VOID, VOID, TEXT, SIZE, TEXT, SIZE, VOID, WAITING, VOID, VOID
)
PRELINK = bind("wasmtime_linker_instantiate_pre", VOID, VOID, VOID, VOID)
PRELINK_DELETE = bind("wasmtime_instance_pre_delete", None, VOID)
NEW_TRAP = bind("wasmtime_trap_new", VOID, TEXT, SIZE)
NEW_ERROR = bind("wasmtime_error_new", VOID, TEXT)

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def trim() -> None:
    """Give what the C library keeps for later back to the system, where it can. Takes milliseconds, without the GIL."""
    if _TRIM is not None:
        _TRIM(SIZE(0))


def address(wrapped: Any) -> int:
    """The address that a pointer of the library's own classes holds."""
    held = ctypes.cast(wrapped, VOID).value
    if held is None:
        raise RuntimeError("the engine's library gave a null pointer where it promises none")
    return held
