"""Traps and errors of the engine, read, freed and told as exceptions of ours."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import wasmtime
from wasmtime._bindings import wasm_trap_t, wasmtime_error_t

from astrid_host.errors import Trap

_FRAME = re.compile(r"^\s*\d+:\s+0x[0-9a-f]+ - (.*)$")
FRAMES_SHOWN = 32


def take_trap(pointer: int) -> Trap:
    """The trap at an address, as an exception; what was there is freed."""
    trap = wasmtime.Trap._from_ptr(ctypes.cast(pointer, ctypes.POINTER(wasm_trap_t)))
    try:
        frames = []
        for frame in trap.frames[:FRAMES_SHOWN]:
            name = frame.func_name or f"<function {frame.func_index}>"
            frames.append(f"{frame.module_name or '<module>'}!{name}")
        return Trap(_first_line(trap.message), frames)
    finally:
        trap.close()


def take_error(pointer: int) -> Trap:
    """The error at an address, as an exception; what was there is freed."""
    error = wasmtime.WasmtimeError._from_ptr(ctypes.cast(pointer, ctypes.POINTER(wasmtime_error_t)))
    try:
        text = str(error)
    finally:
        error.close()
    frames = [found.group(1) for found in map(_FRAME.match, text.splitlines()) if found][:FRAMES_SHOWN]
    return Trap(_first_line(text), frames)


def take_either(out: Any) -> Trap:
    """What a call left in its two places for a trap and an error; both are freed and cleared."""
    told = Trap("the guest failed without saying how")
    if out[0]:
        told = take_trap(out[0])
    if out[1]:
        told = take_error(out[1])
    out[0] = out[1] = None
    return told


def _first_line(text: str) -> str:
    """What happened: the innermost cause, which the engine writes last, without its "wasm trap:" and numbering."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "wasm trap:" in line]
    if causes:
        return causes[-1].split("wasm trap:", 1)[1].strip()
    if "Caused by:" in lines:
        return re.sub(r"^\d+:\s*", "", lines[-1])
    return lines[0] if lines else "unknown failure of the engine"
