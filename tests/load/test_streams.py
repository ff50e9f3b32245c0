"""A guest that publishes faster than others handle waits for them: nothing is lost, and others are served meanwhile.

What must not wait, or waits in vain, is refused with `backpressure` and reported as `queue-full`. Handlers number what they
publish, so that a loss or a change of order shows.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import trio
from guests_in_wat import (
    FAILED,
    READY,
    RECEIVED,
    RECV,
    RETURNED,
    SUBSCRIBE,
    Guest,
    capsule,
    compute,
    good,
    good_still_answers,
    hosted,
    next_of,
    receive,
)

from astrid_host import Host, HostEvent, HostSubscription

NUMBER_END = 1600  # decimal digits are written in front of it
BACKPRESSURE = 4  # its place among the cases of `error-code`
FOLLOWING, BOUND, RUN_LOOP = 1024, 2048, 64
PACE_S = 0.002
KV_SET = '(import "astrid:kv/host@1.0.0" "kv-set" (func $kv_set (param i32 i32 i32 i32 i32)))'
SAY_NUMBER = f"""
  (func $say_number (param $topic i32) (param $topic_len i32) (param $n i32)
    (local $at i32)
    (local.set $at (i32.const {NUMBER_END}))
    (loop $more
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
      (br_if $more (local.tee $n (i32.div_u (local.get $n) (i32.const 10)))))
    (call $publish (local.get $topic) (local.get $topic_len)
      (local.get $at) (i32.sub (i32.const {NUMBER_END}) (local.get $at))))"""


def streams(guest: Guest, topic: str, count: int, ended: str) -> str:
    """Publish that many numbers as fast as it goes, then say how many were refused. Traps at another refusal than
    `backpressure`."""
    refused = f"(i32.load8_u (i32.const {RETURNED}))"
    other = f"(i32.ne (i32.load8_u (i32.const {RETURNED + 4})) (i32.const {BACKPRESSURE}))"
    return f"""
    (local.set $i (i32.const 0))
    (local.set $j (i32.const 0))
    (loop $on
      (call $say_number {guest.text(topic)} (local.get $i))
      (if {refused} (then
        (if {other} (then (unreachable)))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))))
      (br_if $on (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count}))))
    (call $say_number {guest.text(ended)} (local.get $j))"""


def streamer(place: Path, topic: str, count: int) -> None:
    """One call of its handler is one stream."""
    guest = Guest().add(SAY_NUMBER)
    guest.handles(streams(guest, topic, count, "s.ended"))
    capsule(place, "streamer", guest, {"s.go": "act"}, [topic, "s.ended"])


def looping_streamer(place: Path, topic: str, count: int) -> None:
    """The same as a run loop."""
    guest = Guest(SUBSCRIBE, RECV, READY).add(SAY_NUMBER)
    guest.add(f"""(func (export "run") (local $i i32) (local $j i32) (local $subscription i32)
      {guest.subscribe("s.go", "$subscription")}
      (call $ready)
      (loop $again
        (global.set $heap (i32.const 65536))
        {receive(handle="$subscription")}
        (if {RECEIVED} (then {streams(guest, topic, count, "s.ended")}))
        (br $again)))""")
    capsule(place, "streamer", guest, {"s.go": {}}, [topic, "s.ended"])


def slow(place: Path) -> None:
    """Says again what it got, after it computed for longer than publishing takes."""
    guest = Guest()
    capsule(place, "slow", guest.handles(compute(300_000) + guest.say("s.said")), {"s.item": "act"}, ["s.said"])


async def keep(events: HostSubscription, kept: list[HostEvent]) -> None:
    async for event in events:
        kept.append(event)


async def answer_times(host: Host, go_on: Any) -> list[float]:
    """Seconds that calls of the good capsule take, one every 2 ms, for as long as `go_on(how many)`."""
    took: list[float] = []
    async with host.subscribe("good.said") as said:
        while go_on(len(took)):
            await trio.sleep(PACE_S)
            begun = trio.current_time()
            host.publish("good.ask", len(took), principal="other")
            assert (await next_of(said)).payload == len(took)
            took.append(trio.current_time() - begun)
    return took


def p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


async def test_a_stream_of_20000_events_loses_none_and_delays_no_other_capsule(tmp_path: Path) -> None:
    """Each of them is a write of the kv store to the capsule that handles it."""
    count = 20_000
    streamer(tmp_path, "s.item", count)
    supervisor = Guest(KV_SET)
    text = "(local.get $payload) (local.get $payload_len)"
    write = f"(call $kv_set {text} {text} (i32.const {RETURNED}))"
    failed = f"(if (i32.load8_u (i32.const {RETURNED})) (then (unreachable)))"
    capsule(
        tmp_path,
        "supervisor",
        supervisor.handles(write + failed + supervisor.say("s.kept")),
        {"s.item": "act"},
        ["s.kept"],
    )
    good(tmp_path)
    kept: list[HostEvent] = []
    reports: list[HostEvent] = []
    async with (
        hosted(tmp_path) as host,
        host.subscribe("s.kept") as keeping,
        host.subscribe("s.ended") as ended,
        host.subscribe(FAILED + "*") as failing,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(keep, keeping, kept)
        nursery.start_soon(keep, failing, reports)
        idle = await answer_times(host, lambda times: times < 100)
        host.publish("s.go", 1)
        beside = await answer_times(host, lambda _: len(kept) < count and not (reports or keeping.dropped))
        assert (keeping.dropped, reports) == (0, [])
        assert (await next_of(ended)).payload == 0
        idle += await answer_times(host, lambda times: times < 100)
        nursery.cancel_scope.cancel()
        assert (keeping.dropped, reports) == (0, [])
    assert [event.payload for event in kept] == list(range(count))
    assert len(beside) >= 50
    assert p95(beside) <= 10 * p95(idle)


async def heard_in_order(host: Host, count: int, room: int) -> None:
    """Let the streamer stream: nothing is refused or lost, and it never was more than `room` events ahead."""
    async with (
        host.subscribe("s.said") as said,
        host.subscribe("s.ended") as ended,
        host.subscribe(FAILED + "*") as bad,
    ):
        host.publish("s.go", 1)
        heard = [await next_of(said) for _ in range(count)]
        assert [event.payload for event in heard] == list(range(count))
        end = await next_of(ended)
        assert end.payload == 0
        assert sum(event.seq < end.seq for event in heard) >= count - room
        host.publish("no.body", 1)
        assert (await next_of(bad)).payload["topic"] == "no.body"


async def test_a_handler_that_publishes_5000_events_to_a_slow_one_is_paused_and_loses_none(tmp_path: Path) -> None:
    streamer(tmp_path, "s.item", 5000)
    slow(tmp_path)
    async with hosted(tmp_path) as host:
        await heard_in_order(host, 5000, BOUND)


async def test_a_run_loop_that_publishes_1000_events_to_a_slow_handler_is_paused_and_loses_none(tmp_path: Path) -> None:
    """To the edge it is what anybody outside is: it is paused at 64, and goes on as soon as there is room."""
    looping_streamer(tmp_path, "s.item", 1000)
    slow(tmp_path)
    async with hosted(tmp_path) as host:
        begun = trio.current_time()
        await heard_in_order(host, 1000, 2 * RUN_LOOP)
        assert trio.current_time() - begun < 1000 / RUN_LOOP / 2, "pauses that end by their time take a second each"


async def test_two_handlers_that_fill_each_others_queues_go_on_after_a_second(tmp_path: Path) -> None:
    """Neither queue can move while both handlers wait: what they publish from then on is refused and reported."""
    count = 3000
    for me, other in ("ab", "ba"):
        guest = Guest().add(SAY_NUMBER)
        stream = guest.when("go", streams(guest, f"{other}.item", count, f"ended.{me}"))
        guest.handles(stream + guest.when("item", guest.say(f"said.{me}")))
        rows: dict[str, str | dict[str, Any]] = {"m.go": "go", f"{me}.item": "item"}
        capsule(tmp_path, me, guest, rows, [f"{other}.item", "ended.*", "said.*"])
    async with (
        hosted(tmp_path) as host,
        host.subscribe("said.a") as said_by_a,
        host.subscribe("said.b") as said_by_b,
        host.subscribe("ended.*") as ended,
        host.subscribe(FAILED + "*") as failed,
    ):
        begun = trio.current_time()
        host.publish("m.go", 1)
        refused = {event.topic[-1]: event.payload for event in [await next_of(ended) for _ in "ab"]}
        assert trio.current_time() - begun < 5
        assert sum(refused.values()) > 0
        for other, said in (("b", said_by_a), ("a", said_by_b)):
            numbers = [(await next_of(said)).payload for _ in range(count - refused[other])]
            assert numbers == sorted(numbers)
            assert numbers[:FOLLOWING] == list(range(FOLLOWING))
        for _ in range(sum(number > 0 for number in refused.values())):
            report = (await next_of(failed)).payload
            assert report["reason"] == "queue-full"
            assert (report["topic"], refused[report["capsule"]] > 0) == (
                {"a": "b.item", "b": "a.item"}[report["capsule"]],
                True,
            )
        host.publish("no.body", 1)
        assert (await next_of(failed)).payload["topic"] == "no.body"


async def test_a_handler_that_floods_its_own_queue_is_refused_at_once(tmp_path: Path) -> None:
    """It is never paused: nobody but itself could make room."""
    count = 3000
    guest = Guest().add(SAY_NUMBER)
    stream = guest.when("go", streams(guest, "o.item", count, "o.ended"))
    guest.handles(stream + guest.when("item", guest.say("o.said")))
    capsule(tmp_path, "own", guest, {"o.go": "go", "o.item": "item"}, ["o.*"])
    good(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe("o.said") as said,
        host.subscribe("o.ended") as ended,
        host.subscribe(FAILED + "*") as failed,
    ):
        begun = trio.current_time()
        host.publish("o.go", 1)
        refused = (await next_of(ended)).payload
        assert trio.current_time() - begun < 1, "a pause lasts a second"
        assert count - BOUND <= refused <= count - FOLLOWING
        heard = [(await next_of(said)).payload for _ in range(count - refused)]
        assert heard == list(range(count - refused))
        report = (await next_of(failed)).payload
        assert (report["reason"], report["topic"], report["capsule"]) == ("queue-full", "o.item", "own")
        await good_still_answers(host)
