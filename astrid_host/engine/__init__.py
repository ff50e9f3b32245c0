"""wasmtime, driven through its C API: compile, link, instantiate, call, suspend, end.

The only room that touches ctypes. A call is a future with a stack of its own; it yields at epoch ticks and sleeps in host
functions that wait. Guest memory leaves this room as a memoryview. Every failure of a guest is a `GuestFailed`; whatever a
host function raised comes out of the call that made it, and of no other.
"""

from astrid_host.engine.activation import HOST_CALLS_IN_A_ROW, Activation, Suspend
from astrid_host.engine.bounds import Bounds
from astrid_host.engine.compiling import Compilation, reap_compilers
from astrid_host.engine.engine import TICK_S, Engine, Source, wat
from astrid_host.engine.instance import Entry, Instance
from astrid_host.engine.linking import Import, Imports, Linker
from astrid_host.engine.module import Module, Prelinked
from astrid_host.engine.native import trim
from astrid_host.engine.pool import Instances, Pool

__all__ = [
    "HOST_CALLS_IN_A_ROW",
    "TICK_S",
    "Activation",
    "Bounds",
    "Compilation",
    "Engine",
    "Entry",
    "Import",
    "Imports",
    "Instance",
    "Instances",
    "Linker",
    "Module",
    "Pool",
    "Prelinked",
    "Source",
    "Suspend",
    "reap_compilers",
    "trim",
    "wat",
]
