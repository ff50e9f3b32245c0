"""The scheduler: decides which call runs next, and on which thread.

The trio thread runs guests in *slices*. A slice runs what is runnable, and what follows from it, for 2 ms at most; then trio's
other tasks go on. A call that still computes when an epoch tick falls due moves to the *worker pool*, whose threads only compute
and are niced; they share by ticks. A call that calls many host functions stays on the trio thread and shares it, some host
functions at a time, because on a niced thread it would keep others from the interpreter. A call that waits is a suspended stack
on no thread.

Resumed calls and new calls alternate, so that neither starves. While many wait, principals whose guests have computed little go
before both. A slice ends early once somebody on the loop got what it waits for.

The lock that is handed in guards all queues. It is never held while a guest runs. A call ends exactly once, by
`Owner.ended`; cancellation and time limits take effect at the next tick, waits end at once.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import trio

from astrid_host.engine import HOST_CALLS_IN_A_ROW, Engine, Suspend
from astrid_host.errors import GuestCancelled, GuestFailed, GuestTimeout
from astrid_host.scheduler.call import Backpressure, Call
from astrid_host.scheduler.shares import CROWD, Shares
from astrid_host.scheduler.ticker import EpochTicker
from astrid_host.scheduler.workers import WorkerPool

log = logging.getLogger(__name__)
now = time.monotonic

SLICE_S = 0.002
SERVED_S = 0.0003  # a slice is no longer than this once somebody on the loop was served
SERVED_IN_CROWD_S = 0.001  # tasks run no slices of their own then, so shorter ones would only let fewer calls run
LONG_S = 0.001
PRUNE_AT = 1024


class Source(Protocol):
    """A queue of calls to come."""

    @property
    def principal(self) -> str | None:
        """On whose behalf."""
        ...

    def take(self) -> Call | None:
        """The next call; the lock is held. It makes itself runnable again when it has more to give."""
        ...


class Scheduler:
    """Runs the calls of one host. Made on the trio thread.

    Args:
        engine: whose epochs pass.
        lock: guards the queues of the whole host.
        workers: the most threads that compute beside the loop's.
    """

    def __init__(self, engine: Engine, lock: AbstractContextManager[Any], workers: int) -> None:
        self.lock = lock
        self.runnable: deque[Source] = deque()
        self.woken: deque[Call] = deque()  # calls under way that may go on
        self.ahead: deque[Source] = deque()  # what goes before both: of principals who have had little, while many wait
        self.shares = Shares()
        self.served = False  # somebody on the loop got what it waits for
        self._woken_last = False
        self.live: set[Call] = set()
        self.closed = self.closing = False
        self._deadlines: list[tuple[float, int, Suspend | Callable[[], None]]] = []
        self._prune_at = PRUNE_AT
        self._ticket = itertools.count()
        self._loop = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._in_slice = self._loop_is_woken = False
        self._callbacks: deque[Callable[[], None]] = deque()
        self._callbacks_at_end: dict[Callable[[], None], None] = {}
        self.workers = WorkerPool(self, workers)
        self.ticker = EpochTicker(engine, self)

    # Making work. `*_locked` is called with the lock held; the rest must not be.

    def schedule_locked(self, source: Source) -> None:
        if len(self.runnable) >= CROWD and self.shares.has_had_little(source.principal):
            self.ahead.append(source)
        else:
            self.runnable.append(source)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread soon: at the end of a slice. From any thread."""
        self._callbacks.append(callback)

    def call_at_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread once everything has ended. From the loop's thread."""
        self._callbacks_at_end[callback] = None

    def not_call_at_end(self, callback: Callable[[], None]) -> None:
        """Do not call it, after all."""
        self._callbacks_at_end.pop(callback, None)

    def wake_locked(self, suspend: Suspend) -> None:
        """End a wait: its guest goes on as soon as it can. Ending it twice, or too late, does nothing."""
        if suspend.ready:
            return
        suspend.ready = True
        call = suspend.activation
        assert isinstance(call, Call)
        if call.parked and call.suspend is suspend:
            self._go_on_locked(call)

    def _go_on_locked(self, call: Call) -> None:
        call.parked = False
        if len(self.woken) >= CROWD and self.shares.has_had_little(call.principal):
            self.ahead.append(call)
        else:
            self.woken.append(call)

    def block_locked(self, call: Call, backpressure: Backpressure) -> None:
        """Block a call that computes, from its next epoch check on. Called by its own host functions."""
        call.backpressure = backpressure
        if call.instance is not None:  # else it is over, and what it came from is held
            call.yield_soon()

    def release_locked(self, call: Call, backpressure: Backpressure) -> None:
        """The reason why a call is blocked is gone."""
        if call.backpressure is backpressure and call.is_blocked and call.suspend is not None:
            self.wake_locked(call.suspend)

    def cancel_locked(self, call: Call, why: GuestFailed) -> None:
        """End a call: at once when it waits, at the next tick when it computes."""
        if call.cancelled is None:
            call.cancelled = why
            if call.parked:
                self._go_on_locked(call)

    def run_or_wake(self) -> None:
        """There may be work: run a slice if this is the loop's thread, else wake the loop.

        While many wait, tasks of the loop run no slices of their own: one slice for each of many tasks would let none of them go
        on before all have had theirs.
        """
        if self._in_slice:
            return  # the slice sees the work itself
        if threading.get_ident() == self._loop and len(self.runnable) < CROWD:
            self.run_slice()
        else:
            self.wake_loop()

    def wake_loop(self) -> None:
        """Have the loop run a slice, unless it is in one and will see the work itself. From any thread."""
        with self.lock:
            if (
                self._in_slice
                or self._loop_is_woken
                or self.closed
                or not (self.runnable or self.woken or self.ahead or self._callbacks)
            ):
                return
            self._loop_is_woken = True
        self._token.run_sync_soon(self._on_wake)

    def _on_wake(self) -> None:
        """The loop was woken. One wake-up is under way at most, or each slice in between would add one that stays for ever."""
        with self.lock:
            self._loop_is_woken = False
        self.run_slice()

    def call_at_locked(self, at: float, callback: Callable[[], None]) -> None:
        """Call `callback` at that time of `time.monotonic`, with the lock held, on any thread; it must not block."""
        heapq.heappush(self._deadlines, (at, next(self._ticket), callback))

    # Turns of the loop's thread.

    @trio.lowlevel.enable_ki_protection
    def run_slice(self) -> None:
        """Run what is runnable, for 2 ms at most, then run the callbacks."""
        begun = now()
        with self.lock:
            self._in_slice, self.served = True, False
        try:
            more = self._run(begun)
        finally:
            self._in_slice = False
        self.run_callbacks()
        # Whoever made work since the last look, while this still seemed to be a slice, did not wake the loop.
        if more or self.runnable or self.woken or self.ahead or self._callbacks:
            self.wake_loop()

    def run_callbacks(self) -> None:
        """Call what was to be called on the loop's thread. From that thread."""
        while self._callbacks:
            self._callbacks.popleft()()

    def _run(self, begun: float) -> bool:
        """Run calls until the slice is over (True), or nothing is left to run."""
        while True:
            with self.lock:
                call = self._next_locked()
            if call is None:
                return False
            if call.is_compute_heavy or (call.future is None and call.owner.pace.slow):
                self.workers.take_over(call)
            else:
                # A tick may fall into a short call: that alone does not make it a long one.
                while not self.advance(call):
                    if call.is_host_call_heavy:
                        self.share_loop(call)
                        break
                    if call.slice_s > LONG_S * (1 + call.host_calls):
                        call.owner.pace.took(call.worked, LONG_S)
                        self.workers.take_over(call)
                        break
            took = now() - begun
            if took > SLICE_S:
                return True
            if self.served and took > (SERVED_S if len(self.runnable) < CROWD else SERVED_IN_CROWD_S):
                return True

    def share_loop(self, call: Call) -> None:
        """Let the loop go on with a call once others have run. From any thread."""
        with self.lock:
            self.woken.append(call)

    def _next_locked(self) -> Call | None:
        woken, runnable, ahead = self.woken, self.runnable, self.ahead
        while woken or runnable or ahead:
            call: Call | None
            if ahead:
                call = ahead.popleft().take()
            elif woken and not (self._woken_last and runnable):
                self._woken_last = True
                call = woken.popleft()
            else:
                self._woken_last = False
                call = runnable.popleft().take()
            if call is not None:
                ticker = self.ticker
                ticker.runs += 1
                if ticker.stopped:
                    ticker.resume()
                self.live.add(call)
                if self.closing and call.cancelled is None:
                    call.cancelled = GuestCancelled("the host stops")
                return call
        return None

    def advance(self, call: Call, computed: Callable[[], float] = now) -> bool:
        """Run a call until it ends or waits (True), or a tick falls due (False). On the loop's thread or a worker's.

        Args:
            computed: gives the seconds that this thread has computed; workers are niced and may not run at all for a while.
        """
        begun, failure, ended = computed(), None, False
        try:
            if call.is_blocked and self._block(call):
                return True
            if call.is_uncounted:
                call.is_uncounted = False
                call.capsule.pool.instances.resume()
            if call.cancelled is not None:
                raise call.cancelled
            if call.instance is None:
                call.instance = call.capsule.pool.lease(call.principal)
                call.began = True
            ended = call.advance()
        except BaseException as error:  # noqa: BLE001 - becomes the end of this call, and of no other
            failure = error
        took = computed() - begun
        call.worked += took
        call.slice_s += took
        if len(self.runnable) >= CROWD or len(self.woken) >= CROWD:
            with self.lock:
                self.shares.add(call.principal, took)
        if failure is None and not ended:
            suspend = call.suspend
            if suspend is not None:
                self._park(call, suspend)
                return True
            if call.backpressure is not None and self._block(call):
                return True
            if call.worked <= call.limit_s:
                call.host_calls = call.reached - call.marked
                call.is_host_call_heavy = call.host_calls >= HOST_CALLS_IN_A_ROW
                if call.is_host_call_heavy:
                    call.slice_s = 0.0
                call.marked = call.reached
                return False
            failure = GuestTimeout(
                f"{call.capsule.id} computed for more than {call.limit_s:g} s: give it more by [limits] timeout_secs"
            )
        self._end(call, failure)
        return True

    def _block(self, call: Call) -> bool:
        """Whether backpressure blocks a call, now or again; it is parked then."""
        with self.lock:
            call.is_blocked, call.suspend = False, None
            backpressure = call.backpressure
            until = backpressure.until(now()) if backpressure is not None and call.cancelled is None else None
            if until is None:
                call.backpressure = None
                return False
            call.is_blocked = True
            call.suspend = Suspend(call, _nothing, until)
            self._park(call, call.suspend)
        return True

    def _park(self, call: Call, suspend: Suspend) -> None:
        if call.slice_s:
            # As it was, so it will be when it goes on; what host functions take is not the guest's computing.
            call.is_compute_heavy = call.slice_s > LONG_S * (1 + call.reached - call.marked)
            call.slice_s = 0.0
        call.marked = call.reached
        with self.lock:
            if call.follows:
                call.charge()
            if suspend.ready or call.cancelled is not None:
                self.woken.append(call)
                return
            call.parked = True
            if not call.is_uncounted:
                call.is_uncounted = call.capsule.pool.instances.set_aside()
            if suspend.until is not None:
                if len(self._deadlines) >= self._prune_at:
                    self._prune_deadlines()
                heapq.heappush(self._deadlines, (suspend.until, next(self._ticket), suspend))

    def _prune_deadlines(self) -> None:
        """Forget the waits that are over: each holds its call, and most end long before their time is up."""
        kept = [
            entry
            for entry in self._deadlines
            if not isinstance(entry[2], Suspend) or (not entry[2].ready and entry[2].activation in self.live)
        ]
        heapq.heapify(kept)
        self._deadlines = kept
        self._prune_at = max(PRUNE_AT, 2 * len(kept))

    def _end(self, call: Call, failure: BaseException | None) -> None:
        instance = call.instance
        pace = call.owner.pace
        if failure is None and (call.worked > LONG_S or pace.last > LONG_S):
            pace.took(call.worked, LONG_S * (1 + call.reached))
        if instance is not None:
            call.memory_bytes = instance.size
            if failure is None:
                message = call.message
                call.capsule.pool.give_back(instance, now(), message is not None and message.passing)
            else:
                call.abandon()
                call.capsule.pool.discard(instance)
            call.instance = None
        self.live.discard(call)
        try:
            call.owner.ended(call, failure)
        except Exception:
            log.exception("%s: what follows from the end of its call failed: a fault of the host", call.capsule.id)

    # Called by the epoch ticker.

    def busy(self) -> bool:
        """Whether some guest may be computing now."""
        return self._in_slice or self.workers.busy()

    def expire(self) -> None:
        """End the waits whose time is up, and let alarms go off."""
        with self.lock:
            while self._deadlines:
                at, _, what = self._deadlines[0]
                if at > now() and not (isinstance(what, Suspend) and what.ready):
                    break
                heapq.heappop(self._deadlines)
                if isinstance(what, Suspend):
                    self.wake_locked(what)
                else:
                    what()
        self.wake_loop()

    def next_deadline(self) -> float | None:
        """When the next wait is over, in seconds of `time.monotonic`."""
        with self.lock:
            return self._deadlines[0][0] if self._deadlines else None

    # The end.

    async def close(self) -> None:
        """End every call, then the workers and the ticker. Guests that compute are stopped at their next tick."""
        with trio.CancelScope(shield=True):
            with self.lock:
                self.closing = True  # what is queued still ends, but no guest of it runs
                for call in list(self.live):
                    self.cancel_locked(call, GuestCancelled("the host stops"))
            while self.live or self.runnable or self.woken or self.ahead:
                self.run_or_wake()
                await trio.sleep(0.001)
            with self.lock:
                self.closed = True
            self.workers.close()
            self.ticker.close()
            for callback in list(self._callbacks_at_end):
                callback()
            self.run_callbacks()


def _nothing() -> None:
    """A guest that stood still learns nothing from it."""
