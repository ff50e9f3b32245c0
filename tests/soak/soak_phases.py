"""The phases of the soak run: what each calls, and what it counts as an answer.

A phase's calls are numbered from 0, and those whose number ends in 0 trap. Each must end in exactly one answer or failure
report; a ledger keeps the account, and tells what is wrong with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from guests_in_wat import FAILED, RECEIVED, RECV, RETURNED, SUBSCRIBE, Guest, capsule, next_of, receive
from trio.testing import wait_all_tasks_blocked

from astrid_host import Host, HostEvent, HostSubscription

EVERY = 10  # calls, of which one traps
LOST_S = 30.0  # a call that has not ended by then never will
END = -1  # the number of no call: what is published last

# What a host keeps at most, whoever calls it: instances, queues of one capsule, and accounts of principals. Of the last two
# there is one more, which is shared by those who come later.
INSTANCES, QUEUES, ACCOUNTS = 4096, 10_001, 10_001
KEPT_BYTES = 48 << 10  # for a principal: an instance of these guests, with its stack, a queue and an account

TRAP = """(if (i32.eq (i32.const 48)
    (i32.load8_u (i32.sub (i32.add (local.get $payload) (local.get $payload_len)) (i32.const 1)))) (then (unreachable)))"""
DROP = '(import "astrid:ipc/host@1.0.0" "[resource-drop]subscription" (func $drop (param i32)))'
ROOM = 512  # for a pattern that the guest puts together
RELOADED = {"on_trap": "reload"}


def trapping(calls: int) -> int:
    """How many of so many calls trap: those whose number ends in 0, as the guests see it."""
    return -(-calls // EVERY)


class Ledger:
    """The calls under way, and how the others ended."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.reports: Counter[str] = Counter()
        self.again = 0  # answers and reports of calls that had ended already
        self.wrong = 0  # calls that got something else than they should have
        self.unheard = 0  # answers and reports that did not come to be counted
        self._under_way: dict[int, trio.Event] = {}

    @property
    def lost(self) -> int:
        return len(self._under_way)

    def begin(self, n: int) -> trio.Event:
        over = self._under_way[n] = trio.Event()
        return over

    def end(self, n: int) -> None:
        over = self._under_way.pop(n, None)
        if over is None:
            self.again += 1
        else:
            over.set()

    def problems(self, answers: Mapping[str, int], reports: Mapping[str, int]) -> Iterator[str]:
        """Where the account differs from these counts."""
        if self.lost:
            yield f"{self.lost} calls were neither answered nor reported"
        if self.again:
            yield f"{self.again} answers or reports were of calls that had ended already"
        if self.wrong:
            yield f"{self.wrong} calls did not get what they should have"
        if self.unheard:
            yield f"{self.unheard} answers or reports were dropped before they were counted"
        for what, counted, expected in (("answers", self.answers, answers), ("reports", self.reports, reports)):
            if counted != Counter(expected):
                yield f"{what} were {dict(counted)}, expected {dict(expected)}"


class Phase:
    """Calls of one kind, of a guest that says on a topic below `<name>.said` the number it got.

    Attributes:
        name: of its capsule, and the first segment of its topics.
        share: of all calls.
        host: where it makes them; set by `begin`.
    """

    name = "plain"
    share = 0.4

    host: Host

    def __init__(self) -> None:
        self.ledger = Ledger()

    def place(self, place: Path) -> None:
        """Write its capsule's folder below `place`."""
        guest = Guest()
        self.capsule(place, guest.handles(TRAP + guest.say(f"{self.name}.said.it")), {f"{self.name}.ask": "act"})

    def capsule(self, place: Path, guest: Guest, rows: Mapping[str, Any]) -> None:
        capsule(place, self.name, guest, rows, [f"{self.name}.said.*"], RELOADED)

    async def call(self, n: int, principal: str) -> None:
        """Make call number `n`."""
        self.host.publish(f"{self.name}.ask", n, principal=principal)

    def answers(self, calls: int) -> dict[str, int]:
        """How many answers of each kind so many calls have."""
        return {"it": calls - trapping(calls)}

    def patterns(self) -> tuple[str, str]:
        """On which topics its calls are answered, and on which their failures are reported."""
        return f"{self.name}.said.*", f"{FAILED}{self.name}.*"

    def publish_last(self) -> None:
        """Publish one more answer, and what makes one more report: those of the calls were published before them."""
        self.host.publish(f"{self.name}.said.last", END)
        self.host.publish(f"{self.name}.nobody", END)

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        """Count answers and reports while the body runs, and what was published until it ended."""
        answers, reports = (self.host.subscribe(pattern) for pattern in self.patterns())
        last_answer, last_report = trio.Event(), trio.Event()
        async with answers, reports, trio.open_nursery() as nursery:
            nursery.start_soon(listen, answers, self.on_answer, last_answer)
            nursery.start_soon(listen, reports, self.on_report, last_report)
            yield
            self.publish_last()
            with trio.move_on_after(LOST_S) as patience:
                await last_answer.wait()
                await last_report.wait()
            await wait_all_tasks_blocked()  # other principals' events may be handed out after the last ones
            nursery.cancel_scope.cancel()
        self.ledger.unheard = answers.dropped + reports.dropped + patience.cancelled_caught

    def on_answer(self, event: HostEvent) -> bool:
        return self.ended(self.ledger.answers, event.topic.rpartition(".")[2], event.payload)

    def on_report(self, event: HostEvent) -> bool:
        return self.ended(self.ledger.reports, event.payload["reason"], event.payload["payload"])

    def ended(self, counts: Counter[str], what: str, n: int) -> bool:
        """Count what ended call number `n`; True when it was the last one."""
        if n != END:
            counts[what] += 1
            self.ledger.end(n)
        return n == END

    def begin(self, host: Host) -> None:
        """The first call is about to be made."""
        self.host = host

    def due(self, calls: int) -> int:
        """How many bytes more may rightly be held after the second half of so many calls than after the first."""
        return 0

    def problems(self, calls: int) -> list[str]:
        """What is wrong after so many calls."""
        return list(self.ledger.problems(self.answers(calls), {"trap": trapping(calls)}))


async def listen(events: HostSubscription, is_last: Callable[[HostEvent], bool], last: trio.Event) -> None:
    async for event in events:
        if is_last(event):
            last.set()


class Waits(Phase):
    """Guests that wait inside a handler: a third of them in vain, the others until they are answered.

    Those drop their subscription before they trap or say what came; the first leave it to the host.
    """

    name = "waits"
    share = 0.1

    def place(self, place: Path) -> None:
        guest = Guest(SUBSCRIBE, RECV, DROP)
        guest.handles(
            guest.subscribe("waits.more")
            + guest.when("brief", receive(2))
            + guest.when("long", guest.say("waits.said.ready") + receive() + "(call $drop (local.get $j))")
            + TRAP
            + f"(if {RECEIVED} (then {guest.say('waits.said.got')}) (else {guest.say('waits.said.nothing')}))"
        )
        self.capsule(place, guest, {"waits.ask.brief": "brief", "waits.ask.long": "long", "waits.more": {}})

    async def call(self, n: int, principal: str) -> None:
        kind = "long" if n % 3 else "brief"
        self.host.publish(f"waits.ask.{kind}", n, principal=principal)

    def on_answer(self, event: HostEvent) -> bool:
        if not event.topic.endswith(".ready"):
            return super().on_answer(event)
        self.host.publish("waits.more", event.payload, principal=event.principal)
        return False

    def answers(self, calls: int) -> dict[str, int]:
        answered = [n for n in range(calls) if n % EVERY]
        nothing = sum(n % 3 == 0 for n in answered)
        return {"nothing": nothing, "got": len(answered) - nothing}


class Subscriptions(Phase):
    """Subscriptions to ever-new patterns: of the guest, which leaves them to the host, and of the host's API."""

    name = "subscriptions"
    share = 0.15

    def place(self, place: Path) -> None:
        guest = Guest(SUBSCRIBE)
        stem = "subscriptions.ask."
        guest.handles(f"""
          (memory.copy (i32.const {ROOM}) {guest.text(stem)})
          (memory.copy (i32.const {ROOM + len(stem)}) (local.get $payload) (local.get $payload_len))
          (call $subscribe (i32.const {ROOM}) (i32.add (i32.const {len(stem)}) (local.get $payload_len))
            (i32.const {RETURNED}))
          {TRAP} {guest.say("subscriptions.said.it")}""")
        self.capsule(place, guest, {"subscriptions.ask.*": "act"})

    async def call(self, n: int, principal: str) -> None:
        topic = f"subscriptions.ask.{n}"
        taken, left = self.host.subscribe(topic, principal=principal), self.host.subscribe(f"*.ask.{n}")
        async with taken, left, self.host.subscribe(topic, observe=True, name=f"observer {n}") as watched:
            self.host.publish(topic, n, principal=principal)
            for events in (taken, watched):
                self.ledger.wrong += (await next_of(events)).payload != n


class Tools(Phase):
    """Calls of `word_count` through the router; for every tenth, of a tool that traps, the dead-letter capsule answers."""

    name = "tools"
    share = 0.15

    def place(self, place: Path) -> None:
        self.capsule(place, Guest().handles("(unreachable)"), {"tool.v1.execute.break": "act"})

    async def call(self, n: int, principal: str) -> None:
        tool = "word_count" if n % EVERY else "break"
        result = await self.host.tools.execute(tool, {"text": "x " * (n % 100)}, principal=principal, call_id=str(n))
        expected = f'"words":{n % 100},' if n % EVERY else "crashed"
        self.ledger.wrong += expected not in result.content or result.call_id != str(n)

    def answers(self, calls: int) -> dict[str, int]:
        return {"well": calls - trapping(calls), "error": trapping(calls)}

    def patterns(self) -> tuple[str, str]:
        return "tool.v1.execute.result", f"{FAILED}tool.v1.execute.*"

    def publish_last(self) -> None:
        self.host.publish("tool.v1.execute.result", {"call_id": END})
        self.host.publish("tool.v1.execute.nobody", {"call_id": END})

    def on_answer(self, event: HostEvent) -> bool:
        result = event.payload.get("result", {"is_error": False})
        return self.ended(self.ledger.answers, "error" if result["is_error"] else "well", int(event.payload["call_id"]))

    def on_report(self, event: HostEvent) -> bool:
        """The report of a tool's trap is what its call is answered from, so it does not end the call."""
        if event.payload["payload"]["call_id"] == END:
            return True
        self.ledger.reports[event.payload["reason"]] += 1
        return False


class Newcomers(Phase):
    """Each call is of another principal, so after a while nothing that is kept for each of them may grow."""

    name = "newcomers"
    share = 0.2

    async def call(self, n: int, principal: str) -> None:
        self.host.publish("newcomers.ask", n, principal=f"newcomer {n}")

    def begin(self, host: Host) -> None:
        super().begin(host)
        self._queues = self.host.stats().queues

    def due(self, calls: int) -> int:
        return max(min(calls, INSTANCES) - calls // 2, 0) * KEPT_BYTES

    def problems(self, calls: int) -> list[str]:
        stats = self.host.stats()
        kept = {
            "instances": (stats.instances, INSTANCES),
            "queues": (stats.queues - self._queues, QUEUES),
            "accounts of principals": (len(stats.principals), ACCOUNTS),
        }
        too_many = [f"{count} {what} exist, {most} may" for what, (count, most) in kept.items() if count > most]
        return super().problems(calls) + too_many
