"""What AssemblyScript's compiler makes every module import from `env`: abort, seed and trace.

`abort` ends the call with the guest's own message, file and line, read from its memory: AssemblyScript keeps strings as
UTF-16 with their byte length before them. A pointer that leads nowhere only costs the text, never the host.
"""

from __future__ import annotations

import ctypes
import logging
import random
from collections.abc import Callable
from typing import Any

from astrid_host.engine import native
from astrid_host.engine.activation import here
from astrid_host.engine.instance import slots
from astrid_host.errors import Trap

log = logging.getLogger("astrid_host.guest")
TEXT_BYTES = 16 * 1024
_HEADER = 4  # the byte length stands right before the text

Definition = tuple[tuple[str, ...], tuple[str, ...], Callable[..., int | None]]


def text_at(view: memoryview, at: int) -> str:
    """The string at an address of the guest, cut at 16 KiB; `""` for null or for an address that has none."""
    if at < _HEADER or at > len(view):
        return ""
    size = min(int.from_bytes(view[at - _HEADER : at], "little"), TEXT_BYTES, len(view) - at) & ~1
    return str(view[at : at + size], "utf-16-le", "replace")


def define(name: str) -> Definition | None:
    """The function `env.<name>`: its core parameters and results, and the callback for the linker."""
    return {"abort": _ABORT, "seed": _SEED, "trace": _TRACE}.get(name)


def _abort(_env: int, _caller: int, raw: int, _count: int) -> int | None:
    activation = here.activation
    assert activation is not None, "a host function runs inside a call"
    try:
        message, file, line, column = _FOUR.unpack(ctypes.string_at(raw, _FOUR.size))
        instance = activation.instance
        assert instance is not None, "a call has an instance"
        instance.look()
        view = instance.view
        place = f"{text_at(view, file) or '<unknown>'}:{line}:{column}"
        activation.failure = Trap(f"abort: {text_at(view, message) or 'no message'}", [place])
    except BaseException as error:  # noqa: BLE001 - carried to the call's owner
        activation.failure = error
    trap: int = native.NEW_TRAP(b"host", 4)
    return trap


def _seed(_env: int, _caller: int, raw: int, _count: int) -> None:
    # AssemblyScript seeds Math.random with it; secrets come from astrid:sys random-bytes.
    ctypes.c_double.from_address(raw).value = random.random()


def _trace(_env: int, _caller: int, raw: int, _count: int) -> int | None:
    activation = here.activation
    assert activation is not None, "a host function runs inside a call"
    try:
        message, count, *numbers = _SEVEN.unpack(ctypes.string_at(raw, _SEVEN.size))
        instance = activation.instance
        assert instance is not None, "a call has an instance"
        instance.look()
        shown: list[Any] = numbers[: min(count, 5)]
        log.info("%s: trace: %s %s", instance.module.name, text_at(instance.view, message), " ".join(map(str, shown)))
    except BaseException as error:  # noqa: BLE001 - carried to the call's owner
        activation.failure = error
        trap: int = native.NEW_TRAP(b"host", 4)
        return trap
    return None


_FOUR = slots(("i32",) * 4, native.RAW_BYTES)
_TRACE_PARAMS = ("i32", "i32", "f64", "f64", "f64", "f64", "f64")
_SEVEN = slots(_TRACE_PARAMS, native.RAW_BYTES)
_ABORT: Definition = (("i32",) * 4, (), _abort)
_SEED: Definition = ((), ("f64",), _seed)
_TRACE: Definition = (_TRACE_PARAMS, (), _trace)
