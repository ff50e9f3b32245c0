"""Broadcast receivers against plain lists: what a receiver is given, and what it missed.

`BroadcastMachine` publishes, joins, leaves and takes at random. A receiver must get every event that it wants, in order, or
count it as missed once 1,024 later ones were published; publishing must work however far behind a receiver is.
"""

from __future__ import annotations

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from astrid_host.bus import Event
from astrid_host.bus.broadcast import Receiver, Ring

KEPT = 1024
# Which topics match, written out.
PATTERNS = {None: ["a.x", "a.y", "b.x"], "a.*": ["a.x", "a.y"], "*.x": ["a.x", "b.x"], "b.x": ["b.x"]}
TOPICS = st.sampled_from(["a.x", "a.y", "b.x"])
WHO = st.sampled_from(["ann", "bob", None])
WHICH = st.integers(0, 2)


class Reader:
    """A receiver, and the events that it must still be given."""

    def __init__(self, name: str, pattern: str | None, who: str | None) -> None:
        self.real = Receiver(name, pattern, who)
        self.topics = PATTERNS[pattern]
        self.who = who
        self.due: deque[Event] = deque()
        self.missed = 0
        self.heard = 0
        self.real.listener = self.hear

    def published(self, event: Event) -> None:
        while self.due and self.due[0].seq <= event.seq - KEPT:
            self.due.popleft()
            self.missed += 1
        wanted = event.topic in self.topics and self.who in (None, event.principal)
        if wanted:
            self.due.append(event)
        assert self.heard == wanted, f"{self.real.name} heard {self.heard} times of seq {event.seq}"
        self.heard = 0

    def hear(self) -> None:
        self.heard += 1


class BroadcastMachine(RuleBasedStateMachine):
    """One ring, and up to three receivers that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring()
        self.readers: list[Reader] = []
        self.gone: list[Reader] = []
        self.seq = self.names = 0

    @precondition(lambda self: len(self.readers) < 3)
    @rule(pattern=st.sampled_from(list(PATTERNS)), who=WHO)
    def join(self, pattern: str | None, who: str | None) -> None:
        self.names += 1
        reader = Reader(f"receiver {self.names}", pattern, who)
        self.ring.join(reader.real, self.seq)
        self.readers.append(reader)

    @precondition(lambda self: self.readers)
    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        reader = self.readers.pop(which % len(self.readers))
        self.ring.leave(reader.real)
        assert reader.real.take() is None, "who has left is given nothing"
        self.gone.append(reader)

    @rule(topic=TOPICS, who=WHO, times=st.sampled_from([1, 2, 30, KEPT - 2, KEPT - 1, KEPT, KEPT + 1]))
    def publish(self, topic: str, who: str | None, times: int) -> None:
        for _ in range(times):
            self.seq += 1
            event = Event(topic, b"", None, who, "s", self.seq, 0.0, True)
            if self.ring.receivers:
                self.ring.push(event)
            for reader in self.readers:
                reader.published(event)

    @precondition(lambda self: self.readers)
    @rule(which=WHICH, times=st.sampled_from([1, 2, 40, KEPT]))
    def take(self, which: int, times: int) -> None:
        reader = self.readers[which % len(self.readers)]
        for _ in range(times):
            event = reader.real.take()
            if not reader.due:
                assert event is None, f"{reader.real.name} was given seq {event and event.seq}, which it must not be"
                return
            due = reader.due.popleft()
            assert event is due, f"{reader.real.name} was given seq {event and event.seq} instead of {due.seq}"

    @invariant()
    def what_was_missed_is_counted(self) -> None:
        for reader in [*self.readers, *self.gone]:
            assert reader.real.lagged == reader.missed
        everybody = {reader.real.name: reader.missed for reader in [*self.readers, *self.gone] if reader.missed}
        assert self.ring.losses.by_name == everybody
