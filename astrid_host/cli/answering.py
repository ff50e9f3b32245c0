"""Capsules' requests for approval, while a command runs: shown to the person at the terminal, and answered by them.

Only the host's own questions are asked: what a capsule publishes in their place is passed over. Anything but a clear yes is a no.
What was asked before the person allowed it for longer than once, is not asked again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    import trio

    from astrid_host.cli.keyboard import Keyboard
    from astrid_host.cli.served import Served
    from astrid_host.gates.allowances import Allowance
    from astrid_host.payloads.kinds import ApprovalRequired
    from astrid_host.payloads.outside import HostEvent

_ONCE = {"y": "approve", "yes": "approve"}
_LONGER = {"s": "approve_session", "session": "approve_session", "a": "approve_always", "always": "approve_always"}


class Allowances:
    """What the person has allowed for longer than once, for requests that were on their way already."""

    def __init__(self) -> None:
        self._allowed: list[tuple[int, str, Allowance]] = []

    def keep(self, request: ApprovalRequired, decision: str, seq: int) -> None:
        """A request was decided on, with the event of that number."""
        from astrid_host.gates.allowances import allowance_for

        allowance = allowance_for(request.action, request.resource) if decision in _LONGER.values() else None
        if allowance is not None:
            self._allowed.append((seq, request.reason, allowance))

    def cover(self, request: ApprovalRequired, seq: int) -> bool:
        """Whether a request of the same capsule, the event of that number, was waiting when what covers it was allowed."""
        return any(
            seq < decided and request.reason == reason and allowance.covers(request.action, request.resource)
            for decided, reason, allowance in self._allowed
        )


async def answer_at_terminal(
    host: Served, keyboard: Keyboard, task_status: trio.TaskStatus[None] | None = None
) -> None:
    """Ask the person at the terminal about each request of the host's principal, one after the other, until it is cancelled.

    Args:
        host: whose capsules ask.
        keyboard: where the person types.
        task_status: told when it listens; a request before that would be denied, because nobody receives it.
    """
    from astrid_host.topics import APPROVAL

    allowances = Allowances()
    async with host.subscribe(APPROVAL) as requests:
        if task_status is not None:
            task_status.started()
        async for event in requests:
            request = question_in(event)
            if request is None:
                continue
            if allowances.cover(request, event.seq):
                await answer(host, request, "approve")
                continue
            decision = await decided_by(keyboard, request, shown)
            allowances.keep(request, decision, await answer(host, request, decision))


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


@contextmanager
def shown(question: str) -> Generator[None]:
    """Show a question, while the body waits for the answer."""
    sys.stderr.write(f"\n{question}")
    sys.stderr.flush()
    try:
        yield
    except BaseException:
        sys.stderr.write("\n")  # what follows is no part of the question
        sys.stderr.flush()
        raise


async def decided_by(
    keyboard: Keyboard, request: ApprovalRequired, show: Callable[[str], AbstractContextManager[None]]
) -> str:
    """Show one request, and read the decision. Cancelled, it asks no more.

    Args:
        keyboard: where the person types.
        request: what is asked.
        show: shows a question while the body runs.
    """
    from astrid_host.gates.allowances import allowance_for

    allowance = allowance_for(request.action, request.resource)
    offered = _ONCE if allowance is None else _ONCE | _LONGER
    longer = f", [s] for this session or [a] always: {printable(str(allowance))}" if allowance is not None else ""
    keyboard.forget()
    question = (
        f"{printable(request.reason)}: {printable(request.action)}\n"
        f"  {printable(request.resource)}\n"
        f"Allow it? [y] once{longer}; anything else denies: "
    )
    with show(question):
        typed = await keyboard.answer()
        if not typed.endswith("\n"):
            sys.stderr.write("\n")
    return offered.get(typed.strip().lower(), "deny")


async def answer(host: Served, request: ApprovalRequired, decision: str) -> int:
    """Tell the host what was decided; the `seq` of that."""
    from astrid_host.topics import APPROVAL_ANSWERS

    payload = {"type": "approval_response", "request_id": request.request_id, "decision": decision}
    return await host.publish(f"{APPROVAL_ANSWERS}{request.request_id}", payload)
