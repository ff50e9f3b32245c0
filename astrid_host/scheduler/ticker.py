"""The epoch ticker: a thread that lets the engine's epoch pass while guests compute, and ends waits whose time is up.

It costs nothing when idle: half a second after the last guest ran it sleeps until the next wait is over, or until it is
resumed.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from astrid_host.engine import TICK_S, Engine

if TYPE_CHECKING:
    from astrid_host.scheduler.scheduler import Scheduler

QUIET_TICKS = 50


class EpochTicker:
    """Ticks for one host."""

    def __init__(self, engine: Engine, scheduler: Scheduler) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._resumed = threading.Semaphore(0)
        self.stopped = False
        self._closing = False
        self._end = threading.Lock()  # held until the end, so that waiting for it is a sleep that ends at once then
        self._end.acquire()
        self.runs = 0
        self._thread = threading.Thread(target=self._tick, name="astrid-host ticker", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """A guest is about to run, and the ticker sleeps. The lock is held."""
        self.stopped = False
        self._resumed.release()

    def _tick(self) -> None:
        quiet, seen = 0, -1
        while not self._closing:
            self._end.acquire(timeout=TICK_S)
            self._engine.tick()
            self._scheduler.expire()
            quiet = 0 if self.runs != seen or self._scheduler.busy() else quiet + 1
            seen = self.runs
            if quiet >= QUIET_TICKS:
                self._sleep(seen)
                quiet = 0

    def _sleep(self, seen: int) -> None:
        """Until the next wait is over or a guest runs again."""
        with self._scheduler.lock:
            if self.runs != seen or self._closing:
                return
            self.stopped = True
        until = self._scheduler.next_deadline()
        if self._resumed.acquire(timeout=None if until is None else max(until - time.monotonic(), 0)):
            return
        with self._scheduler.lock:
            if not self.stopped:
                self._resumed.acquire()  # resumed while it woke by itself
            self.stopped = False

    def close(self) -> None:
        """End the thread."""
        with self._scheduler.lock:
            self._closing = True
            self._end.release()
            if self.stopped:
                self.stopped = False
                self._resumed.release()
        self._thread.join()
