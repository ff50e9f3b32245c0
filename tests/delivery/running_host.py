"""A host that runs in a thread of its own, and a tape of what was published on it.

`RunningHost` is driven from another thread: every method returns when what it asked for was done on the host's loop. The tape
is filled by routed subscriptions, which must drop nothing. An exception in the host's thread is raised by the next method.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import trio
import trio.testing
from guests_in_wat import FAILED, hosted
from told_capsules import make_capsules

from astrid_host import Host, HostEvent
from astrid_host.listening import HostSubscription

T = TypeVar("T")
STUCK_S = 3.0
SURELY_STUCK_S = 0.2
TAPED = ["w.ask.*", "w.said.*", "astrid.v1.dispatch.*"]


class Listener:
    """A subscription of the program that embeds the host."""

    def __init__(self, subscription: HostSubscription, stack: AsyncExitStack, before: int, after: int) -> None:
        self.subscription = subscription
        self.before = before  # nothing up to this `seq` is given to it
        self.after = after  # everything above this one is
        self.got: list[HostEvent] = []
        self._stack = stack

    async def take(self, count: int) -> None:
        with trio.fail_after(5):
            for _ in range(count):
                self.got.append(await anext(self.subscription))

    async def stop(self) -> None:
        await self._stack.aclose()


class RunningHost:
    """A host of the told capsules. Use it in a `with`.

    Attributes:
        tape: every event so far but those that nobody receives, in the order of `seq` and without gaps.
        reported: how many failure reports were among them, by reason.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tape: list[HostEvent] = []
        self.reported: Counter[str] = Counter()
        self._next = 1
        self._patience_s = STUCK_S
        self._came: dict[int, HostEvent | None] = {}  # None: an event that nobody received, known by its report
        self._grew = threading.Condition()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="the host of a test", daemon=True)

    def __enter__(self) -> RunningHost:
        make_capsules(self.place)
        self._thread.start()
        self._ready.wait()
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._failure is None:
            self.on_loop(self._over.set)
        self._thread.join()
        self._check()

    @property
    def seen(self) -> int:
        """The `seq` up to which every event is known."""
        return self._next - 1

    def on_loop(self, function: Callable[[], T]) -> T:
        """What a function returns when it is called on the host's loop."""
        self._check()
        return trio.from_thread.run_sync(function, trio_token=self._token)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same of an asynchronous one."""
        self._check()
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def while_the_loop_stands_still(self, function: Callable[[], None]) -> None:
        """Call a function in a third thread, while the loop runs nothing."""

        def stand_still() -> None:
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()

        self.on_loop(stand_still)

    def rest(self) -> None:
        """Return when nothing happens on the loop any more: the tape has all that was published from there."""
        self.do(trio.testing.wait_all_tasks_blocked)
        assert all(tap.dropped == 0 for tap in self._taps), "the tape has a gap"

    def wait_for_more(self, length: int) -> bool:
        """Wait until the tape is longer than that; False when it does not grow any more."""
        with self._grew:
            grew = self._grew.wait_for(lambda: len(self.tape) > length, self._patience_s)
        if not grew:
            self._patience_s = SURELY_STUCK_S  # what follows are only smaller cases of this one
        return grew

    def listen(self, pattern: str, who: str | None, observe: bool) -> Listener:
        async def begin() -> Listener:
            stack = AsyncExitStack()
            subscription = self.host.subscribe(pattern, principal=who, observe=observe)
            before = self.host.stats().events
            await stack.enter_async_context(subscription)
            return Listener(subscription, stack, before, self.host.stats().events)

        listener: Listener = self.do(begin)
        return listener

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that drives it
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._over = trio.Event()
        async with hosted(self.place) as host, AsyncExitStack() as stack, trio.open_nursery() as nursery:
            assert {info.state for info in host.capsules.values()} == {"ready"}
            self.host: Host = host
            self._taps = [await stack.enter_async_context(host.subscribe(pattern)) for pattern in TAPED]
            for tap in self._taps:
                nursery.start_soon(self._record, tap)
            self._ready.set()
            await self._over.wait()
            nursery.cancel_scope.cancel()

    async def _record(self, tap: HostSubscription) -> None:
        async for event in tap:
            if event.topic.startswith(FAILED):
                self.reported[event.payload["reason"]] += 1
                if event.payload["topic"] == "w.nobody":
                    self._came[event.payload["seq"]] = None
            twice = event.seq < self._next or event.seq in self._came
            assert not twice, f"seq {event.seq} was given twice"
            self._came[event.seq] = event
            with self._grew:
                while self._next in self._came:
                    next_ = self._came.pop(self._next)
                    if next_ is not None:
                        self.tape.append(next_)
                    self._next += 1  # after the tape has it: `seen` is read by another thread
                self._grew.notify_all()
