"""astrid:io, as far as anything can be waited for: pollables that really become ready.

A guest that blocks on pollables is suspended; it costs nothing until one of them is ready or its call is ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from astrid_host.bus import Bus
from astrid_host.calls import Call, Turns
from astrid_host.engine import Suspend
from astrid_host.errors import HostError
from astrid_host.syscalls.interface import Interface, syscall

POLLABLES = 256
WAIT_S = 60.0  # as long as a `recv` waits at most


class Pollable(Protocol):
    """What the handle of a `pollable` holds. The bus's lock is held."""

    def ready(self) -> bool: ...
    def when_ready(self, wake: Callable[[], None]) -> None: ...


class Poll(Interface):
    """The host functions of astrid:io/poll.

    Args:
        bus: whose lock guards what becomes ready.
        turns: who wakes guests that wait.
    """

    wit = ("astrid:io/poll@1.0.0",)

    def __init__(self, bus: Bus, turns: Turns) -> None:
        self._bus = bus
        self._turns = turns

    @syscall("[method]pollable.ready")
    def ready(self, _call: Call, pollable: Pollable) -> bool:
        """Whether it is ready now."""
        with self._bus.lock:
            return pollable.ready()

    @syscall("[method]pollable.block", suspends=True)
    def block(self, call: Call, pollable: Pollable) -> Suspend | None:
        """Return when it is ready, or after 60 s."""
        with self._bus.lock:
            if pollable.ready():
                return None
            return self._suspend(call, [pollable], lambda: None)

    @syscall("poll", suspends=True)
    def poll(self, call: Call, pollables: list[Pollable]) -> Suspend | list[int]:
        """The indices of those that are ready, as soon as there is one; none after 60 s."""
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
        suspend = Suspend(call, finish, time.monotonic() + WAIT_S)
        for pollable in pollables:
            pollable.when_ready(lambda: self._turns.wake_locked(suspend))
        return suspend
