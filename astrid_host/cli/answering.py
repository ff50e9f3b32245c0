"""Capsules' requests for approval, while a command runs: shown to the person at the terminal, and answered by them.

Only the host's own questions are asked: what a capsule publishes in their place is passed over. Anything but a clear yes is a no.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from astrid_host.cli.tables import printable

if TYPE_CHECKING:
    import trio

    from astrid_host.cli.keyboard import Keyboard
    from astrid_host.cli.served import Served
    from astrid_host.listening import HostEvent
    from astrid_host.payloads.kinds import ApprovalRequired

_ONCE = {"y": "approve", "yes": "approve"}
_LONGER = {"s": "approve_session", "session": "approve_session", "a": "approve_always", "always": "approve_always"}


async def answer_at_terminal(
    host: Served, keyboard: Keyboard, task_status: trio.TaskStatus[None] | None = None
) -> None:
    """Ask the person at the terminal about each request of the host's principal, one after the other, until it is cancelled.

    Args:
        host: whose capsules ask.
        keyboard: where the person types.
        task_status: told when it listens; a request before that would be denied, because nobody receives it.
    """
    from astrid_host.syscalls.approval import TOPIC

    async with host.subscribe(TOPIC) as requests:
        if task_status is not None:
            task_status.started()
        async for event in requests:
            request = question_in(event)
            if request is not None:
                await answer(host, request, await decided_by(keyboard, request))


def question_in(event: HostEvent) -> ApprovalRequired | None:
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


async def decided_by(keyboard: Keyboard, request: ApprovalRequired) -> str:
    """Show one request, and read the decision. Cancelled, it asks no more."""
    from astrid_host.gates.allowances import allowance_for

    allowance = allowance_for(request.action, request.resource)
    offered = _ONCE if allowance is None else _ONCE | _LONGER
    longer = f", [s] for this session or [a] always: {printable(str(allowance))}" if allowance is not None else ""
    keyboard.forget()
    sys.stderr.write(
        f"\n{printable(request.reason)}: {printable(request.action)}\n"
        f"  {printable(request.resource)}\n"
        f"Allow it? [y] once{longer}; anything else denies: "
    )
    sys.stderr.flush()
    return offered.get((await keyboard.answer()).strip().lower(), "deny")


async def answer(host: Served, request: ApprovalRequired, decision: str) -> None:
    """Tell the host what was decided."""
    from astrid_host.syscalls.approval import ANSWERS

    payload = {"type": "approval_response", "request_id": request.request_id, "decision": decision}
    await host.publish(f"{ANSWERS}{request.request_id}", payload)
