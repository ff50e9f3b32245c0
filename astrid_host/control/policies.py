"""Who answers what is asked for during a call that a command makes, over the control socket or with a host of its own.

A call says what its caller wants: that a person is asked over the bus, that what the call itself asks for is approved, or that it
is denied at once, because nobody is there to be asked.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from astrid_host.control.executed import Approvals, Executed
from astrid_host.hostcalls.approval import Asked, mend
from astrid_host.tools import Askers, Tools


class _Call(NamedTuple):
    tool: str
    approves: bool
    askers: Askers
    denied: list[str]

    def covers(self, asked: Asked) -> bool:
        """Whether a request is about the tool that was called. A tool of the call may call others in its name, and their guards
        ask about those."""
        return asked.capsule in self.askers.own or (asked.capsule in self.askers.guards and asked.action == self.tool)


class CallPolicies:
    """A policy for a host's requests for approval, by call; what belongs to none of the calls is asked over the bus."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], _Call] = {}

    @contextmanager
    def during(
        self, principal: str, call_id: str, approvals: Approvals, tool: str, askers: Askers
    ) -> Generator[list[str]]:
        """While the body runs, answer what is asked for in a call; gives a list of what was denied, and how to let it through.

        Args:
            principal: on whose behalf the call is made.
            call_id: of the call.
            approvals: what to answer.
            tool: which one is called.
            askers: those whose requests may be approved: the tool's own capsule, and its guards where they ask about this very
                tool. Others that receive the call's events ask for what was not called.
        """
        denied: list[str] = []
        if approvals == "ask" or (principal, call_id) in self._calls:  # of two with one id, the second is refused
            yield denied
            return
        self._calls[principal, call_id] = _Call(tool, approvals == "approve", askers, denied)
        try:
            yield denied
        finally:
            del self._calls[principal, call_id]

    async def execute(
        self,
        tools: Tools,
        name: str,
        arguments: Any,
        *,
        principal: str,
        call_id: str,
        timeout: float,
        approvals: Approvals,
    ) -> Executed:
        """Call a tool; see `Tools.execute`. `approvals` says who answers what it asks for, the tool itself or its guards.

        Cancelled, the call is cancelled.
        """
        with self.during(principal, call_id, approvals, name, tools.askers(name)) as denied:
            result = await tools.execute(name, arguments, principal=principal, call_id=call_id, timeout=timeout)
        return Executed(result, denied)

    def decide(self, asked: Asked) -> bool | None:
        """Whether a request is approved, once; None lets it be asked."""
        if asked.call_id is None or (asked.principal, asked.call_id) not in self._calls:
            return None
        call = self._calls[asked.principal, asked.call_id]
        if call.approves and call.covers(asked):
            return True
        call.denied.append(
            f"{asked.capsule} asked to {asked.action!r} on {asked.resource!r} and was denied: {mend(asked)}"
        )
        return False
