"""Run loops: capsules whose `run` export is real are started once and serve by receiving, not by handlers.

A stub `run` returns at once without having called a host function: such a capsule is an interceptor capsule. A run loop that
fails is told of on `astrid.v1.health.failed` and started again after 2 s, then 4, 8 and so on up to two minutes; after five
times in a row it stays down. (Astrid, kernel: health.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import trio

from astrid_host.bus import Bus, Failure
from astrid_host.capsules.capsule import RUN, Capsule
from astrid_host.dispatch.outcomes import failed, with_refusals
from astrid_host.errors import GuestCancelled
from astrid_host.hostcalls.ipc import report_refusals
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.scheduler import Call, Pace, Scheduler

log = logging.getLogger(__name__)

HEALTH = "astrid.v1.health.failed"
STUB_S = 5.0
READY_S = 0.5
LOOK_S = 0.01
ATTEMPTS = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 120.0


class RunLoop:
    """One run of a capsule's `run`.

    Args:
        capsule: whose.
        bus: where its failure is reported, on the message that it handled last.
        ended: called when it is over, on the thread that ran it last: with whether it never reached the host, and why it
            failed, if it did.
    """

    def __init__(self, capsule: Capsule, bus: Bus, ended: Callable[[bool, str], None]) -> None:
        self.capsule = capsule
        self.pace = Pace()
        self._bus = bus
        self._ended = ended

    def start(self, scheduler: Scheduler) -> Call:
        """Begin; the first turn runs it until it waits."""
        capsule = self.capsule
        assert capsule.linked is not None, "its module is loaded"
        entry = capsule.linked.entries[RUN]
        call = Call(capsule, entry, (), capsule.owner, None, self, capsule.timeout_s, follows=True)
        capsule.run_loop = call
        with scheduler.lock:
            scheduler.schedule_locked(call)
        return call

    def ended(self, call: Call, failure: BaseException | None) -> None:
        capsule = self.capsule
        capsule.run_loop = None
        stub = failure is None and not call.reached
        why = ""
        if not stub:
            with self._bus.lock:
                reason = failed(failure).reason if failure is not None else ""
                for account in (capsule.account, capsule.accounts.of(call.principal)):
                    account.ended(reason, call.worked, call.memory_bytes)
        if failure is not None and not isinstance(failure, GuestCancelled):
            told = failed(failure)
            why = told.detail
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
        self._ended(stub, why)
        capsule.is_ready.set()


class RunLoops:
    """The run loops of one host.

    Args:
        bus: where failures are told.
        scheduler: runs them.
        nursery: in which those that failed are started again.
        gone: called with a capsule whose run loop is over: what the host keeps for it can go.
    """

    def __init__(
        self,
        bus: Bus,
        scheduler: Scheduler,
        nursery: trio.Nursery,
        gone: Callable[[Capsule], None] = lambda _capsule: None,
    ) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._nursery = nursery
        self._gone = gone
        self._over: dict[Capsule, trio.Event] = {}
        self._attempts: dict[Capsule, int] = {}

    async def begin(self, capsule: Capsule) -> bool:
        """Start its `run`; whether that is a stub, which returned at once without having reached the host.

        Cancelled, the run loop goes on.
        """
        over = self._over[capsule] = trio.Event()
        verdict: list[bool] = []
        begun = time.monotonic()

        def is_over() -> None:
            over.set()
            if self._over.get(capsule) is over:
                del self._over[capsule]

        def ended(stub: bool, failure: str) -> None:
            verdict.append(stub)
            self._scheduler.call_soon(is_over)
            if failure and not self._scheduler.closing:
                self._tell_failed(capsule, failure)
                self._scheduler.call_soon(lambda: self._after_failure(capsule, time.monotonic() - begun))
            self._scheduler.wake_loop()

        call = RunLoop(capsule, self._bus, ended).start(self._scheduler)
        capsule.state = "ready"
        self._scheduler.run_or_wake()
        with trio.move_on_after(STUB_S):
            while not verdict and not call.reached:
                with trio.move_on_after(LOOK_S):
                    await over.wait()
        return bool(verdict and verdict[0])

    async def begun_well(self, capsule: Capsule) -> str:
        """Give a run loop that was begun half a second to subscribe and say that it is ready; why it failed, if it did."""
        with trio.move_on_after(READY_S):
            while capsule.run_loop is not None and not capsule.is_ready.is_set():
                await trio.sleep(LOOK_S)
        if capsule.state == "failed":
            return capsule.error or ""
        call = capsule.run_loop
        if call is not None and not call.reached:
            return f"its run loop did not call the host within {STUB_S:g} s"
        return ""

    async def stop(self, capsule: Capsule) -> None:
        """End its run loop, which is not started again. Cancelled, it ends all the same."""
        capsule.state = "unloaded"
        call = capsule.run_loop
        if call is not None:
            with self._scheduler.lock:
                self._scheduler.cancel_locked(call, GuestCancelled(f"{capsule.id} is unloaded"))
            self._scheduler.run_or_wake()
            over = self._over.get(capsule)
            if over is not None:
                await over.wait()
        self.forget(capsule)

    def forget(self, capsule: Capsule) -> None:
        """It is not started any more."""
        self._attempts.pop(capsule, None)

    def _tell_failed(self, capsule: Capsule, reason: str) -> None:
        with self._bus.lock:
            if self._bus.received(HEALTH, capsule.owner):
                told = from_value({"capsule_id": capsule.id, "reason": reason})
                self._bus.publish(HEALTH, told, capsule.owner, NIL_SOURCE, entering=True)

    def _after_failure(self, capsule: Capsule, lived_s: float) -> None:
        attempts = 0 if lived_s > LONGEST_PAUSE_S else self._attempts.get(capsule, 0)
        if capsule.state != "failed":
            return
        if attempts >= ATTEMPTS:
            log.error("%s: its run loop failed %d times in a row: it stays down", capsule.id, attempts + 1)
            return
        self._attempts[capsule] = attempts + 1
        self._nursery.start_soon(self._again, capsule, min(FIRST_PAUSE_S * 2**attempts, LONGEST_PAUSE_S))

    async def _again(self, capsule: Capsule, pause_s: float) -> None:
        await trio.sleep(pause_s)
        if capsule.state != "failed" or self._scheduler.closing:
            return
        log.info("%s: its run loop is started again", capsule.id)
        self._gone(capsule)
        capsule.error = None
        capsule.is_ready.clear()
        await self.begin(capsule)
