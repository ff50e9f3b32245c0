"""Who answers capsules' requests for approval while a command runs: the person at the terminal, or, without one, nobody.

`Unattended` is what a host is given where nobody can be asked: it answers at once. `answer_at_terminal` asks, one request after
the other; it runs beside the command, and what is not answered when the command ends is denied with its call.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from astrid_host.cli.tables import printable

if TYPE_CHECKING:
    import trio

    from astrid_host.host import Host
    from astrid_host.listening import HostEvent
    from astrid_host.payloads.kinds import ApprovalRequired
    from astrid_host.syscalls.approval import Asked

TOPIC = "astrid.v1.approval"
_ONCE = {"y": "approve", "yes": "approve"}
_LONGER = {"s": "approve_session", "session": "approve_session", "a": "approve_always", "always": "approve_always"}


class Unattended:
    """Answers requests for approval where no person can.

    Args:
        call_id: of the call that the command makes; None for none.
        principal: on whose behalf it is made.
        yes: approve what the called tool's capsule asks for in that call; all else is denied.

    Attributes:
        capsule: which one that is, when the host is open and it is known; until then all is denied.
        denied: for each request that was denied, what it was and how to let it through.
    """

    def __init__(self, call_id: str | None, principal: str, yes: bool) -> None:
        self._call = (principal, call_id)
        self._yes = yes and call_id is not None
        self.capsule: str | None = None
        self.denied: list[str] = []

    def decide(self, asked: Asked) -> bool:
        """Whether a request is approved, once."""
        # Others may receive the call's event too, and what they ask for is not what was called.
        if self._yes and asked.capsule == self.capsule and (asked.principal, asked.call_id) == self._call:
            return True
        from astrid_host.syscalls.approval import mend

        self.denied.append(
            f"{asked.capsule} asked to {asked.action!r} on {asked.resource!r} and was denied: {mend(asked)}"
        )
        return False


def provider(host: Host, tool: str) -> str | None:
    """The id of the capsule that provides a tool, the first in load order; None when there is none."""
    return next((capsule.id for capsule in host.capsules.values() if tool in capsule.tools), None)


async def answer_at_terminal(host: Host, principal: str, task_status: trio.TaskStatus[None] | None = None) -> None:
    """Ask the person at the terminal about each request of a principal, until it is cancelled.

    Args:
        host: whose capsules ask.
        principal: whose requests.
        task_status: told when it listens; a request before that would be denied, because nobody receives it.

    Only the host's own questions are asked: what a capsule publishes in their place is passed over. Cancelled while a person is
    asked, it leaves: what is typed later is read by nobody.
    """
    import trio

    async with host.subscribe(TOPIC, principal=principal) as requests:
        if task_status is not None:
            task_status.started()
        async for event in requests:
            request = _question(event)
            if request is None:
                continue
            # A read of the terminal cannot be interrupted, and the command shall end without another key.
            decision = await trio.to_thread.run_sync(_ask, request, abandon_on_cancel=True)
            answer = {"type": "approval_response", "request_id": request.request_id, "decision": decision}
            host.publish(f"{TOPIC}.response.{request.request_id}", answer, principal=principal)


def _question(event: HostEvent) -> ApprovalRequired | None:
    """The question that the host asks by an event; None when it is another's, or none."""
    from uuid import UUID

    import msgspec

    from astrid_host.payloads import NIL_SOURCE
    from astrid_host.payloads.kinds import ApprovalRequired

    if event.source_id != NIL_SOURCE:
        return None
    try:
        request = msgspec.convert(event.payload, ApprovalRequired)
        return request if str(UUID(request.request_id)) == request.request_id else None
    except ValueError:  # of both: no such payload, no UUID
        return None


def _ask(request: ApprovalRequired) -> str:
    """Show one request, and read the decision; anything but a clear yes is a no."""
    from astrid_host.gates.allowances import allowance_for

    allowance = allowance_for(request.action, request.resource)
    offered = _ONCE if allowance is None else _ONCE | _LONGER
    longer = f", [s] for this session or [a] always: {printable(str(allowance))}" if allowance is not None else ""
    sys.stderr.write(
        f"\n{printable(request.reason)}: {printable(request.action)}\n"
        f"  {printable(request.resource)}\n"
        f"Allow it? [y] once{longer}; anything else denies: "
    )
    sys.stderr.flush()
    try:
        typed = sys.stdin.readline()
    except UnicodeDecodeError:
        return "deny"
    return offered.get(typed.strip().lower(), "deny")
