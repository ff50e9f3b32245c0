"""The topics of the tool convention, and which tools a manifest's rows provide. No other file names these topics."""

from __future__ import annotations

from astrid_host.manifest import Manifest

REQUEST = "tool.v1.request.execute"
RESULT = "tool.v1.execute.result"
EXECUTE = "tool.v1.execute."
DESCRIBE = "tool.v1.request.describe"
DESCRIBED = "tool.v1.response.describe."
CANCEL = "tool.v1.request.cancel"
TOOL_TOPICS = "tool.v1."


def bound_once(pattern: str) -> bool:
    """Whether only one capsule may have a handler on this pattern: a tool has one provider."""
    return tool_of(pattern) is not None


def tool_of(pattern: str) -> str | None:
    """The tool that a handler on this pattern provides."""
    name = pattern.removeprefix(EXECUTE)
    if name == pattern or "." in name or name in ("*", "result", ""):
        return None
    return name


def tools_of(manifest: Manifest) -> list[str]:
    """The tools that a manifest's handlers provide."""
    return [name for row in manifest.handlers if (name := tool_of(row.pattern)) is not None]
