"""astrid-host: runs capsules, sandboxed WebAssembly tools joined by an event bus.

    async with astrid_host.open_host(capsules=[astrid_host.BUNDLED, "my/capsules"]) as host:
        result = await host.tools.execute("word_count", {"text": "a b"})

Errors that a person can be told about are `AstridError`; what happens to a tool call is always a result.
"""

from typing import TYPE_CHECKING, Any

from astrid_host.errors import AstridError

if TYPE_CHECKING:
    from pathlib import Path

    from astrid_host.capsules import TrustPolicy, TrustRequest
    from astrid_host.gates import Ask
    from astrid_host.host import Host, open_host
    from astrid_host.hostcalls.approval import Asked
    from astrid_host.inventory import CapsuleInfo
    from astrid_host.limits import HostLimits
    from astrid_host.listening import HostSubscription
    from astrid_host.payloads import ToolCallResult
    from astrid_host.payloads.outside import HostEvent, Tool
    from astrid_host.stats import HostStats, Usage

    BUNDLED: Path

__all__ = [
    "BUNDLED",
    "Ask",
    "Asked",
    "AstridError",
    "CapsuleInfo",
    "Host",
    "HostEvent",
    "HostLimits",
    "HostStats",
    "HostSubscription",
    "Tool",
    "ToolCallResult",
    "TrustPolicy",
    "TrustRequest",
    "Usage",
    "open_host",
]
__version__ = "0.1.0"

_HOMES = {
    "Ask": "gates",
    "Asked": "hostcalls.approval",
    "CapsuleInfo": "inventory",
    "Host": "host",
    "HostEvent": "payloads.outside",
    "HostLimits": "limits",
    "HostStats": "stats",
    "HostSubscription": "listening",
    "Usage": "stats",
    "open_host": "host",
    "ToolCallResult": "payloads",
    "TrustPolicy": "capsules",
    "TrustRequest": "capsules",
    "Tool": "payloads.outside",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import astrid_host.topics` does not load the engine."""
    from importlib import import_module

    if name == "BUNDLED":
        from astrid_host.bundled import capsules_folder

        return capsules_folder()
    if name in _HOMES:
        return getattr(import_module(f"astrid_host.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'astrid_host' has no attribute {name!r}")
