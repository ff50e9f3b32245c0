"""Guests that take all the memory they can get, together: the ceiling holds, who comes late is refused, others are answered."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import FAILED, HEAP, RETURNED, Guest, allocator, capsule, good, good_still_answers, hosted, next_of

MIB = 1 << 20
CEILING = 64 * MIB
LIMITS = {"memory": CEILING}
SLEEP = '(import "astrid:sys/host@1.0.0" "sleep-ns" (func $sleep (param i64 i32)))'
LONG = f"(call $sleep (i64.const 50000000000) (i32.const {RETURNED}))"
PAGES_OF_8_MIB = 128


def fill(mib: int) -> str:
    return f"(memory.fill (i32.const {HEAP}) (i32.const 1) (i32.const {mib * MIB - HEAP}))"


def greedy(place: Path, name: str, guest: Guest, body: str, **limits: Any) -> None:
    """A capsule whose calls do what `body` says, and then wait for long."""
    guest.handles(body + LONG)
    capsule(place, name, guest, {f"{name}.ask": "act"}, [], {"concurrency": 64, **limits})


async def never_above_the_ceiling(host: Any) -> None:
    """Look at the account until cancelled."""
    while True:
        assert host.stats().memory_bytes <= CEILING
        await trio.sleep(0.001)


GROW_BY_8_MIB = f"(if (i32.eq (memory.grow (i32.const {PAGES_OF_8_MIB})) (i32.const -1)) (then (unreachable)))"
GREED = {
    "begins with much": (Guest(SLEEP, pages=PAGES_OF_8_MIB), fill(8)),
    "grows while it runs": (Guest(SLEEP), GROW_BY_8_MIB + fill(8)),
    "grows page by page": (
        Guest(SLEEP),
        "(local.set $i (i32.const 128)) (loop $on (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then (unreachable)))"
        "(br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))",
    ),
    "grows in its allocator": (
        allocator(Guest(SLEEP), f"{GROW_BY_8_MIB} (i32.const {HEAP})"),
        fill(8),
    ),
    "begins with large tables": (Guest(SLEEP, *["(table 90000 funcref)"] * 10), ""),
}


@pytest.mark.parametrize("how", GREED)
async def test_a_capsule_that_takes_all_memory_is_refused_and_others_are_answered(how: str, tmp_path: Path) -> None:
    """64 calls of 8 MiB or more each, with 64 MiB for all: some wait with what they have, the rest is refused with the key."""
    guest, body = GREED[how]
    greedy(tmp_path, "bad", guest, body, memory_bytes=32 * MIB)
    good(tmp_path)
    async with hosted(tmp_path, limits=LIMITS) as host, host.subscribe(FAILED + "bad.ask") as reports:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(never_above_the_ceiling, host)
            for _ in range(60):
                host.publish("bad.ask", 1, principal="mallory")
            report = (await next_of(reports, 30)).payload
            assert (report["reason"], report["capsule"]) == ("no-instance", "bad")
            assert f"of {CEILING} bytes" in report["detail"]
            assert "memory in the [host] table of host.toml" in report["detail"]
            for _ in range(5):
                await good_still_answers(host)
            while host.stats().waiting < 2:  # those behind it are let in one after the other
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_many_capsules_that_take_all_memory_leave_room_for_one_that_comes_late(tmp_path: Path) -> None:
    for n in range(6):
        greedy(tmp_path, f"bad{n}", Guest(SLEEP, pages=16), "")
    good(tmp_path)
    async with hosted(tmp_path, limits=LIMITS) as host, host.subscribe(f"{FAILED}*") as reports:
        for round_ in range(30):
            for n in range(6):
                host.publish(f"bad{n}.ask", round_, principal=f"mallory{n}")
        await next_of(reports, 30)
        await good_still_answers(host)
        assert host.stats().memory_bytes <= CEILING


async def test_idle_instances_go_before_anybody_is_refused(tmp_path: Path) -> None:
    """100 principals in turn, 2 MiB each, with 64 MiB for all: nobody misses anything."""
    guest = Guest(pages=32)
    capsule(tmp_path, "big", guest.handles(guest.say("big.said")), {"big.ask": "act"}, ["big.said"])
    async with hosted(tmp_path, limits=LIMITS) as host, host.subscribe("big.said") as said:
        for n in range(100):
            host.publish("big.ask", n, principal=f"p{n}")
            assert (await next_of(said)).payload == n
        assert CEILING // 4 < host.stats().memory_bytes <= CEILING


async def test_a_manifest_above_the_operators_ceilings_is_warned_of_and_loads_with_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grow = Guest()
    grows = "(if (i32.ne (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))"
    grow.handles(grows + grow.say("big.said"))
    asked = {"memory_bytes": 1 << 30, "timeout_secs": 3000, "concurrency": 500}
    folder = capsule(tmp_path, "big", grow, {"big.ask": "act"}, ["big.said"], asked)
    limits = {"instance_memory": MIB, "call_secs": 1.5, "concurrency": 2}
    with caplog.at_level(logging.WARNING):
        async with hosted(tmp_path, limits=limits) as host, host.subscribe("big.said") as said:
            host.publish("big.ask", 1)
            assert (await next_of(said)).payload == 1
    lines = [line for line in caplog.messages if "this host allows" in line]
    assert len(lines) == 3
    for key, ceiling in (
        ("memory_bytes", "instance_memory"),
        ("timeout_secs", "call_secs"),
        ("concurrency", "concurrency"),
    ):
        (line,) = [line for line in lines if f": {key} = " in line]
        assert line.startswith(f"{folder / 'Capsule.toml'}:")
        assert f"[host] {ceiling} in host.toml" in line


async def test_a_capsule_that_begins_with_more_than_the_ceiling_does_not_load(tmp_path: Path) -> None:
    capsule(tmp_path, "big", Guest(pages=32).handles(""), {"big.ask": "act"})
    async with hosted(tmp_path, limits={"instance_memory": MIB}) as host:
        assert "raise instance_memory in the [host] table of host.toml" in (host.capsules["big"].error or "")
