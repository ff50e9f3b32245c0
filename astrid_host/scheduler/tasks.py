"""Host functions that wait, as tasks of the trio loop.

The guest sleeps meanwhile, on no thread. When its call ends early the task is cancelled; when the task ends, its value or
its `HostError` is lowered on the guest's own stack. Any other exception of the task ends the call.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from astrid_host.engine import Suspend
from astrid_host.errors import GuestCancelled
from astrid_host.scheduler.call import Call
from astrid_host.scheduler.scheduler import Scheduler


class Tasks:
    """Runs host functions in one nursery. Made on the trio thread."""

    def __init__(self, scheduler: Scheduler, nursery: trio.Nursery) -> None:
        self._scheduler = scheduler
        self._nursery = nursery
        self._loop = threading.get_ident()

    def waiting(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Suspend]:
        """An `async def` host function as the linker wants it: it returns a `Suspend` and goes on as a task."""

        def run(call: Call, *arguments: Any) -> Suspend:
            task = _Task(self._scheduler, call, function, arguments)
            if threading.get_ident() == self._loop:
                self._nursery.start_soon(task.run)
            else:
                self._scheduler.call_soon(lambda: self._nursery.start_soon(task.run))
            return task.suspend

        return run


class _Task:
    __slots__ = ("arguments", "call", "error", "function", "gone", "scheduler", "scope", "suspend", "value")

    def __init__(
        self, scheduler: Scheduler, call: Call, function: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]
    ) -> None:
        self.scheduler = scheduler
        self.call = call
        self.function = function
        self.arguments = arguments
        self.value: Any = None
        self.error: BaseException | None = GuestCancelled("the host stops")
        self.gone = False
        self.scope = trio.CancelScope()
        self.suspend = Suspend(call, self.finish)
        self.suspend.cancel = self.cancel

    def finish(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def cancel(self) -> None:
        self.gone = True
        self.scheduler.call_soon(self.scope.cancel)
        self.scheduler.wake_loop()

    def _give(self, value: Any) -> None:
        """The host function has returned: when nobody will have its value, what that holds must not stay open."""
        if not self.gone:
            self.value, self.error = value, None
        elif (close := getattr(value, "close", None)) is not None:
            close()

    async def run(self) -> None:
        if self.gone:
            return
        try:
            with self.scope:
                value = await self.function(self.call, *self.arguments)
                self._give(value)
        except Exception as error:  # noqa: BLE001 - raised again on the guest's own call
            self.error = error
        finally:
            with self.scheduler.lock:
                self.scheduler.wake_locked(self.suspend)
            self.scheduler.wake_loop()
