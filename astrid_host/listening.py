"""What an embedding program receives: events, through a routed subscription or as a broadcast receiver.

Both are asynchronous iterators that never end by themselves: they do when their `async with` is left, also for tasks that wait
then, and with `HostClosed` when the host stops. A cancelled wait loses nothing. Several tasks may iterate over one; each event
goes to one of them.
"""

from __future__ import annotations

import datetime
from types import TracebackType

import msgspec
import trio

from astrid_host.bus import Bus, Event, Receiver, Subscription
from astrid_host.errors import HostClosed
from astrid_host.payloads.outside import HostEvent
from astrid_host.scheduler import Scheduler

IN_A_ROW = 64  # so many events may be taken before others have their turn


def seen(event: Event) -> HostEvent:
    """An event of the bus, as the embedding program sees it."""
    payload = msgspec.json.decode(event.payload) if event.payload else None
    when = datetime.datetime.fromtimestamp(event.time, datetime.UTC)
    return HostEvent(event.topic, payload, event.source_id, event.principal, event.seq, when)


async def give_way(taken: int) -> None:
    """Before each event: let others have their turn after every 64, else only see whether the task is cancelled.

    `taken` counts the events. A full checkpoint for each would let the host run a whole turn for each, and fill up faster than
    it is read.
    """
    if taken % IN_A_ROW:
        await trio.lowlevel.checkpoint_if_cancelled()
    else:
        await trio.lowlevel.checkpoint()


class HostSubscription:
    """Events that match a pattern: `async with` it, then `async for` over it.

    The events of one principal come in the order of `seq`; a routed subscription gives each principal its turn, a broadcast
    receiver has one order for all.
    """

    def __init__(self, bus: Bus, scheduler: Scheduler, source: Subscription | Receiver) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._source = source
        self._source.listener = self._heard
        self._waiting: dict[trio.Event, None] = {}
        self._left = False
        self._taken = 0

    @property
    def dropped(self) -> int:
        """Events that a routed subscription gave up for newer ones, because they were not taken in time."""
        return self._source.dropped if isinstance(self._source, Subscription) else 0

    @property
    def lagged(self) -> int:
        """Events that a broadcast receiver missed, because it was more than the ring's 1,024 events behind."""
        return self._source.lagged if isinstance(self._source, Receiver) else 0

    async def __aenter__(self) -> HostSubscription:
        with self._bus.lock:
            if isinstance(self._source, Receiver):
                self._bus.ring.join(self._source, self._bus.seq)
            else:
                self._bus.subscribe(self._source)
        self._scheduler.call_at_end(self._wake_all)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.not_call_at_end(self._wake_all)
        self._left = True
        self._wake_all()
        with self._bus.lock:
            if isinstance(self._source, Receiver):
                self._bus.ring.leave(self._source)
            else:
                self._bus.unsubscribe(self._source)

    def __aiter__(self) -> HostSubscription:
        return self

    async def __anext__(self) -> HostEvent:
        return seen(await self.next_event())

    async def next_event(self) -> Event:
        """The next event as the bus has it; everything else as for iteration."""
        self._taken += 1
        await give_way(self._taken)
        while True:
            arrived = trio.Event()
            with self._bus.lock:
                event = self._source.take()
                if event is None:
                    self._waiting[arrived] = None
            if event is not None:
                return event
            try:
                if self._left:
                    raise StopAsyncIteration
                if self._scheduler.closed:
                    raise HostClosed("this host has stopped: no event will follow")
                await arrived.wait()
            except trio.Cancelled:
                if arrived.is_set():  # it was woken and does not take the event: somebody else may
                    self._wake()
                raise
            finally:
                self._waiting.pop(arrived, None)

    # For who reads several of one host.

    @property
    def stopped(self) -> bool:
        """No event will follow: the host has stopped."""
        return self._scheduler.closed

    def take(self) -> Event | None:
        """The next event, if there is one."""
        with self._bus.lock:
            return self._source.take()

    def awaken(self, arrived: trio.Event) -> None:
        """Set `arrived` when there may be something to take, or the host stops, unless `forget` comes first."""
        with self._bus.lock:
            self._waiting[arrived] = None

    def forget(self, arrived: trio.Event) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(arrived, None)

    def _heard(self) -> None:
        """There is something to take; the bus's lock is held, on any thread."""
        self._scheduler.served = True
        if self._waiting:
            self._scheduler.call_soon(self._wake)

    def _wake(self) -> None:
        """Let the task that waits longest look for an event."""
        if self._waiting:
            arrived = next(iter(self._waiting))
            del self._waiting[arrived]
            arrived.set()

    def _wake_all(self) -> None:
        while self._waiting:
            self._wake()
