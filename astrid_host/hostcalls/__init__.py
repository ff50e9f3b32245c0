"""Host functions: one module for each WIT package, each on Python values, each with its gate and limits.

What goes wrong is a `HostError`: one case of the interface's own `error-code`. Nothing here touches guest memory.
"""

from astrid_host.hostcalls.interface import HostFunction, Interface, Running, hostcall

__all__ = ["HostFunction", "Interface", "Running", "hostcall"]
