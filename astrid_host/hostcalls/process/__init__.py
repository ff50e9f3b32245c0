"""astrid:process: child processes, in a sandbox where there is one.

Process         the host functions
Tracker         all children of a host; ends those of a cancelled call
remains_of_root what the sandbox does not take from root's children, for people
sandbox_state   whether the sandbox works, for people
"""

from astrid_host.hostcalls.process.host import Process, ProcessHandle
from astrid_host.hostcalls.process.sandbox import SandboxState, remains_of_root, sandbox_state
from astrid_host.hostcalls.process.tracker import Tracker

__all__ = ["Process", "ProcessHandle", "SandboxState", "Tracker", "remains_of_root", "sandbox_state"]
