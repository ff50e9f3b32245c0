"""What became of a call of a tool that a command made, and who answers what is asked for meanwhile."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from astrid_host.payloads import ToolCallResult

Approvals: TypeAlias = Literal["ask", "approve", "deny"]


class Executed(msgspec.Struct):
    """What became of a tool call: its result, and for each request for approval that was denied how to let it through."""

    result: ToolCallResult
    denied: list[str] = []
