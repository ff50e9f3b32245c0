"""A principal that floods the host loses its own events: another principal of the same capsule waits for a few of them at most.

Waiting is told by the numbers of events and not by a clock: how many of the flood's were handled between question and answer.
"""

from __future__ import annotations

import statistics
import threading
from pathlib import Path

import pytest
import trio
from guests_in_wat import FAILED, Guest, capsule, compute, hosted, next_of

from astrid_host import Host, HostEvent, HostSubscription

EVENTS = 100
BURST = 100
FEW = 4  # in the order of arrival it would be all that wait: 64
CHEAP, COSTLY = 1, 9


def answering(place: Path) -> None:
    """Answers each event with what it got; before one that begins with `9` it computes for some milliseconds."""
    guest = Guest()
    costly = f"(if (i32.eq (i32.load8_u (local.get $payload)) (i32.const {ord('9')})) (then {compute(3_000_000)}))"
    guest.handles(costly + guest.say("f.said"))
    capsule(place, "answering", guest, {"f.ask": "act"}, ["f.said"])


async def ask(host: Host, said: HostSubscription, n: int) -> tuple[int, int]:
    """The numbers of a question and of its answer."""
    asked = host.publish("f.ask", 10 + n % 80, principal="calm")
    answer = await next_of(said)
    assert answer.payload == 10 + n % 80
    return asked, answer.seq


class Flood:
    """A thread that publishes a burst of events for one principal, each time that it is told to.

    Args:
        payload: what each of the events carries.
    """

    def __init__(self, host: Host, payload: int) -> None:
        self.published: list[int] = []  # seqs
        self._host = host
        self._payload = payload
        self._bursts = threading.Semaphore(0)
        self._over = False
        self._thread = threading.Thread(target=self._publish)

    def _publish(self) -> None:
        while self._bursts.acquire() and not self._over:
            for _ in range(BURST):
                self.published.append(self._host.publish("f.ask", self._payload, principal="flood"))

    def burst(self) -> None:
        """One more."""
        self._bursts.release()

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._bursts.release()
        self._thread.join()


class Account:
    """What became of a flood's events: what was handled, and what was reported."""

    def __init__(self) -> None:
        self.handled: list[HostEvent] = []
        self.reports: list[HostEvent] = []
        self._more = trio.Event()

    async def keep(self, events: HostSubscription, kept: list[HostEvent]) -> None:
        async for event in events:
            kept.append(event)
            self._more.set()

    async def until(self, count: int) -> None:
        """Wait until it has so many events."""
        with trio.fail_after(10):
            while len(self.handled) + len(self.reports) < count:
                self._more = trio.Event()
                await self._more.wait()


@pytest.mark.parametrize("payload", [CHEAP, COSTLY], ids=["cheap events", "events that cost computing"])
async def test_a_flood_of_one_principal_delays_no_other_and_each_of_its_drops_is_reported(
    payload: int, tmp_path: Path
) -> None:
    answering(tmp_path)
    account = Account()
    async with (
        hosted(tmp_path) as host,
        host.subscribe("f.said", principal="calm") as calm,
        host.subscribe("f.said", principal="flood") as flooded,
        host.subscribe(FAILED + "f.ask") as failed,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(account.keep, flooded, account.handled)
        nursery.start_soon(account.keep, failed, account.reports)
        waits = []
        with Flood(host, payload) as flood:
            for n in range(EVENTS):
                flood.burst()
                waits.append(await ask(host, calm, n))
        await account.until(len(flood.published))
        nursery.cancel_scope.cancel()
        assert (flooded.dropped, failed.dropped) == (0, 0)
    assert len(account.handled) + len(account.reports) == len(flood.published)
    told = {
        (report.payload["reason"], report.payload["principal"], report.payload["capsule"]) for report in account.reports
    }
    assert told == {("queue-full", "flood", "answering")}, "or nothing was dropped: it was no flood"
    assert len({report.payload["seq"] for report in account.reports}) == len(account.reports)
    handled = [event.seq for event in account.handled]
    assert statistics.median(sum(asked < seq < answered for seq in handled) for asked, answered in waits) <= FEW
