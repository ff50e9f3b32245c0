"""Guests that could take the whole process down, each in a process of its own, so that an abort fails one test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from guests_in_wat import (
    FAILED,
    HEAP,
    POLL,
    RECV,
    RETURNED,
    SUBSCRIBE,
    Guest,
    allocator,
    bad,
    good_still_answers,
    hosted,
    next_of,
    report_of,
    spin,
)

ALLOCATES = "(param i32 i32 i32 i32) (result i32)"


async def waits_in_its_allocator(place: Path) -> None:
    body = f"(call $recv (i32.const 1) (i64.const 1000) (i32.const {RETURNED})) (i32.const 4096)"
    bad(place, allocator(Guest(RECV).handles(""), body))
    async with hosted(place) as host:
        report = await report_of(host, "bad.ask")
        assert report["reason"] == "guest-fault"
        assert "cabi_realloc" in report["detail"]
        await good_still_answers(host)


async def waits_in_its_post_return_function(place: Path) -> None:
    guest = Guest(RECV).handles("")
    body = f"(call $recv (i32.const 1) (i64.const 1000) (i32.const {RETURNED}))"
    bad(place, guest.add(f'(func (export "cabi_post_astrid-hook-trigger") (param i32) {body})'))
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "guest-fault"
        await good_still_answers(host)


async def waits_in_its_allocator_during_a_wait(place: Path) -> None:
    """The result of a wait is lowered by the allocator, which waits."""
    guest = Guest(SUBSCRIBE, RECV, "(global $armed (mut i32) (i32.const 0))")
    wait = f"(call $recv (i32.load (i32.const {RETURNED + 4})) (i64.const 5000) (i32.const 1200))"
    arm = "(global.set $armed (i32.const 1))"
    subscribe = f"(call $subscribe {guest.text('bad.more')} (i32.const {RETURNED}))"
    guest.handles(subscribe + arm + guest.say("bad.said") + wait)
    allocator(
        guest,
        f"(if (global.get $armed) (then {wait}))(call $alloc (local.get 0) (local.get 1) (local.get 2) (local.get 3))",
    )
    bad(place, guest, subscribe={"bad.ask": "act", "bad.more": {}})
    async with hosted(place) as host, host.subscribe("bad.said") as said, host.subscribe(FAILED + "bad.ask") as failed:
        host.publish("bad.ask", 1)
        await next_of(said)
        host.publish("bad.more", 2)
        assert (await next_of(failed)).payload["reason"] == "guest-fault"
        await good_still_answers(host)


async def never_returns_from_an_allocator_of_a_module_that_waits(place: Path) -> None:
    bad(place, allocator(Guest(RECV).handles(""), spin() + "(unreachable)"))
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)


async def recurses_in_an_allocator_from_a_host_function(place: Path) -> None:
    guest = Guest(SUBSCRIBE, POLL, "(global $armed (mut i32) (i32.const 0))")
    poll = f"(call $poll (i32.load (i32.const {RETURNED + 4})) (i32.const 1200))"
    subscribe = f"(call $subscribe {guest.text('bad.said')} (i32.const {RETURNED}))"
    guest.handles(subscribe + guest.say("bad.said") + "(global.set $armed (i32.const 1))" + poll)
    guest.add(f"(func $deeper {ALLOCATES} (call $deeper (local.get 0) (local.get 1) (local.get 2) (local.get 3)))")
    args = "(local.get 0) (local.get 1) (local.get 2) (local.get 3)"
    allocator(guest, f"(if (result i32) (global.get $armed) (then (call $deeper {args})) (else (call $alloc {args})))")
    bad(place, guest, subscribe={"bad.ask": "act", "bad.said": {}})
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)


async def publishes_deep_json_from_deep_recursion(place: Path) -> None:
    """The host function runs on what the guest left of its stack."""
    guest = Guest()
    depth = 20_000
    down = "(if (local.get 0) (then (call $deep (i32.sub (local.get 0) (i32.const 1)))) (else {}))"
    nested = f"(call $publish {guest.text('bad.said')} (i32.const {HEAP}) (i32.const {depth}))"
    guest.add(f"(func $deep (param i32) {down.format(nested)})")
    fill = f"(memory.fill (i32.const {HEAP}) (i32.const {ord('[')}) (i32.const {depth}))"
    bad(place, guest.handles(fill + "(call $deep (i32.const 10000))"), limits={"timeout_secs": 10})
    async with hosted(place) as host, host.subscribe(FAILED + "*") as failed:
        host.publish("bad.ask", 1)
        assert (await next_of(failed)).payload["reason"] in ("publish-denied", "trap")
        await good_still_answers(host)


ALONE: list[Callable[[Path], Awaitable[None]]] = [
    waits_in_its_allocator,
    waits_in_its_post_return_function,
    waits_in_its_allocator_during_a_wait,
    never_returns_from_an_allocator_of_a_module_that_waits,
    recurses_in_an_allocator_from_a_host_function,
    publishes_deep_json_from_deep_recursion,
]


def test_guests_that_could_take_the_process_down_do_not(tmp_path: Path) -> None:
    """Each in a process of its own; all at once, because a start takes longer than the test."""
    support = Path(sys.modules["guests_in_wat"].__file__ or "").parent
    environment = {**os.environ, "PYTHONPATH": str(support), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    running = {
        act.__name__: subprocess.Popen(
            [sys.executable, __file__, act.__name__, str(tmp_path / act.__name__)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for act in ALONE
    }
    ended = {name: (process.communicate(timeout=50)[1], process.returncode) for name, process in running.items()}
    assert {name: said for name, (said, code) in ended.items() if code} == {}


if __name__ == "__main__":
    scenario = next(act for act in ALONE if act.__name__ == sys.argv[1])
    trio.run(scenario, Path(sys.argv[2]))
