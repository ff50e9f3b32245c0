"""Run loops: capsules whose `run` export is real are started once and serve by receiving, not by handlers.

A stub `run` returns at once without having called a host function: such a capsule is an interceptor capsule.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from astrid_host.bus import Bus, Failure
from astrid_host.calls import Call, Pace, Turns
from astrid_host.capsules.capsule import RUN, Capsule
from astrid_host.dispatch.outcomes import failed, with_refusals
from astrid_host.errors import GuestCancelled
from astrid_host.syscalls.ipc import report_refusals

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


class RunLoop:
    """One run of a capsule's `run`.

    Args:
        capsule: whose.
        bus: where its failure is reported, on the message that it handled last.
        ended: called when it is over; `stub` when it never reached the host.
    """

    def __init__(self, capsule: Capsule, bus: Bus, ended: Callable[[bool], None]) -> None:
        self.capsule = capsule
        self.pace = Pace()
        self._bus = bus
        self._ended = ended

    def start(self, turns: Turns) -> Call:
        """Begin; the first turn runs it until it waits."""
        capsule = self.capsule
        assert capsule.linked is not None, "its module is loaded"
        entry = capsule.linked.entries[RUN]
        call = Call(capsule, entry, (), capsule.owner, None, self, capsule.timeout_s, follows=True)
        capsule.run_loop = call
        with turns.lock:
            turns.schedule_locked(call)
        return call

    def ended(self, call: Call, failure: BaseException | None) -> None:
        capsule = self.capsule
        capsule.run_loop = None
        stub = failure is None and not call.reached
        if not stub:
            with self._bus.lock:
                reason = failed(failure).reason if failure is not None else ""
                for account in (capsule.account, capsule.accounts.of(call.principal)):
                    account.ended(reason, call.worked, call.memory_bytes)
        if failure is not None and not isinstance(failure, GuestCancelled):
            told = failed(failure)
            capsule.fail(f"its run loop failed: {told.detail}")
            log.error("%s: its run loop failed: %s: %s", capsule.id, told.reason, told.detail)
            if call.message is not None:
                with self._bus.lock:
                    detail = with_refusals(told.detail, call.refused)
                    report = Failure(told.reason, detail, capsule.id, RUN)
                    self._bus.report(call.message, report, published=call.published)
        elif failure is None and not stub:
            log.info("%s: its run loop returned", capsule.id)
            with self._bus.lock:
                report_refusals(self._bus, call)
        self._ended(stub)
        capsule.is_ready.set()
