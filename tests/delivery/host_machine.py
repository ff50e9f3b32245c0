"""A whole host against a model: publishers, subscribers and guests that do what they are told, at random.

`HostMachine` publishes for several principals from the loop, from another thread and while the loop stands still, lets handlers
wait and wakes them, and listens with and without taking. `settle_down` and the end of each example wait until nothing is
under way and check the account of everything. One host serves all examples; each has principals of its own.
"""

from __future__ import annotations

import sys

from host_account import check_account
from host_tape import FAILED, Tape
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from running_host import Listener, RunningHost
from told_capsules import CHAIN, LAST, ROLES, SOLO, TWIN, written

from astrid_host.topics import bus_matches

ALL = sys.maxsize
ENDS = ["go", "trap", "deny", "final", "odd", "nobody", "refused", "compute", "wait"]
PASSING = [*ENDS, "pass_on", "half"]
ALONE = [*PASSING * 6, "many", *["spread"] * 20, *PASSING * 6]
BUSY = {"compute", "wait", "many"}
WHO = st.sampled_from(["ann", "bob", "cy"])
HOW = st.sampled_from(["on the loop", "from a thread", "while the loop stands still"])


class Ask:
    """An event to publish: where, and what each handler on its way is told to do, `go` where nothing is said."""

    def __init__(self, topic: str, **acts: str) -> None:
        self.topic = topic
        self.acts = {name: act for name, act in acts.items() if act != "go"}

    def payload(self, number: int) -> str:
        return written(number, (self.acts.get(role.name, "go") for role in ROLES))

    def __repr__(self) -> str:
        return f"Ask({', '.join([repr(self.topic), *(f'{name}={act!r}' for name, act in self.acts.items())])})"


TOLD = {
    SOLO.topic: {SOLO: ALONE, TWIN[0]: PASSING, TWIN[1]: PASSING},
    TWIN[0].topic: {TWIN[0]: PASSING, TWIN[1]: PASSING},
    CHAIN[0].topic: dict.fromkeys(CHAIN, PASSING),
    LAST.topic: {},
}


@st.composite
def asks(draw: st.DrawFn, brief: bool = False) -> Ask:
    """Any event; a brief one keeps no handler busy."""
    topic = draw(st.sampled_from(list(TOLD)))
    roles = {**TOLD[topic], LAST: ENDS}
    chosen = {role.name: draw(st.sampled_from(acts)) for role, acts in roles.items()}
    return Ask(topic, **{name: "go" if brief and act in BUSY else act for name, act in chosen.items()})


class HostMachine(RuleBasedStateMachine):
    """Everything that may be done to a host.

    Args:
        running: the host.
    """

    examples = 0

    def __init__(self, running: RunningHost) -> None:
        super().__init__()
        self.running = running
        HostMachine.examples += 1
        self.name = f"{HostMachine.examples}"
        self.number = 0
        self.entered: dict[int, bool] = {}
        self.listeners: list[tuple[Listener, str, str | None, bool]] = []
        self.sound = True
        self.running.rest()
        self.begin = self.read = len(self.running.tape)
        self.tape = Tape(self.entered)

    # Publishing.

    @rule(who=WHO, ask=asks(), how=HOW, settle=st.booleans())
    def publish(self, who: str, ask: Ask, how: str, settle: bool) -> None:
        self._publish([(who, ask)], how, settle)

    @rule(events=st.lists(st.tuples(WHO, asks()), min_size=2, max_size=8), how=HOW)
    def publish_several(self, events: list[tuple[str, Ask]], how: str) -> None:
        self._publish(events, how, True)

    @rule(
        who=WHO, first=asks(), then=asks(brief=True), times=st.sampled_from([5, 63, 65]), how=HOW, settle=st.booleans()
    )
    def publish_a_burst(self, who: str, first: Ask, then: Ask, times: int, how: str, settle: bool) -> None:
        """About as many as a queue has room for, behind one that may keep its handlers busy."""
        self._publish([(who, first), *[(who, then)] * times], how, settle)

    def _publish(self, events: list[tuple[str, Ask]], how: str, settle: bool) -> None:
        self.sound = False

        def publish() -> None:
            for who, ask in events:
                self.number += 1
                payload = ask.payload(self.number)
                seq = self.running.host.publish(ask.topic, payload, principal=self._own(who), settle=settle)
                assert not self.entered or seq > max(self.entered), f"seq {seq} came after {max(self.entered)}"
                self.entered[seq] = settle

        if how == "from a thread":
            publish()
        elif how == "on the loop":
            self.running.on_loop(publish)
        else:
            self.running.while_the_loop_stands_still(publish)
        self.sound = True

    @rule(who=WHO)
    def wake(self, who: str) -> None:
        """Whoever waits for this principal now goes on."""
        self._wake(self._own(who))

    def _wake(self, who: str | None) -> None:
        host = self.running.host
        self.running.on_loop(lambda: host.publish("w.ask.wake", "", principal=who))

    # Listening.

    @precondition(lambda self: len(self.listeners) < 3)
    @rule(
        pattern=st.sampled_from(["w.said.*", "w.ask.twin", "w.said.begun.solo", f"{FAILED}*"]),
        who=WHO | st.none(),
        observe=st.booleans(),
    )
    def listen(self, pattern: str, who: str | None, observe: bool) -> None:
        only = None if who is None else self._own(who)
        self.listeners.append((self.running.listen(pattern, only, observe), pattern, only, observe))

    @precondition(lambda self: self.listeners)
    @rule(which=st.integers(0, 2), count=st.integers(1, 50))
    def take(self, which: int, count: int) -> None:
        self._take(*self.listeners[which % len(self.listeners)], count)

    @precondition(lambda self: self.listeners)
    @rule(which=st.integers(0, 2))
    def stop_listening(self, which: int) -> None:
        listener, *_ = self.listeners.pop(which % len(self.listeners))
        self.running.do(listener.stop)

    def _take(self, listener: Listener, pattern: str, who: str | None, observe: bool, count: int) -> None:
        """Take some of what is due, and see that it is due and in order."""
        self.sound = False
        host, seen, tape = self.running, self.running.seen, self.running.tape[self.begin :]
        wanted = [e.seq for e in tape if who in (None, e.principal) and bus_matches(e.topic, pattern)]
        lost = listener.subscription.lagged + listener.subscription.dropped
        due = {seq for seq in wanted if seq > listener.after}
        host.do(listener.take, max(min(count, len(due) - len(listener.got) - lost), 0))
        last: dict[str | None, int] = {}
        for event in listener.got:
            of = None if observe else event.principal
            assert last.get(of, 0) < event.seq, f"{event} was taken after seq {last[of]}"
            last[of] = event.seq
        got = {event.seq for event in listener.got}
        known = {seq for seq in got if seq <= seen}
        possible = {seq for seq in wanted if seq > listener.before}
        assert known <= possible, f"{known - possible} were given for {pattern!r}"
        if count == ALL:
            least, most = len(due - got), len(possible - got)
            assert least <= lost <= most, f"{least} events of {pattern!r} were not given, {lost} are counted as lost"
        self.sound = True

    # The account.

    @rule()
    def settle_down(self) -> None:
        """Wake whoever waits until nothing is under way, and check everything."""
        self.sound = False
        running, tape = self.running, self.tape
        while True:
            running.rest()
            self._read()
            for who in tape.to_wake():
                self._wake(who)
            open_ = tape.open()
            if not open_ and max(self.entered, default=0) <= running.seen:
                break
            if not running.wait_for_more(self.read):
                still = "; ".join(map(tape.told, open_))
                raise AssertionError(f"nothing happens any more: seq {running.seen + 1} was not seen; open: {still}")
        check_account(tape)
        for listener in self.listeners:
            self._take(*listener, ALL)
        # What the host counts is what was reported.
        stats = running.host.stats()
        while stats.events != running.seen and running.wait_for_more(self.read):  # a last word of the workers
            running.rest()
            self._read()
            stats = running.host.stats()
        assert stats.events == running.seen, f"{stats.events} events are counted, {running.seen} were published"
        assert stats.failures == running.reported, f"{stats.failures} are counted, {running.reported} were reported"
        self.sound = True

    def _read(self) -> None:
        mine = {self._own(who) for who in ("ann", "bob", "cy")}
        for event in self.running.tape[self.read :]:
            self.read += 1
            if event.principal in mine:
                self.tape.read(event)

    def _own(self, who: str) -> str:
        return f"{who} {self.name}"

    def teardown(self) -> None:
        if self.sound and self.entered:
            self.settle_down()
        for listener, *_ in self.listeners:
            self.running.do(listener.stop)
