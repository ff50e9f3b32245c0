"""The broadcast half of the bus: a ring of the last 1,024 events, of 16 MiB at most, that all broadcast receivers read.

Publishing never waits for a receiver. One that is so slow that the ring overtakes it goes on with the oldest event that is
left, and the events it would have been given are counted as its lag. Receivers do not make an event received. Everything
here is called with the bus's lock held. (Astrid, event bus: broadcast.)
"""

from __future__ import annotations

from collections.abc import Callable

from astrid_host.bus.events import Event
from astrid_host.bus.losses import Losses
from astrid_host.topics import bus_matches

SLOTS = 1024
RING_BYTES = 16 << 20
VERDICTS_KEPT = 1024


class Receiver:
    """One reader of the ring.

    Args:
        name: under which its lag is counted.
        pattern: by the bus's rules; None for every event.
        principal: only this principal's events; None for everybody's.
    """

    __slots__ = ("_next", "_ring", "_verdicts", "lagged", "listener", "name", "pattern", "principal")

    def __init__(self, name: str, pattern: str | None = None, principal: str | None = None) -> None:
        self.name = name
        self.pattern = pattern
        self.principal = principal
        self.lagged = 0
        self.listener: Callable[[], None] | None = None  # called for each event that it wants
        self._ring: Ring | None = None
        self._next = 0
        self._verdicts: dict[str, bool] = {}

    def wants(self, event: Event) -> bool:
        """Whether it is to be given this event."""
        if self.principal is not None and event.principal != self.principal:
            return False
        return self.matches(event.topic)

    def matches(self, topic: str) -> bool:
        """Whether its pattern covers a topic."""
        if self.pattern is None:
            return True
        verdict = self._verdicts.get(topic)
        if verdict is None:
            if len(self._verdicts) >= VERDICTS_KEPT:  # topics may carry ids
                self._verdicts.clear()
            verdict = self._verdicts[topic] = bus_matches(topic, self.pattern)
        return verdict

    def take(self) -> Event | None:
        """The next event that it wants, if one was published since it joined."""
        ring = self._ring
        if ring is None:
            return None
        while self._next <= ring.newest:
            event = ring.slots[self._next % SLOTS]
            self._next += 1
            if event is not None and self.wants(event):
                return event
        return None


class Ring:
    """The last 1,024 events, kept while somebody reads them.

    Args:
        most: bytes of payloads that are kept; the newest event is kept whatever its size.
    """

    __slots__ = ("_most", "_oldest", "losses", "newest", "receivers", "size", "slots")

    def __init__(self, most: int = RING_BYTES) -> None:
        self.slots: list[Event | None] = [None] * SLOTS
        self.size = 0
        self._most = most
        self._oldest = 1  # no event before it is kept
        self.newest = 0  # the last `seq` that was pushed
        self.receivers: list[Receiver] = []
        self.losses = Losses("were missed by broadcast receivers, which are not read fast enough")

    def join(self, receiver: Receiver, newest: int) -> None:
        """Let a receiver read what comes after the event numbered `newest`, the last one that was published."""
        if not self.receivers:
            self._oldest = newest + 1
        self.newest = newest
        receiver._ring = self
        receiver._next = newest + 1
        self.receivers.append(receiver)

    def leave(self, receiver: Receiver) -> None:
        """It reads no more, also of what it has not taken yet."""
        receiver._ring = None
        self.receivers.remove(receiver)
        if not self.receivers:
            self.slots = [None] * SLOTS
            self.size = 0

    def push(self, event: Event) -> None:
        """Keep an event, whose `seq` follows the last one's, and wake who waits for it."""
        size = len(event.payload)
        while self._oldest < event.seq and (event.seq - self._oldest >= SLOTS or self.size + size > self._most):
            self._lose_oldest()
        self.slots[event.seq % SLOTS] = event
        self.size += size
        self.newest = event.seq
        for receiver in self.receivers:
            if receiver.listener is not None and receiver.wants(event):
                receiver.listener()

    def _lose_oldest(self) -> None:
        at = self._oldest % SLOTS
        lost, self.slots[at] = self.slots[at], None
        self._oldest += 1
        if lost is None:
            return
        self.size -= len(lost.payload)
        for receiver in self.receivers:
            if receiver._next <= lost.seq:
                receiver._next = lost.seq + 1
                if receiver.wants(lost):
                    receiver.lagged += 1
                    self.losses.count(receiver.name)
