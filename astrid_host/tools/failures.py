"""Failure reports of tool calls: which call they are about, and how to tell it so that a model can act on it."""

from __future__ import annotations

from typing import Any

import msgspec

from astrid_host.bus import Report
from astrid_host.tools.topics import EXECUTE, REQUEST, RESULT, tool_of


class Subject(msgspec.Struct):
    """The call that an event is about: a request, or a result on its way."""

    call_id: str
    tool_name: str | None = None

    def awaited(self) -> tuple[str, ...]:
        """The topics on which the call goes on from here."""
        if self.tool_name is None:
            return (RESULT,)
        return (f"{EXECUTE}{self.tool_name}", f"{EXECUTE}{self.tool_name}.result", RESULT)


def subject_of(payload: Any) -> Subject | None:
    if not isinstance(payload, msgspec.Raw):
        return None
    try:
        return msgspec.json.decode(payload, type=Subject)
    except msgspec.DecodeError:
        return None


def explain(report: Report) -> str:
    """A failure of a tool call, told so that a model can act on it."""
    tool = tool_of(report.topic) or (report.capsule or "The tool")
    if report.reason == "no-handler":
        if report.topic == REQUEST:
            return "No router is loaded, so no tool can be called."
        return f"No capsule provides a tool named {tool}."
    words = {
        "trap": "crashed",
        "deny": "refused the call",
        "timeout": "computed for too long",
        "cancelled": "was cancelled",
        "queue-full": "is busy; try again later",
        "quarantined": "failed too often and is not called for a while",
        "loop": "was called in an endless loop",
        "no-instance": "could not be started; try again later",
        "guest-fault": "returned what cannot be read",
        "publish-denied": "could not publish its result",
    }
    return f"{tool} {words.get(report.reason, report.reason)}: {report.detail}"
