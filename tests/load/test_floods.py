"""Who floods the host loses for himself: another principal of the same capsule is answered as quickly as before.

Latencies are compared within one run: what a principal has beside the flood, and what it has alone before and after it.
"""

from __future__ import annotations

import statistics
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import FAILED, Guest, capsule, compute, hosted, next_of

from astrid_host import Host, HostSubscription

PACE_S = 0.04
EVENTS = 100
ALONE = 25  # before the flood, and after it
BURST, BURST_PACE_S = 100, 0.005
CHEAP, COSTLY = 1, 9


def answering(place: Path) -> None:
    """Answers each event with what it got; before one that begins with `9` it computes for some milliseconds."""
    guest = Guest()
    costly = f"(if (i32.eq (i32.load8_u (local.get $payload)) (i32.const {ord('9')})) (then {compute(3_000_000)}))"
    guest.handles(costly + guest.say("f.said"))
    capsule(place, "answering", guest, {"f.ask": "act"}, ["f.said"])


async def latencies(host: Host, said: HostSubscription, count: int) -> list[float]:
    """Seconds from publish to answer, of one event every 40 ms."""
    took = []
    due = trio.current_time()
    for n in range(count):
        due += PACE_S
        await trio.sleep_until(due)
        begun = trio.current_time()
        host.publish("f.ask", 10 + n % 80, principal="calm")
        assert (await next_of(said)).payload == 10 + n % 80
        took.append(trio.current_time() - begun)
    return took


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

    def _publish(self) -> None:
        while self._bursts.acquire() and not self._over:
            for _ in range(BURST):
                self.published.append(self._host.publish("f.ask", self._payload, principal="flood"))

    async def run(self) -> None:
        """A burst every 5 ms, until cancelled."""
        thread = threading.Thread(target=self._publish)
        thread.start()
        try:
            while True:
                self._bursts.release()
                await trio.sleep(BURST_PACE_S)
        finally:
            self._over = True
            self._bursts.release()
            thread.join()


class Account:
    """What became of a flood's events: what was handled, and what was reported."""

    def __init__(self) -> None:
        self.handled: list[Any] = []
        self.reports: list[Any] = []
        self._more = trio.Event()

    async def keep(self, events: HostSubscription, payloads: list[Any]) -> None:
        async for event in events:
            payloads.append(event.payload)
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
        flood = Flood(host, payload)
        alone = await latencies(host, calm, ALONE)
        async with trio.open_nursery() as flooding:
            flooding.start_soon(flood.run)
            beside = await latencies(host, calm, EVENTS)
            flooding.cancel_scope.cancel()
        await account.until(len(flood.published))
        alone += await latencies(host, calm, ALONE)
        nursery.cancel_scope.cancel()
        assert (flooded.dropped, failed.dropped) == (0, 0)
    assert len(flood.published) > EVENTS * BURST
    assert len(account.handled) + len(account.reports) == len(flood.published)
    told = {(report["reason"], report["principal"], report["capsule"]) for report in account.reports}
    assert told == {("queue-full", "flood", "answering")}, "or nothing was dropped: it was no flood"
    assert len({report["seq"] for report in account.reports}) == len(account.reports)
    assert statistics.median(beside) <= 10 * statistics.median(alone)
