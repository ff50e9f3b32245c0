"""Capsules that publish at each other without end: the host refuses them at some depth, and serves others meanwhile."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from guests_in_wat import (
    FAILED,
    MESSAGE,
    READY,
    RECEIVED,
    RECV,
    RETURNED,
    SUBSCRIBE,
    Guest,
    capsule,
    good,
    hosted,
    next_of,
    receive,
)

from astrid_host import Host
from astrid_host.bus import Event
from astrid_host.hostcalls.ipc import endless
from astrid_host.payloads import NIL_SOURCE, from_value

DEPTH = 1024
NAMES = [f"p{n}" for n in range(8)]


def handler(place: Path, me: str, other: str) -> None:
    """Says to the other one what it hears."""
    guest = Guest()
    capsule(place, me, guest.handles(guest.say(f"hop.{other}")), {f"hop.{me}": "act"}, ["hop.*"])


def run_loop(place: Path, me: str, other: str) -> None:
    """The same, as a run loop."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    guest.add(f"""(func (export "run") (local $subscription i32)
      (call $subscribe {guest.text(f"hop.{me}")} (i32.const {RETURNED}))
      (local.set $subscription (i32.load (i32.const {RETURNED + 4})))
      (call $ready)
      (loop $again
        (global.set $heap (i32.const 65536))
        {receive(handle="$subscription")}
        (if {RECEIVED} (then
          (call $publish {guest.text(f"hop.{other}")} {MESSAGE})))
        (br $again)))""")
    capsule(place, me, guest, {f"hop.{me}": {}}, ["hop.*"])


async def answer_times(host: Host, over: trio.Event) -> list[float]:
    """Seconds that calls of the good capsule take, until `over`."""
    took = []
    async with host.subscribe("good.said") as said:
        while not over.is_set():
            begun = trio.current_time()
            host.publish("good.ask", 1)
            await next_of(said)
            took.append(trio.current_time() - begun)
    return took


@pytest.mark.parametrize("make", [handler, run_loop], ids=["handlers", "run loops"])
async def test_two_that_publish_at_each_other_are_stopped_and_others_are_served(
    make: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    """Each principal's loop ends with one report, after as many hops as are allowed."""
    make(tmp_path, "x", "y")
    make(tmp_path, "y", "x")
    good(tmp_path)
    over = trio.Event()
    async with hosted(tmp_path) as host, host.subscribe("hop.*") as hopping, host.subscribe(FAILED + "*") as failed:

        async def stopped() -> None:
            reports = [(await next_of(failed)).payload for _ in NAMES]
            assert {report["reason"] for report in reports} == {"loop"}
            assert sorted(report["principal"] for report in reports) == NAMES
            assert {report["topic"] for report in reports} <= {"hop.x", "hop.y"}
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stopped)
            for name in NAMES:
                host.publish("hop.x", 1, principal=name)
            took = await answer_times(host, over)
        hops = Counter([(await next_of(hopping)).principal for _ in range(len(NAMES) * (DEPTH + 1))])
        assert hops == dict.fromkeys(NAMES, DEPTH + 1)  # the first one has the depth 0
        assert hopping.dropped == 0
        host.publish("hop.end", 1)
        host.publish("no.body", 1)
        assert (await next_of(hopping)).topic == "hop.end"
        assert (await next_of(failed)).payload["topic"] == "no.body"
    assert took
    assert statistics.median(took) < 0.1


# Slow loops.


def led_to_by(depth: int, seconds: float) -> Event:
    """An event to which so many others led since so many seconds."""
    return Event("hop.z", b"1", 1, "p", NIL_SOURCE, 1, 0.0, False, depth, time.monotonic() - seconds)


@pytest.mark.parametrize(("hops_per_second", "without_end"), [(2, False), (98, False), (102, True), (10_000, True)])
def test_a_loop_without_end_is_one_that_is_fast(hops_per_second: int, without_end: bool) -> None:
    for depth in (DEPTH, 10 * DEPTH, 1000 * DEPTH):
        assert (endless(led_to_by(depth, depth / hops_per_second)) is not None) is without_end


async def test_a_loop_may_make_100_hops_for_each_second_since_it_began(tmp_path: Path) -> None:
    """This one began 30 seconds ago: it goes on beyond the depth at which one that has just begun is stopped."""
    handler(tmp_path, "x", "y")
    handler(tmp_path, "y", "x")
    async with hosted(tmp_path) as host, host.subscribe("hop.*") as hopping, host.subscribe(FAILED + "*") as failed:
        with host._bus.lock:
            host._bus.publish("hop.x", from_value(1), "p", NIL_SOURCE, cause=led_to_by(0, 30))
        host._scheduler.run_or_wake()
        report = (await next_of(failed)).payload
        assert report["reason"] == "loop"
        hops = 0
        while (await next_of(hopping)).seq < report["seq"]:
            hops += 1
        assert 3000 - 2 <= hops <= 3000 + 100 * 10
