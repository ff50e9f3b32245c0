"""One call of a guest outside the dispatcher: started, run, and waited for."""

from __future__ import annotations

from typing import Any

import trio

from astrid_host.calls.call import Call, Pace
from astrid_host.calls.turns import Turns
from astrid_host.engine import Entry
from astrid_host.errors import GuestCancelled


class _Once:
    """The owner of a call that somebody waits for on the trio thread."""

    __slots__ = ("failure", "over", "pace", "turns")

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.pace = Pace()
        self.over = trio.Event()
        self.failure: BaseException | None = None

    def ended(self, _call: Call, failure: BaseException | None) -> None:
        self.failure = failure
        self.turns.tell(self.over.set)
        self.turns.ring()


async def call_once(
    turns: Turns,
    capsule: Any,
    entry: Entry,
    arguments: tuple[Any, ...],
    principal: str,
    limit_s: float,
) -> Any:
    """Call an export and return what it returned.

    Args:
        capsule: whose pool lends the instance.
        limit_s: seconds of computing.

    Raises:
        GuestFailed: the guest did not return.

    Cancelled, the guest is stopped: at once when it waits, at the next tick when it computes.
    """
    owner = _Once(turns)
    call = Call(capsule, entry, arguments, principal, None, owner, limit_s)
    with turns.lock:
        turns.schedule_locked(call)
    turns.go()
    try:
        await owner.over.wait()
    except trio.Cancelled:
        with turns.lock:
            turns.cancel_locked(call, GuestCancelled("whoever called it waits no more"))
        turns.go()
        with trio.CancelScope(shield=True):
            await owner.over.wait()
        raise
    if owner.failure is not None:
        raise owner.failure
    return call.result
