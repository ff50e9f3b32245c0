"""One call of a guest outside the dispatcher: started, run, and waited for."""

from __future__ import annotations

from typing import Any

import trio

from astrid_host.engine import Entry
from astrid_host.errors import GuestCancelled
from astrid_host.scheduler.call import Call, Pace
from astrid_host.scheduler.scheduler import Scheduler


class _Once:
    """The owner of a call that somebody waits for on the trio thread."""

    __slots__ = ("failure", "over", "pace", "scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.pace = Pace()
        self.over = trio.Event()
        self.failure: BaseException | None = None

    def ended(self, _call: Call, failure: BaseException | None) -> None:
        self.failure = failure
        self.scheduler.call_soon(self.over.set)
        self.scheduler.wake_loop()


async def call_once(
    scheduler: Scheduler,
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
    owner = _Once(scheduler)
    call = Call(capsule, entry, arguments, principal, None, owner, limit_s)
    with scheduler.lock:
        scheduler.schedule_locked(call)
    scheduler.run_or_wake()
    try:
        await owner.over.wait()
    except trio.Cancelled:
        with scheduler.lock:
            scheduler.cancel_locked(call, GuestCancelled("whoever called it waits no more"))
        scheduler.run_or_wake()
        with trio.CancelScope(shield=True):
            await owner.over.wait()
        raise
    if owner.failure is not None:
        raise owner.failure
    return call.result
