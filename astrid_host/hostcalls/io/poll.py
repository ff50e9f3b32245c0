"""astrid:io/poll: waiting for one of many things.

A guest that blocks on pollables is suspended; it costs nothing until one of them is ready or its call is ended. Whatever they
had begun in order to notice is ended with the wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import trio

from astrid_host.bus import Bus
from astrid_host.engine import Suspend
from astrid_host.errors import HostError
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.scheduler import Call, Scheduler

POLLABLES = 256
WAIT_S = 60.0  # as long as a `recv` waits at most
HANDLER_S = 120.0

Undo = Callable[[], None]


def patience(call: Call) -> float:
    """How many seconds a host function may wait where the guest sets no bound: 120, because events wait behind a handler that
    waits; as long as it lives in a run loop, behind which nothing does."""
    return float("inf") if call.follows else HANDLER_S


class Pollable(Protocol):
    """What the handle of a `pollable` holds. Both are called from any thread, with the bus's lock held, and do not block."""

    def ready(self) -> bool:
        """Whether it is ready now. What it belongs to having ended, it is: whoever asks that next learns so."""
        ...

    def when_ready(self, wake: Callable[[], None]) -> Undo | None:
        """Call `wake` once it is ready, with the lock held.

        Returns:
            What ends that, if it takes something to end; called without the lock, also after `wake` was.
        """
        ...


class Readiness:
    """A pollable for something that its owner goes on using: dropping the handle closes nothing."""

    __slots__ = ("_of",)

    def __init__(self, of: Pollable) -> None:
        self._of = of

    def ready(self) -> bool:
        return self._of.ready()

    def when_ready(self, wake: Callable[[], None]) -> Undo | None:
        return self._of.when_ready(wake)


class Signal:
    """Something that becomes true, and may become untrue again, for guests and tasks that wait for it.

    Args:
        scheduler: who wakes guests, and whose lock guards it.
        is_set: whether it is true from the beginning.
    """

    __slots__ = ("_scheduler", "_waiting", "is_set")

    def __init__(self, scheduler: Scheduler, is_set: bool = False) -> None:
        self._scheduler = scheduler
        self.is_set = is_set
        self._waiting: dict[object, Callable[[], None]] = {}

    def set(self) -> None:
        """It is true: wake who waits. From any thread."""
        with self._scheduler.lock:
            self.is_set = True
            waiting, self._waiting = self._waiting, {}
            for wake in waiting.values():
                wake()
        if waiting:
            self._scheduler.wake_loop()

    def clear(self) -> None:
        """It is true no longer. From any thread."""
        self.is_set = False

    def ready(self) -> bool:
        return self.is_set

    def when_ready(self, wake: Callable[[], None]) -> Undo:
        """Call `wake`, with the lock held, when it is set next."""
        key = object()
        self._waiting[key] = wake
        return lambda: self._forget(key)

    def _forget(self, key: object) -> None:
        with self._scheduler.lock:
            self._waiting.pop(key, None)

    async def wait(self) -> None:
        """Return when it is true. On the trio loop; cancelled, nothing is left behind."""
        event = trio.Event()
        with self._scheduler.lock:
            undo = None if self.is_set else self.when_ready(lambda: self._scheduler.call_soon(event.set))
        if undo is None:
            await trio.lowlevel.checkpoint()
            return
        try:
            await event.wait()
        finally:
            undo()


class Poll(Interface):
    """The host functions of astrid:io/poll.

    Args:
        bus: whose lock guards what becomes ready.
        scheduler: who wakes guests that wait.

    `closed` and `cancelled` are never answered: what has ended is ready, and the call of a capsule that is unloaded ends.
    """

    wit = ("astrid:io/poll@1.0.0",)

    def __init__(self, bus: Bus, scheduler: Scheduler) -> None:
        self._bus = bus
        self._scheduler = scheduler

    @hostcall("[method]pollable.ready")
    def ready(self, _call: Call, pollable: Pollable) -> bool:
        """Whether it is ready now."""
        with self._bus.lock:
            return pollable.ready()

    @hostcall("[method]pollable.block", suspends=True)
    def block(self, call: Call, pollable: Pollable) -> Suspend | None:
        """Return when it is ready, or after 60 s."""
        with self._bus.lock:
            if pollable.ready():
                return None
            return self._suspend(call, [pollable], lambda: None)

    @hostcall("poll", suspends=True)
    def poll(self, call: Call, pollables: list[Pollable]) -> Suspend | list[int]:
        """The indices of those that are ready, as soon as there is one; none after 60 s.

        Raises:
            HostError: `invalid-input` for an empty list, `too-large` for more than 256. (Astrid, io: poll.)
        """
        if not pollables:
            raise HostError("invalid-input", detail="poll needs at least one pollable")
        if len(pollables) > POLLABLES:
            raise HostError("too-large", detail=f"{len(pollables)} pollables; {POLLABLES} are allowed")

        def ready() -> list[int]:
            with self._bus.lock:
                return [i for i, pollable in enumerate(pollables) if pollable.ready()]

        with self._bus.lock:
            return ready() or self._suspend(call, pollables, ready)

    def _suspend(self, call: Call, pollables: list[Pollable], finish: Callable[[], object]) -> Suspend:
        undos: list[Undo] = []

        def over() -> None:
            while undos:
                undos.pop()()

        def finished() -> object:
            over()
            return finish()

        suspend = Suspend(call, finished, time.monotonic() + WAIT_S)
        suspend.cancel = over
        for pollable in pollables:
            undo = pollable.when_ready(lambda: self._scheduler.wake_locked(suspend))
            if undo is not None:
                undos.append(undo)
        return suspend
