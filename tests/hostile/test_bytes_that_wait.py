"""Payloads that are small as bytes and large as objects, and floods of large ones: what waits is bounded in bytes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from guests_in_wat import FAILED, HEAP, RETURNED, Guest, capsule, good, good_still_answers, hosted, next_of

MIB = 1 << 20
SLEEP = '(import "astrid:sys/host@1.0.0" "sleep-ns" (func $sleep (param i64 i32)))'
LONG = f"(call $sleep (i64.const 50000000000) (i32.const {RETURNED}))"


def fill(size: int) -> str:
    """Instructions that write a JSON text of a little more than `size` bytes: `[{},{},…]`. Then `$i` is where it ends."""
    begin, end = HEAP + 65536, HEAP + 65536 + size
    return f"""
    (local.set $i (i32.const {begin + 1}))
    (loop $f (i32.store (local.get $i) (i32.const 0x2c7d7b))
      (br_if $f (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 3))) (i32.const {end}))))
    (i32.store8 (i32.const {begin}) (i32.const 91))
    (i32.store8 (i32.sub (local.get $i) (i32.const 1)) (i32.const 93))"""


def flooder(place: Path, size: int, **limits: Any) -> None:
    """Publishes `[{},…]` again and again; when it is refused it waits for 10 ms."""
    guest = Guest(SLEEP, pages=40)
    begin = HEAP + 65536
    guest.handles(
        fill(size)
        + f"""(loop $on
      (call $publish {guest.text("bad.said")} (i32.const {begin}) (i32.sub (local.get $i) (i32.const {begin})))
      (if (i32.load8_u (i32.const {RETURNED})) (then (call $sleep (i64.const 10000000) (i32.const 1200))))
      (br $on))"""
    )
    capsule(place, "bad", guest, {"bad.ask": "act"}, ["bad.said"], {"timeout_secs": 100, **limits})


def sleeper(place: Path) -> None:
    """Takes one event and never the next."""
    capsule(place, "sleeper", Guest(SLEEP, pages=64).handles(LONG), {"bad.said": "act"})


def objects() -> int:
    """How many lists the collector follows: a decoded payload here is one with 100,000 items."""
    return sum(len(found) for found in gc.get_objects() if type(found) is list and len(found) > 50_000)


async def until(found: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not found():
            await trio.sleep(0.01)


async def test_what_waits_in_queues_and_subscriptions_and_the_ring_is_not_kept_as_objects(tmp_path: Path) -> None:
    sleeper(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe("bad.said") as routed,
        host.subscribe("bad.*", observe=True) as watching,
    ):
        before = objects()
        decoded = msgspec.json.decode(msgspec.json.encode([{}] * 100_001))
        assert objects() == before + 100_001
        del decoded
        for _ in range(8):
            host.publish("bad.said", [{}] * 100_001)
        assert host.stats().queued == 7
        assert objects() == before
        for events in (routed, watching):
            assert (await next_of(events)).payload == [{}] * 100_001


async def test_the_ring_of_those_who_watch_is_bounded_in_bytes(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path, limits={"watched": MIB}) as host, host.subscribe("a.*", observe=True) as watching:
        for n in range(40):
            host.publish("a.b", f"{n:03}" + "x" * 99_997)
        seen = [(await next_of(watching)).payload[:3] for _ in range(10)]
        assert seen == [f"{n:03}" for n in range(30, 40)]
        assert watching.lagged == 30
        assert host._bus.ring.size <= MIB


@pytest.mark.parametrize("whose", ["one principal", "many principals"])
async def test_a_flood_fills_its_share_of_what_may_wait_and_others_are_answered(whose: str, tmp_path: Path) -> None:
    flooder(tmp_path, 100_000)
    sleeper(tmp_path)
    good(tmp_path)
    limits = {"waiting": 8 * MIB, "waiting_of_principal": 4 * MIB}
    async with hosted(tmp_path, limits=limits) as host, host.subscribe(FAILED + "*") as reports:
        names = ["mallory"] if whose == "one principal" else [f"mallory{n}" for n in range(6)]
        for name in names:
            host.publish("bad.ask", 1, principal=name)
        await until(lambda: host._bus.backlog.held > 2 * MIB)
        for _ in range(20):
            await good_still_answers(host)
            assert host._bus.backlog.held <= 8 * MIB
        for name in names:  # what no guest's publish could be refused for is reported
            for _ in range(80):
                host.publish("bad.said", "x" * 100_000, principal=name)
        report = (await next_of(reports)).payload
        assert report["reason"] in ("queue-full", "backpressure")
        assert host._bus.backlog.held <= 8 * MIB


async def test_what_waited_is_given_back_to_the_account(tmp_path: Path) -> None:
    guest = Guest(pages=64)
    capsule(tmp_path, "echo", guest.handles(guest.say("said")), {"ask": "act"}, ["said"])
    async with hosted(tmp_path) as host:
        async with host.subscribe("said") as said:
            for n in range(20):
                host.publish("ask", f"{n:03}" + "x" * 200_000)
                assert host._bus.backlog.held > 0
            while host.stats().queued:
                await trio.sleep(0.01)
            assert (await next_of(said)).payload.endswith("xxx")
        await until(lambda: host._bus.backlog.held == 0)


# The rate: who passes on what others sent does not pay for it.


def relay(place: Path, name: str, hears: str, says: str) -> None:
    guest = Guest(pages=40)
    guest.handles(guest.say(says) + f"(if (i32.load8_u (i32.const {RETURNED})) (then (unreachable)))")
    capsule(place, name, guest, {hears: "act"}, [says])


async def test_who_passes_on_what_came_from_outside_is_never_refused(tmp_path: Path) -> None:
    """60 events of 300 kB through two relays: three times what one capsule may publish in that time."""
    relay(tmp_path, "first", "a.ask", "b.ask")
    relay(tmp_path, "second", "b.ask", "c.said")
    async with hosted(tmp_path) as host, host.subscribe("c.said") as said, host.subscribe(FAILED + "*") as reports:
        for n in range(60):
            host.publish("a.ask", f"{n:03}" + "x" * 300_000)
            assert (await next_of(said)).payload[:3] == f"{n:03}"
        assert host.stats().failures == {}
        assert reports.dropped == 0


async def test_a_flood_does_not_get_past_its_rate_through_a_relay(tmp_path: Path) -> None:
    """What the relay passes on is owed by who floods: he is refused, the relay is not, and not more than the rate and a relay of
    it comes through in the time."""
    flooder(tmp_path, 300_000)
    relay(tmp_path, "router", "bad.said", "c.said")
    limits = {"publish_bytes_per_sec": 2 * MIB}
    async with hosted(tmp_path, limits=limits) as host, host.subscribe("c.said") as said:
        begun = trio.current_time()
        host.publish("bad.ask", 1, principal="mallory")
        for _ in range(12):
            await next_of(said)
        took = trio.current_time() - begun
        assert (took + 2) * 2 * MIB >= 12 * 300_000
        assert host.stats().capsules["router"].failures == {}


async def test_who_makes_much_of_little_pays_for_it(tmp_path: Path) -> None:
    """A capsule that publishes more than came in is charged, also when a small event from outside led to it."""
    flooder(tmp_path, 900_000)
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as said:
        host.publish("bad.ask", 1, principal="mallory")
        with trio.move_on_after(0.8):
            while True:
                await anext(said)
        assert host.stats().capsules["bad"].bytes <= 10 * MIB
