"""What a handler's end means for its event.

A guest returns an action word and data. `continue` hands the event on, with the data as its new payload where there is
some; `final` ends a chain well; `deny` and `abort` refuse it. Any other word is a fault of the guest.
"""

from __future__ import annotations

from typing import Any

from astrid_host.bus import Failure
from astrid_host.errors import GuestFailed, NoInstance
from astrid_host.scheduler import Refusal

ACTIONS = ("continue", "final", "deny", "abort")


class Outcome:
    """How a handler ended: badly (`reason`), or well, with `data` and whether the chain goes on; whether it `ran` at all."""

    __slots__ = ("data", "detail", "final", "ran", "reason")

    def __init__(
        self, reason: str = "", detail: str = "", data: str | None = None, final: bool = False, ran: bool = True
    ) -> None:
        self.reason = reason
        self.detail = detail
        self.data = data
        self.final = final
        self.ran = ran


WENT_ON = Outcome()


def outcome(result: Any, failure: BaseException | None, ran: bool = True) -> Outcome:
    """What became of a call: `result` is the guest's capsule-result when there is no `failure`; `ran` whether it began."""
    if failure is not None:
        return failed(failure, ran)
    action, data = result.action, result.data
    if action == "continue":
        return Outcome(data=data) if data else WENT_ON
    if action == "final":
        return Outcome(data=data, final=True)
    if action in ("deny", "abort"):
        return Outcome("deny", data or "denied by the handler")
    return Outcome(
        "guest-fault", f"the handler returned the action {action[:64]!r}; it must be one of {', '.join(ACTIONS)}"
    )


def failed(failure: BaseException, ran: bool = True) -> Outcome:
    """A call that did not return, or never began."""
    if isinstance(failure, GuestFailed):
        return Outcome(failure.reason, str(failure), ran=ran and not isinstance(failure, NoInstance))
    return Outcome("trap", f"a host function failed: {type(failure).__name__}: {failure}")


def with_refusals(detail: str, refused: dict[str, Refusal]) -> str:
    """A failure's detail with the publishes that were refused before it."""
    told = "; ".join(f"its publish on {topic} was refused: {why.detail}" for topic, why in refused.items())
    return f"{detail}\n{told}" if told else detail


def first_of(failures: list[Failure]) -> Failure:
    """One failure for the report of a fan-out: the first, with the others named in its detail."""
    first = failures[0]
    if len(failures) == 1:
        return first
    others = ", ".join(f"{other.capsule}/{other.action}: {other.reason}" for other in failures[1:])
    return Failure(first.reason, f"{first.detail}\nalso failed: {others}", first.capsule, first.action)
