"""What a tape of events tells: which handler ran for which event, from when to when, what was reported, and what is still open.

A tape has no gaps and begins where nothing was under way, so whatever somebody says on it was led to by something before. What
cannot be fails at once: two runs of one queue that overlap, an end without a beginning, a run of what was never published.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from told_capsules import ASKS_SETTLED, BY_TOPIC, FAILS_AS, Role, act_of

from astrid_host import HostEvent

FAILED = "astrid.v1.dispatch.failed."
SETTLED = "astrid.v1.dispatch.settled."
NEVER_RAN = ("queue-full", "quarantined")
Who = str | None


class Run:
    """One handler's handling of one event: it began, and unless it trapped or is under way it said its end."""

    def __init__(self, event: HostEvent, role: Role, begun: int) -> None:
        self.event = event
        self.role = role
        self.begun = begun
        self.ended: int | None = None
        self.waits = False  # it said that it waits, and was not woken since
        self.act = act_of(event.payload, role)
        self.failure = FAILS_AS.get(self.act)  # the reason of the report, or None

    def __repr__(self) -> str:
        return f"{self.role.capsule}: {self.act} on seq {self.event.seq} of {self.event.principal}, {self.begun}-{self.ended}"


class Tape:
    """Some principals' events, read one by one.

    Args:
        entered: which of them the host's API published: seq -> whether it asked to be told when it had settled. May grow.
    """

    def __init__(self, entered: Mapping[int, bool]) -> None:
        self.entered = entered
        self.asked: dict[int, HostEvent] = {}
        self.reports: defaultdict[int, list[HostEvent]] = defaultdict(list)  # by the `seq` of what they report on
        self.refusals: defaultdict[int, list[HostEvent]] = defaultdict(list)
        self.settled: defaultdict[int, list[HostEvent]] = defaultdict(list)
        self.nobody: list[HostEvent] = []  # reports on events that nobody handles
        self.runs: dict[tuple[int, int], Run] = {}  # by the event's `seq` and the role's place
        self.by_queue: defaultdict[tuple[str, Who], list[Run]] = defaultdict(list)  # in the order in which they began
        self._due: defaultdict[tuple[str, Who, str], deque[tuple[HostEvent, Role]]] = defaultdict(deque)
        self._open: set[int] = set()

    def read(self, event: HostEvent) -> None:
        """The next event, in the order of `seq`."""
        if event.topic.startswith("w.said."):
            self._said(event)
        elif event.topic in BY_TOPIC:
            self.asked[event.seq] = event
            self._open.add(event.seq)
            for role in BY_TOPIC[event.topic]:
                self._due[role.capsule, event.principal, event.payload].append((event, role))
        elif event.topic.startswith(SETTLED):
            self.settled[event.payload["seq"]].append(event)
        elif event.topic.startswith(FAILED):
            self._report(event)

    def _report(self, report: HostEvent) -> None:
        told = report.payload
        if told["topic"] == "w.nobody":
            self.nobody.append(report)
        elif told["refused"]:
            self.refusals[told["seq"]].append(report)
        else:
            self.reports[told["seq"]].append(report)
            roles = BY_TOPIC[told["topic"]]
            if (
                len(roles) == 1 and told["reason"] in NEVER_RAN
            ):  # of several, another one may still be told by its payload
                due = self._due[roles[0].capsule, report.principal, told["payload"]]
                due.remove((self.asked[told["seq"]], roles[0]))

    def _said(self, word: HostEvent) -> None:
        _, _, what, capsule = word.topic.split(".")
        runs = self.by_queue[capsule, word.principal]
        if what != "begun":
            self._went_on(runs, what, word)
            return
        if runs and not runs[-1].ended and runs[-1].failure != "trap":
            raise AssertionError(f"seq {word.seq}, {word.payload} was begun before the end of {runs[-1]}")
        due = self._due[capsule, word.principal, word.payload]
        assert due, f"{word} is of an event that was not published, or that {capsule} handled already"
        event, role = due.popleft()
        run = self.runs[event.seq, role.at] = Run(event, role, word.seq)
        runs.append(run)

    @staticmethod
    def _went_on(runs: list[Run], what: str, word: HostEvent) -> None:
        assert runs, f"{word} came before anything was begun"
        run = runs[-1]
        assert run.ended is None, f"{word} came after the end of {run}"
        assert run.event.payload == word.payload, f"{word} came in the middle of {run}"
        if what == "ended":
            run.ended = word.seq
        else:
            run.waits = True

    def asks(self, event: HostEvent) -> bool:
        """Whether somebody is to be told when it has settled."""
        return self.entered.get(event.seq, event.topic in ASKS_SETTLED)

    def run(self, event: HostEvent, role: Role) -> Run | None:
        return self.runs.get((event.seq, role.at))

    def runs_of(self, event: HostEvent) -> list[Run]:
        return [run for role in BY_TOPIC[event.topic] if (run := self.run(event, role)) is not None]

    def to_wake(self) -> set[Who]:
        """Whose handlers wait. They are woken now: each is told only once."""
        waiting = [runs[-1] for runs in self.by_queue.values() if runs and runs[-1].waits and not runs[-1].ended]
        for run in waiting:
            run.waits = False
        return {run.event.principal for run in waiting}

    def told(self, event: HostEvent) -> str:
        """An event and what became of it, for people."""
        return f"seq {event.seq} of {event.principal}, {event.topic} {event.payload}, {self.runs_of(event)}"

    def open(self) -> list[HostEvent]:
        """What is under way: events that were neither handled to the end nor reported."""
        self._open = {seq for seq in self._open if not self._is_over(self.asked[seq])}
        return [self.asked[seq] for seq in sorted(self._open)]

    def _is_over(self, event: HostEvent) -> bool:
        if self.asks(event):
            return bool(self.settled[event.seq])
        if not self.reports[event.seq]:
            for role in BY_TOPIC[event.topic]:
                run = self.run(event, role)
                if run is None or run.failure:
                    if not role.goes_on:
                        return False
                elif not run.ended:
                    return False
                elif run.act == "final":
                    break
        refused = sum(run.act == "refused" for run in self.runs_of(event))
        return len(self.refusals[event.seq]) >= refused
