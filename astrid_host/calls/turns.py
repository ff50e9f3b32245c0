"""Whose turn it is: the loop's thread runs guests, a crew of threads takes over those that compute, a clock ticks.

Whoever has made work on the trio thread takes a *turn*: it runs what is runnable and what follows from it, for 2 ms at
most, then lets trio's other tasks go on. A call that is still computing when an epoch tick falls due goes to the *crew*,
whose threads only ever compute and are niced; they share by ticks. One that calls many host functions stays with the loop and
shares it, some host functions at a time: on a niced thread it would keep others from the interpreter. A call that waits is a
suspended stack on no thread.

What was woken and what begins take turns, so that neither can keep the other waiting; while many wait, principals whose guests
have computed little go before both. A turn in which somebody on the
loop got what it waits for ends early.

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

from astrid_host.calls.call import Brake, Call
from astrid_host.calls.clock import Clock
from astrid_host.calls.crew import Crew
from astrid_host.calls.shares import CROWD, Shares
from astrid_host.engine import CHATTY_CALLS, Engine, Suspend
from astrid_host.errors import GuestCancelled, GuestFailed, GuestTimeout

log = logging.getLogger(__name__)
now = time.monotonic

TURN_S = 0.002
SERVED_S = 0.0003  # a turn is no longer than this once somebody on the loop was served
SERVED_IN_CROWD_S = 0.001  # no turns are taken in between then, so that short ones would only let fewer calls run
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


class Turns:
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
        self._turning = self._rung = False
        self._told: deque[Callable[[], None]] = deque()
        self._at_end: dict[Callable[[], None], None] = {}
        self.crew = Crew(self, workers)
        self.clock = Clock(engine, self)

    # Making work. `*_locked` is called with the lock held; the rest must not be.

    def schedule_locked(self, source: Source) -> None:
        if len(self.runnable) >= CROWD and self.shares.has_had_little(source.principal):
            self.ahead.append(source)
        else:
            self.runnable.append(source)

    def tell(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread soon: at the end of a turn. From any thread."""
        self._told.append(callback)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop's thread once everything has ended. From the loop's thread."""
        self._at_end[callback] = None

    def not_at_end(self, callback: Callable[[], None]) -> None:
        """Do not call it, after all."""
        self._at_end.pop(callback, None)

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

    def brake_locked(self, call: Call, brake: Brake) -> None:
        """Let a call that computes stand still at its next epoch check. Called by its own host functions."""
        call.brake = brake
        if call.instance is not None:  # else it is over, and what it came from is held
            call.yield_soon()

    def release_locked(self, call: Call, brake: Brake) -> None:
        """What a call stands still for is there."""
        if call.brake is brake and call.standing and call.suspend is not None:
            self.wake_locked(call.suspend)

    def cancel_locked(self, call: Call, why: GuestFailed) -> None:
        """End a call: at once when it waits, at the next tick when it computes."""
        if call.cancelled is None:
            call.cancelled = why
            if call.parked:
                self._go_on_locked(call)

    def go(self) -> None:
        """There may be work: take a turn if this is the loop's thread, else let the loop take one.

        While many wait, tasks of the loop take no turns of their own: one turn for each of many tasks would let none of them go
        on before all have had theirs.
        """
        if self._turning:
            return  # the turn sees the work itself
        if threading.get_ident() == self._loop and len(self.runnable) < CROWD:
            self.turn()
        else:
            self.ring()

    def ring(self) -> None:
        """Let the loop take a turn, unless it is in one and will see the work itself. From any thread."""
        with self.lock:
            if (
                self._turning
                or self._rung
                or self.closed
                or not (self.runnable or self.woken or self.ahead or self._told)
            ):
                return
            self._rung = True
        self._token.run_sync_soon(self._answer)

    def _answer(self) -> None:
        """The loop was rung. One ring is under way at most, or each turn in between would add one that stays for ever."""
        with self.lock:
            self._rung = False
        self.turn()

    def alarm_locked(self, at: float, callback: Callable[[], None]) -> None:
        """Call `callback` at that time of `time.monotonic`, with the lock held, on any thread; it must not block."""
        heapq.heappush(self._deadlines, (at, next(self._ticket), callback))

    # Turns of the loop's thread.

    @trio.lowlevel.enable_ki_protection
    def turn(self) -> None:
        """Run what is runnable, for 2 ms at most, then tell who waits on the loop."""
        begun = now()
        with self.lock:
            self._turning, self.served = True, False
        try:
            more = self._run(begun)
        finally:
            self._turning = False
        self.hand_out()
        # Whoever made work since the last look, while this still seemed to be a turn, did not ring.
        if more or self.runnable or self.woken or self.ahead or self._told:
            self.ring()

    def hand_out(self) -> None:
        """Call what was to be called on the loop's thread. From that thread."""
        while self._told:
            self._told.popleft()()

    def _run(self, begun: float) -> bool:
        """Run calls until the turn is over (True), or nothing is left to run."""
        while True:
            with self.lock:
                call = self._next_locked()
            if call is None:
                return False
            if call.heavy or (call.future is None and call.owner.pace.slow):
                self.crew.take_over(call)
            else:
                # A tick may fall into a short call: that alone does not make it a long one.
                while not self.advance(call):
                    if call.chatty:
                        self.share_loop(call)
                        break
                    if call.stretch > LONG_S * (1 + call.talked):
                        call.owner.pace.took(call.worked, LONG_S)
                        self.crew.take_over(call)
                        break
            took = now() - begun
            if took > TURN_S:
                return True
            if self.served and took > (SERVED_S if len(self.runnable) < CROWD else SERVED_IN_CROWD_S):
                return True

    def share_loop(self, call: Call) -> None:
        """Let the loop go on with a call when others have had their turn. From any thread."""
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
                clock = self.clock
                clock.runs += 1
                if clock.stopped:
                    clock.wind()
                self.live.add(call)
                if self.closing and call.cancelled is None:
                    call.cancelled = GuestCancelled("the host stops")
                return call
        return None

    def advance(self, call: Call, computed: Callable[[], float] = now) -> bool:
        """Run a call until it ends or waits (True), or a tick falls due (False). On the loop's thread or the crew's.

        Args:
            computed: a clock of the seconds that this thread computes; the crew's threads are niced and may stand still.
        """
        begun, failure, ended = computed(), None, False
        try:
            if call.standing and self._stands_still(call):
                return True
            if call.aside:
                call.aside = False
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
        call.stretch += took
        if len(self.runnable) >= CROWD or len(self.woken) >= CROWD:
            with self.lock:
                self.shares.add(call.principal, took)
        if failure is None and not ended:
            suspend = call.suspend
            if suspend is not None:
                self._park(call, suspend)
                return True
            if call.brake is not None and self._stands_still(call):
                return True
            if call.worked <= call.limit_s:
                call.talked = call.reached - call.marked
                call.chatty = call.talked >= CHATTY_CALLS
                if call.chatty:
                    call.stretch = 0.0
                call.marked = call.reached
                return False
            failure = GuestTimeout(
                f"{call.capsule.id} computed for more than {call.limit_s:g} s: give it more by [limits] timeout_secs"
            )
        self._end(call, failure)
        return True

    def _stands_still(self, call: Call) -> bool:
        """Whether a call that has a brake stands still for it, now or again; it is parked then."""
        with self.lock:
            call.standing, call.suspend = False, None
            brake = call.brake
            until = brake.until(now()) if brake is not None and call.cancelled is None else None
            if until is None:
                call.brake = None
                return False
            call.standing = True
            call.suspend = Suspend(call, _nothing, until)
            self._park(call, call.suspend)
        return True

    def _park(self, call: Call, suspend: Suspend) -> None:
        if call.stretch:
            # As it was, so it will be when it goes on; what host functions take is not the guest's computing.
            call.heavy = call.stretch > LONG_S * (1 + call.reached - call.marked)
            call.stretch = 0.0
        call.marked = call.reached
        with self.lock:
            if call.follows:
                call.charge()
            if suspend.ready or call.cancelled is not None:
                self.woken.append(call)
                return
            call.parked = True
            if not call.aside:
                call.aside = call.capsule.pool.instances.set_aside()
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

    # What the clock asks for.

    def busy(self) -> bool:
        """Whether some guest may be computing now."""
        return self._turning or self.crew.busy()

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
        self.ring()

    def next_deadline(self) -> float | None:
        """When the next wait is over, in seconds of `time.monotonic`."""
        with self.lock:
            return self._deadlines[0][0] if self._deadlines else None

    # The end.

    async def close(self) -> None:
        """End every call, then the crew and the clock. Guests that compute are stopped at their next tick."""
        with trio.CancelScope(shield=True):
            with self.lock:
                self.closing = True  # what is queued still ends, but no guest of it runs
                for call in list(self.live):
                    self.cancel_locked(call, GuestCancelled("the host stops"))
            while self.live or self.runnable or self.woken or self.ahead:
                self.go()
                await trio.sleep(0.001)
            with self.lock:
                self.closed = True
            self.crew.close()
            self.clock.close()
            for callback in list(self._at_end):
                callback()
            self.hand_out()


def _nothing() -> None:
    """A guest that stood still learns nothing from it."""
