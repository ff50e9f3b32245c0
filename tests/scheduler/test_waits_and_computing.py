"""Guests that wait are suspended stacks, guests that compute go to the worker pool; both end by time, cancellation or the end of
the host."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import (
    FAILED,
    MESSAGE,
    RECEIVED,
    RECV,
    SUBSCRIBE,
    Guest,
    capsule,
    compute,
    good,
    good_still_answers,
    hosted,
    next_of,
    receive,
    spin,
)


def got(then: str, otherwise: str = "") -> str:
    return f"(if {RECEIVED} (then {then}) (else {otherwise}))"


def say_message(guest: Guest, topic: str) -> str:
    return f"(call $publish {guest.text(topic)} {MESSAGE})"


def waiter(place: Path, name: str = "waiter", timeout_ms: int = 60_000, **more: Any) -> None:
    """Says `said.begun`, waits on `w.more`, and says what it got on `said.got` or, when nothing came, `said.nothing`."""
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(
        guest.subscribe("w.more")
        + guest.say("said.begun")
        + receive(timeout_ms)
        + got(say_message(guest, "said.got"), guest.say("said.nothing"))
    )
    capsule(place, name, guest, {"w.ask": "act", "w.more": {}}, ["said.*"], **more)


def spinner(place: Path, name: str = "spinner", **more: Any) -> None:
    """Says `said.begun` and computes for ever."""
    guest = Guest()
    capsule(place, name, guest.handles(guest.say("said.begun") + spin()), {f"{name}.ask": "act"}, ["said.*"], **more)


# Waits.


async def test_a_wait_ends_with_the_message(tmp_path: Path) -> None:
    waiter(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.got") as said, host.subscribe("said.begun") as begun:
        host.publish("w.ask", 1)
        await next_of(begun)
        host.publish("w.more", {"n": 5})
        assert (await next_of(said)).payload == {"n": 5}


async def test_a_wait_ends_by_its_time_with_an_empty_envelope(tmp_path: Path) -> None:
    waiter(tmp_path, timeout_ms=50)
    async with hosted(tmp_path) as host, host.subscribe("said.nothing") as said:
        begun = time.monotonic()
        host.publish("w.ask", 1)
        assert (await next_of(said)).payload == 1
        assert time.monotonic() - begun >= 0.05


async def test_a_wait_without_time_returns_at_once(tmp_path: Path) -> None:
    waiter(tmp_path, timeout_ms=0)
    async with hosted(tmp_path) as host, host.subscribe("said.nothing") as said:
        host.publish("w.ask", 1)
        assert (await next_of(said)).payload == 1


async def test_a_handlers_subscription_receives_its_own_principal_only(tmp_path: Path) -> None:
    waiter(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        host.publish("w.ask", 1, principal="alice")
        await next_of(said)
        host.publish("w.more", "of bob", principal="bob")
        host.publish("w.more", "of alice", principal="alice")
        event = await next_of(said)
        assert (event.payload, event.principal) == ("of alice", "alice")


async def test_waiting_costs_no_computing_time(tmp_path: Path) -> None:
    """The limit counts what the guest computes, not what it waits."""
    waiter(tmp_path, timeout_ms=300, limits={"timeout_secs": 0.1})
    async with hosted(tmp_path) as host, host.subscribe("said.nothing") as said:
        host.publish("w.ask", 1)
        await next_of(said)


async def test_the_late_end_of_a_wait_does_not_end_the_next(tmp_path: Path) -> None:
    """The first wait ends by time; its message comes in the second one, and only there."""
    guest = Guest(SUBSCRIBE, RECV)
    first = receive(20) + got("(unreachable)", guest.say("said.first"))
    second = receive(60_000) + got(say_message(guest, "said.second"), "(unreachable)")
    third = receive(30) + got("(unreachable)", guest.say("said.third"))
    guest.handles(guest.subscribe("w.more") + first + second + third)
    capsule(tmp_path, "waiter", guest, {"w.ask": "act", "w.more": {}}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        host.publish("w.ask", 1)
        assert (await next_of(said)).topic == "said.first"
        host.publish("w.more", 7)
        assert [(await next_of(said)).topic for _ in range(2)] == ["said.second", "said.third"]


async def test_500_waits_are_woken_and_none_is_lost(tmp_path: Path) -> None:
    """Of as many principals, woken by a thread at the same time as the loop's own events."""
    waiter(tmp_path)
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.begun") as begun, host.subscribe("said.got") as said:
        names = [f"p{n}" for n in range(500)]
        for name in names:
            host.publish("w.ask", 1, principal=name)
        for _ in names:
            await next_of(begun)
        thread = threading.Thread(target=lambda: [host.publish("w.more", name, principal=name) for name in names[::2]])
        thread.start()
        for name in names[1::2]:
            host.publish("w.more", name, principal=name)
        heard = [await next_of(said) for _ in names]
        thread.join()
        assert sorted(event.payload for event in heard) == sorted(names)
        assert all(event.payload == event.principal for event in heard)


async def test_waits_that_are_over_are_forgotten_before_their_time_is_up(tmp_path: Path) -> None:
    """Each holds its call and what that was called with."""
    waiter(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        for n in range(2000):
            host.publish("w.ask", n)
            assert (await next_of(said)).topic == "said.begun"
            host.publish("w.more", n)
            assert (await next_of(said)).topic == "said.got"
        assert len(host._scheduler._deadlines) <= 1024


LEVELS, PRINCIPALS = 6, 20


async def test_waits_nest_several_levels_deep(tmp_path: Path) -> None:
    """Each level asks the next and waits for its answer; the last one answers. 20 principals at once."""
    for level in range(LEVELS):
        guest = Guest(SUBSCRIBE, RECV)
        ask = guest.subscribe(f"up.{level + 1}") + guest.say(f"down.{level + 1}") + receive(20_000)
        guest.handles(ask + got(say_message(guest, f"up.{level}"), "(unreachable)"))
        rows: dict[str, str | dict[str, Any]] = {f"down.{level}": "act", f"up.{level + 1}": {}}
        capsule(tmp_path, f"level{level}", guest, rows, ["up.*", "down.*"])
    last = Guest()
    last.handles(last.say(f"up.{LEVELS}"))
    capsule(tmp_path, "last", last, {f"down.{LEVELS}": "act"}, ["up.*"])
    async with hosted(tmp_path) as host, host.subscribe("up.0") as said:
        for _ in range(5):
            for n in range(PRINCIPALS):
                host.publish("down.0", n, principal=f"p{n}")
            heard = [await next_of(said) for _ in range(PRINCIPALS)]
            assert sorted((event.payload, event.principal) for event in heard) == [
                (n, f"p{n}") for n in range(PRINCIPALS)
            ]


# Computing.


async def test_others_go_on_while_guests_compute(tmp_path: Path) -> None:
    """More endless guests than there are threads: another capsule's calls are answered meanwhile, and quickly."""
    for n in range(4):
        spinner(tmp_path, f"spin{n}")
    good(tmp_path)
    async with hosted(tmp_path, workers=2) as host, host.subscribe("said.begun") as begun:
        for n in range(4):
            host.publish(f"spin{n}.ask", 1)
            await next_of(begun)
        took = []
        for _ in range(50):
            start = time.monotonic()
            await good_still_answers(host)
            took.append(time.monotonic() - start)
        assert sorted(took)[25] < 0.1


async def test_guests_that_compute_share_the_worker_pool(tmp_path: Path) -> None:
    """A fifth guest that computes for a while ends, though four others never do and there is one thread."""
    for n in range(4):
        spinner(tmp_path, f"spin{n}")
    guest = Guest()
    guest.handles(guest.say("said.begun") + compute(8_000_000) + guest.say("said.ended"))
    capsule(tmp_path, "worker", guest, {"work": "act"}, ["said.*"])
    async with hosted(tmp_path, workers=1) as host, host.subscribe("said.begun") as begun:
        async with host.subscribe("said.ended") as ended:
            for n in range(4):
                host.publish(f"spin{n}.ask", 1)
                await next_of(begun)
            host.publish("work", 1)
            await next_of(ended, 30)


async def test_a_handler_that_computed_long_twice_does_so_for_everybody_off_the_loop(tmp_path: Path) -> None:
    """And comes back to the loop's thread when it is quick again: it answers as before."""
    guest = Guest()
    slow = f"(if (i32.eq (i32.load8_u (local.get $payload)) (i32.const {ord('9')})) (then {compute(6_000_000)}))"
    capsule(tmp_path, "w", guest.handles(slow + guest.say("said.ended")), {"work": "act"}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe("said.ended") as said:
        for n in (9, 9, 9, 1, 1, 1, 9, 1):
            host.publish("work", n)
            assert (await next_of(said)).payload == n


async def test_a_guest_that_computes_too_long_is_ended_and_its_queue_goes_on(tmp_path: Path) -> None:
    guest = Guest()
    endless = f"(if (i32.eq (i32.load8_u (local.get $payload)) (i32.const {ord('9')})) (then {spin()}))"
    guest.handles(endless + guest.say("said.ended"))
    capsule(tmp_path, "w", guest, {"work": "act"}, ["said.*"], limits={"timeout_secs": 0.05})
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said, host.subscribe(FAILED + "*") as failed:
        for n in (1, 9, 2, 9, 3):
            host.publish("work", n)
        assert [(await next_of(said)).payload for _ in range(3)] == [1, 2, 3]
        assert [(await next_of(failed)).payload["reason"] for _ in range(2)] == ["timeout", "timeout"]


async def test_concurrency_lets_so_many_calls_of_one_principal_run_at_once(tmp_path: Path) -> None:
    waiter(tmp_path, limits={"concurrency": 3})
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        for n in range(5):
            host.publish("w.ask", n)
        assert [(await next_of(said)).payload for _ in range(3)] == [0, 1, 2]
        host.publish("w.more", "go")  # all three that wait get it, and two more begin
        heard = [await next_of(said) for _ in range(5)]
        assert sorted(str(event.payload) for event in heard) == ["3", "4", "go", "go", "go"]


# The host's end.


def workers_and_ticker() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("astrid-host")]


async def test_the_host_ends_within_a_second_while_guests_compute_and_wait(tmp_path: Path) -> None:
    """With more computing guests than threads, with queues behind them; no thread is left."""
    for n in range(3):
        spinner(tmp_path, f"spin{n}")
    waiter(tmp_path)
    async with hosted(tmp_path, workers=2) as host, host.subscribe("said.begun") as begun:
        for n in range(3):
            host.publish(f"spin{n}.ask", 1)
            await next_of(begun)
        for who in range(20):
            host.publish("w.ask", 1, principal=f"{who}")
            await next_of(begun)
        for n in range(3):
            for _ in range(50):
                host.publish(f"spin{n}.ask", 1)
        ending = time.monotonic()
    assert time.monotonic() - ending < 1
    assert workers_and_ticker() == []


async def test_the_host_ends_at_once_when_its_body_is_cancelled(tmp_path: Path) -> None:
    spinner(tmp_path)
    with trio.CancelScope() as scope:
        async with hosted(tmp_path) as host, host.subscribe("said.begun") as begun:
            host.publish("spinner.ask", 1)
            await next_of(begun)
            ending = time.monotonic()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert time.monotonic() - ending < 1
    assert workers_and_ticker() == []


async def test_nothing_can_be_published_after_the_end(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        await good_still_answers(host)
    with pytest.raises(Exception, match="has stopped"):
        host.publish("good.ask", 1)


async def test_the_clock_rests_when_nothing_runs_and_wakes_for_the_next_guest(tmp_path: Path) -> None:
    """Half a second after the last guest ran no tick passes any more; a guest that computes is ended by time all the same."""
    guest = Guest()
    capsule(tmp_path, "w", guest.handles(spin()), {"work": "act"}, limits={"timeout_secs": 0.05})
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "work") as failed:
        clock = host._scheduler.ticker
        with trio.fail_after(10):
            while not clock.stopped:
                await trio.sleep(0.02)
        host.publish("work", 1)
        assert (await next_of(failed)).payload["reason"] == "timeout"


async def test_a_wait_ends_by_time_while_the_clock_rests(tmp_path: Path) -> None:
    """Longer than the clock's own patience: it sleeps until the wait is over."""
    waiter(tmp_path, timeout_ms=900)
    async with hosted(tmp_path) as host, host.subscribe("said.nothing") as said:
        host.publish("w.ask", 1)
        await next_of(said, 3)
