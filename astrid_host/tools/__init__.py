"""The tool convention, as a client of the bus: the only room that knows tool topics; the kernel only matches them."""

from astrid_host.payloads.outside import Tool
from astrid_host.tools.calling import Askers, Tools
from astrid_host.tools.topics import DESCRIBE, DESCRIBED, EXECUTE, bound_once, tool_of, tools_of

__all__ = ["DESCRIBE", "DESCRIBED", "EXECUTE", "Askers", "Tool", "Tools", "bound_once", "tool_of", "tools_of"]
