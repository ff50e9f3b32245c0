"""Several subscriptions of one host, read as one: every event in the order in which the bus numbered them.

Each subscription has its events in order by itself (of one principal, a routed one); which of two was first, only their numbers
say. An event is in all subscriptions that it matches before the next one gets its number, so once all have been looked at
twice, the lowest number that was found is the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from astrid_host.bus import Event
from astrid_host.errors import HostClosed
from astrid_host.host import Host
from astrid_host.listening import HostSubscription, give_way, seen
from astrid_host.payloads.outside import HostEvent


@asynccontextmanager
async def merged(
    host: Host, subscribe: Sequence[str], observe: Sequence[str], principal: str | None
) -> AsyncGenerator[Merged]:
    """Receive what matches several patterns.

    Args:
        host: whose events.
        subscribe: patterns of what is received.
        observe: patterns of what is only watched.
        principal: only this one's events; None for everybody's.

    Raises:
        ValueError: no topic can match a pattern, or the principal is no name for one.
    """
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(host.subscribe(pattern, principal=principal, observe=watched))
            for patterns, watched in ((subscribe, False), (observe, True))
            for pattern in patterns
        ]
        yield Merged(sources)


class Merged:
    """An endless iterator over what several open subscriptions receive. One task reads.

    Args:
        sources: which nobody else reads; of one host.

    Iterating ends with `HostClosed` when the host stops. A cancelled wait loses nothing.
    """

    def __init__(self, sources: Sequence[HostSubscription]) -> None:
        self._sources = [(source, deque[Event]()) for source in sources]
        self._taken = 0

    def __aiter__(self) -> Merged:
        return self

    async def __anext__(self) -> HostEvent:
        return seen(await self.next_event())

    async def next_event(self) -> Event:
        """The next event as the bus has it; everything else as for iteration."""
        self._taken += 1
        await give_way(self._taken)
        while True:
            self._look()
            self._look()  # again: what has a lower number than anything found is there by now
            found = [events for _, events in self._sources if events]
            if found:
                return min(found, key=lambda events: events[0].seq).popleft()
            await self._wait()

    def _look(self) -> None:
        for source, events in self._sources:
            if not events:
                event = source.take()
                if event is not None:
                    events.append(event)

    async def _wait(self) -> None:
        """Until one of the sources has something, or the host stops."""
        arrived = trio.Event()
        for source, _ in self._sources:
            source.awaken(arrived)
        try:
            self._look()  # what came before it was waited for woke nobody
            if any(events for _, events in self._sources):
                return
            if any(source.stopped for source, _ in self._sources):
                raise HostClosed("this host has stopped: no event will follow")
            await arrived.wait()
        finally:
            for source, _ in self._sources:
                source.forget(arrived)
