"""Waiting for a database that another process has locked: the guest sleeps, and the thread that runs guests goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import trio

from astrid_host.engine import Suspend
from astrid_host.stores import Locked, Retries

Answer = TypeVar("Answer")


class Waking(Protocol):
    """Who wakes guests that wait."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    def wake_locked(self, suspend: Suspend) -> None: ...
    def wake_loop(self) -> None: ...


class LockRetry:
    """Lets guests wait for writes.

    Args:
        retries: tries them again, on a thread of its own and within a bound.
        scheduler: wakes guests.
    """

    def __init__(self, retries: Retries, scheduler: Waking) -> None:
        self._retries = retries
        self._scheduler = scheduler

    def attempt(self, write: Callable[..., object], *arguments: Any) -> Future[object] | None:
        """Do a write, called with these arguments.

        Returns:
            None when it is done; when it was Locked, or others wait already, the future by which it will be, behind them.

        Raises:
            StoreError: it failed.
        """
        if not self._retries.waiting:
            try:
                write(*arguments)
            except Locked:
                pass
            else:
                return None
        return self._retries.put(lambda: write(*arguments))

    def later(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Have done what was Locked a moment ago, as soon as it can be."""
        return self._retries.put(work)

    def asleep(
        self, call: Any, future: Future[Any], finish: Callable[[], Any], cancel: Callable[[], None] | None = None
    ) -> Suspend:
        """What a host function returns to have its guest sleep until a future is done.

        Args:
            call: the running call.
            future: ends within a bound.
            finish: gives the host function's result then.
            cancel: hears that the call ended before.
        """
        suspend = Suspend(call, finish)
        suspend.cancel = cancel
        future.add_done_callback(lambda _: self._wake(suspend))
        return suspend

    def _wake(self, suspend: Suspend) -> None:
        with self._scheduler.lock:
            self._scheduler.wake_locked(suspend)
        self._scheduler.wake_loop()


async def over(future: Future[Any]) -> None:
    """Wait until a future that has a bound is done, however it ended. A cancellation has to wait as well."""
    ended = trio.Event()
    token = trio.lowlevel.current_trio_token()
    future.add_done_callback(lambda _: token.run_sync_soon(ended.set))
    with trio.CancelScope(shield=True):
        await ended.wait()
