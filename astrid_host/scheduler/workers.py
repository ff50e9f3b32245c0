"""The worker pool: threads that take over guests which compute for long.

They are niced, because they only ever compute, and they share by ticks: a call that yields goes behind the computing calls
that wait for a thread. Threads are made when they are needed and stay.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astrid_host.scheduler.call import Call
    from astrid_host.scheduler.scheduler import Scheduler

NICE = 19


class _Worker:
    __slots__ = ("call", "wake")

    def __init__(self) -> None:
        self.call: Call | None = None
        self.wake = threading.Semaphore(0)


class WorkerPool:
    """Threads that compute.

    Args:
        scheduler: whose calls they run.
        size: the most threads.
    """

    def __init__(self, scheduler: Scheduler, size: int) -> None:
        self._scheduler = scheduler
        self._size = size
        self._idle: list[_Worker] = []
        self._threads: list[threading.Thread] = []
        self._workers: list[_Worker] = []
        self._waiting: deque[Call] = deque()

    def busy(self) -> bool:
        return len(self._idle) < len(self._workers)

    def take_over(self, call: Call) -> None:
        """Let a thread go on with this call; when all are at work it waits for one."""
        with self._scheduler.lock:
            if self._idle:
                worker = self._idle.pop()
            elif len(self._workers) < self._size:
                worker = _Worker()
                self._workers.append(worker)
                name = f"astrid-host worker {len(self._workers)}"
                thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._waiting.append(call)
                return
        worker.call = call
        worker.wake.release()

    def _work(self, me: _Worker) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # of this thread alone
        scheduler = self._scheduler
        while me.wake.acquire():
            call = me.call
            if call is None:
                return
            while call is not None:
                done = scheduler.advance(call, time.thread_time)
                if not done and call.is_host_call_heavy:
                    scheduler.share_loop(call)
                    done = True
                scheduler.wake_loop()
                with scheduler.lock:
                    if not done:
                        if not self._waiting:
                            continue
                        self._waiting.append(call)
                    me.call = call = self._waiting.popleft() if self._waiting else None
                    if call is None:
                        self._idle.append(me)

    def close(self) -> None:
        """End the threads; no call is under way any more."""
        for worker in self._workers:
            worker.call = None
            worker.wake.release()
        for thread in self._threads:
            thread.join()
        self._workers.clear()
        self._idle.clear()
        self._threads.clear()
