"""Who answers what is asked for during a call that came over the control socket.

A call says what its caller wants: that a person is asked over the bus, that what the call itself asks for is approved, or that it
is denied at once, because nobody is there to be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from astrid_host.syscalls.approval import Asked, mend

Approvals: TypeAlias = Literal["ask", "approve", "deny"]


class CallPolicies:
    """A policy for a host's requests for approval, by call; what belongs to none of the calls is asked over the bus."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[bool, Collection[str], list[str]]] = {}

    @contextmanager
    def during(
        self, principal: str, call_id: str, approvals: Approvals, capsules: Collection[str]
    ) -> Generator[list[str]]:
        """While the body runs, answer what is asked for in a call; gives a list of what was denied, and how to let it through.

        Args:
            principal: on whose behalf the call is made.
            call_id: of the call.
            approvals: what to answer.
            capsules: those whose requests may be approved: the tool's own, and its guards. Others that receive the call's
                events ask for what was not called.
        """
        denied: list[str] = []
        if approvals == "ask":
            yield denied
            return
        self._calls[principal, call_id] = (approvals == "approve", capsules, denied)
        try:
            yield denied
        finally:
            del self._calls[principal, call_id]

    def decide(self, asked: Asked) -> bool | None:
        """Whether a request is approved, once; None lets it be asked."""
        if asked.call_id is None or (asked.principal, asked.call_id) not in self._calls:
            return None
        approves, capsules, denied = self._calls[asked.principal, asked.call_id]
        if approves and asked.capsule in capsules:
            return True
        denied.append(f"{asked.capsule} asked to {asked.action!r} on {asked.resource!r} and was denied: {mend(asked)}")
        return False
