"""What compiling may cost. The operator's keys in the `[host]` table have the same names."""

from __future__ import annotations

from typing import NamedTuple

MIB, GIB = 1 << 20, 1 << 30


class Bounds(NamedTuple):
    """Bounds of an engine.

    Attributes:
        compile_memory: bytes that the process which compiles may take.
        compile_secs: for one module.
        module_cache: bytes of compiled modules that are kept.
    """

    compile_memory: int = 2 * GIB
    compile_secs: float = 60.0
    module_cache: int = 512 * MIB


BOUNDS = Bounds()
