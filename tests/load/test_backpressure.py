"""Whoever publishes to a full queue stands still, also when its call is over before it could, and nobody waits for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from guests_in_wat import FAILED, READY, RECV, SUBSCRIBE, Guest, capsule, compute, good_still_answers, hosted, next_of
from guests_in_wat import good as good_capsule

from astrid_host import Host
from astrid_host.dispatch import queues

SLOW = 100_000  # turns of a loop: longer than publishing takes


def repeat(times: int, body: str) -> str:
    return f"""(local.set $i (i32.const {times}))
      (loop $on {body} (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"""


def handler(
    place: Path, name: str, row: dict[str, Any], body: str, publish: list[str], guest: Guest, **more: Any
) -> None:
    capsule(place, name, guest.handles(body), row, publish, **more)


def streamer(place: Path, topic: str, count: int) -> None:
    guest = Guest()
    handler(place, "streamer", {"s.go": "act"}, repeat(count, guest.say(topic)), [topic], guest)


def sink(place: Path, topic: str) -> None:
    guest = Guest()
    handler(place, "sink", {topic: "act"}, compute(SLOW) + guest.say("s.sunk"), ["s.sunk"], guest)


async def sunk(host: Host, count: int) -> None:
    """That many arrive, and nothing is lost on the way."""
    async with host.subscribe("s.sunk") as events:
        host.publish("s.go", {})
        for _ in range(count):
            await next_of(events)
    assert host.stats().failures == {}


async def test_a_handler_whose_call_ends_with_its_publish_holds_its_queue(tmp_path: Path) -> None:
    streamer(tmp_path, "s.a", 4000)
    guest = Guest()
    handler(tmp_path, "relay", {"s.a": "act"}, guest.say("s.b"), ["s.b"], guest)
    sink(tmp_path, "s.b")
    async with hosted(tmp_path) as host:
        await sunk(host, 4000)


async def test_a_reply_to_a_full_queue_holds_the_queue_it_came_from(tmp_path: Path) -> None:
    streamer(tmp_path, "s.a", 3000)
    guest = Guest()
    row = {"s.a": {"handler": "act", "reply": "s.b"}}
    handler(tmp_path, "answers", row, guest.answer("continue", '{"a":1}'), ["s.b"], guest)
    sink(tmp_path, "s.b")
    async with hosted(tmp_path) as host:
        await sunk(host, 3000)


async def test_a_chain_waits_for_its_slowest_member_wherever_its_events_come_from(tmp_path: Path) -> None:
    guest = Guest(READY, SUBSCRIBE, RECV)
    guest.add(f"""(func (export "run") (local $i i32)
      (call $subscribe {guest.text("s.go")} (i32.const 1200))
      (call $ready)
      (call $recv (i32.load (i32.const 1204)) (i64.const 60000) (i32.const 1304))
      {repeat(3000, guest.say("s.a", "{}"))})""")
    capsule(tmp_path, "loop", guest, {"s.go": {}}, ["s.a"])
    guest = Guest()
    handler(tmp_path, "first", {"s.a": {"handler": "act", "priority": 1}}, "", [], guest)
    sink(tmp_path, "s.a")
    async with hosted(tmp_path) as host:
        await sunk(host, 3000)


async def test_a_tool_call_that_waits_for_room_in_a_chain_is_let_in(tmp_path: Path) -> None:
    request = "tool.v1.request.execute"
    guest = Guest()
    handler(tmp_path, "guardian", {request: {"handler": "act", "priority": 1}}, "", [], guest)
    guest = Guest()
    body = compute(SLOW) + guest.answer("deny", "not today")
    handler(tmp_path, "router", {request: "act"}, body, [], guest)
    answers: list[str] = []

    async def call(host: Host) -> None:
        answers.append((await host.tools.execute("any", {}, timeout=30)).content)

    async with hosted(tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for _ in range(1400):
                nursery.start_soon(call, host)
    assert len(answers) == 1400
    assert {"not today" in answer for answer in answers} == {True}


@pytest.mark.parametrize("size", [2, 3])
async def test_a_cycle_of_full_queues_goes_on_at_once(size: int, tmp_path: Path) -> None:
    """Each publishes two events for each that it handles. An ordinary event of the same principal is handled soon."""
    for k in range(size):
        guest, ahead = Guest(), f"r.r{(k + 1) % size}"
        body = guest.when("r", guest.say(ahead, "{}") * 2) + guest.when("a", guest.say("a.said"))
        handler(tmp_path, f"c{k}", {f"r.r{k}": "ring", f"a.c{k}": "ask"}, body, ["r.*", "a.said"], guest)
    good_capsule(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("a.said") as said, host.subscribe(FAILED + "r.*") as failed:
        host.publish("r.r0", {})
        assert (await next_of(failed)).payload["reason"] == "queue-full"
        host.publish("a.c1", {})
        await next_of(said, 5)
        await good_still_answers(host)


async def test_principals_that_share_a_queue_have_room_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "QUEUES", 10)
    sink(tmp_path, "s.a")
    async with hosted(tmp_path) as host, host.subscribe("s.sunk") as events:
        host._scheduler._in_slice = True  # all of them wait at the same time
        for n in range(1500):
            host.publish("s.a", {}, principal=f"p{n}")
        host._scheduler._in_slice = False
        host._scheduler.run_or_wake()
        assert len({(await next_of(events)).principal for _ in range(1500)}) == 1500
        assert host.stats().failures == {}


async def test_callers_that_gave_up_waiting_leave_nothing_behind(tmp_path: Path) -> None:
    guest = Guest(SUBSCRIBE, RECV)
    body = f"""(call $subscribe {guest.text("n.n")} (i32.const 1200))
      (call $recv (i32.load (i32.const 1204)) (i64.const 60000) (i32.const 1304))"""
    request = "tool.v1.request.execute"
    handler(tmp_path, "router", {request: "act", "n.n": {}}, body, [], guest)

    async def call(host: Host, n: int) -> None:
        await host.tools.execute("any", {}, call_id=f"{n}")

    async with hosted(tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(call, host, n)
            await trio.testing.wait_all_tasks_blocked()
            (queue,) = host._registry.capsules["router"].queues
            assert len(queue.admission_waiters) == 300 - 65
            nursery.cancel_scope.cancel()
        assert queue.admission_waiters == {}
        assert not queue.works
