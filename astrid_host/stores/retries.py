"""Writes that found the database locked by another process: tried again, one after the other, on a thread that may wait.

Whoever must not wait, such as the thread that runs guests, tries a write once, and puts it here when it is `Locked`. The thread
begins with the first write that waits and ends with the last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from astrid_host.errors import StoreError

log = logging.getLogger(__name__)

BOUND_S = 5.0
FIRST_S, MOST_S = 0.0005, 0.01  # between two tries; each pause is half as long again as the one before

Answer = TypeVar("Answer")


class Locked(StoreError):
    """Another process has the database locked: nothing was done, and the same may be tried again."""


class Retries:
    """Tries writes again. Any thread may use it.

    Args:
        bound_s: for how long each is tried, in seconds.
    """

    def __init__(self, bound_s: float = BOUND_S) -> None:
        self._bound_s = bound_s
        self._line: deque[tuple[float, Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> bool:
        """Whether a write waits: who has to come after it goes behind it."""
        return bool(self._line)

    def put(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Try a write again until it is done, or the bound is reached.

        Args:
            work: called on another thread, again after each `Locked`; that thread does nothing else meanwhile.

        Returns:
            What it returned or raised; StoreError when the database was locked for the whole bound, which the log says too.
            Callbacks run on the thread, once the write no longer waits.
        """
        future: Future[Answer] = Future()
        with self._lock:
            self._line.append((time.monotonic() + self._bound_s, work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="astrid-retries", daemon=True)
                self._thread.start()
        return future

    def close(self) -> None:
        """Wait until everything in the line is done, or has reached its bound."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        pause = FIRST_S
        while self._more():
            until, work, future = self._line[0]
            value, error = _tried(work)
            if isinstance(error, Locked):
                if time.monotonic() < until:
                    time.sleep(pause)
                    pause = min(1.5 * pause, MOST_S)
                    continue
                error = StoreError(f"{error}; it was tried for {self._bound_s:g} s")
                log.error("%s", error)
            else:
                pause = FIRST_S
            self._line.popleft()  # first: whoever goes on now need not go behind it
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

    def _more(self) -> bool:
        with self._lock:
            if not self._line:
                self._thread = None
            return bool(self._line)


def _tried(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
        return None, error
