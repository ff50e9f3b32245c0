"""Capsules that wait for each other: a guest that waits holds no thread, and an answer passes up a chain without delay."""

from __future__ import annotations

import statistics
import threading
from pathlib import Path

import trio
from guests_in_wat import (
    MESSAGE,
    RECEIVED,
    RECV,
    SUBSCRIBE,
    Guest,
    capsule,
    good,
    good_still_answers,
    hosted,
    next_of,
    receive,
)

from astrid_host import Host, HostSubscription

LEVELS = 6
ROUNDS = 12
NAMES = [f"p{n}" for n in range(50)]


def waiting(guest: Guest, pattern: str, ask: str, answer: str) -> Guest:
    """Its handler subscribes, asks, waits, and publishes what came as its answer."""
    return guest.handles(f"""
    {guest.subscribe(pattern)}
    {guest.say(ask)}
    {receive()}
    (if {RECEIVED}
      (then (call $publish {guest.text(answer)} {MESSAGE}))
      (else (unreachable)))""")


def chain(place: Path, last: Guest) -> None:
    """Six capsules: each asks `down.<n + 1>` and waits for `up.<n + 1>`; whom the sixth asks is `last`."""
    for n in range(LEVELS):
        guest = waiting(Guest(SUBSCRIBE, RECV), f"up.{n + 1}", f"down.{n + 1}", f"up.{n}")
        capsule(place, f"level{n}", guest, {f"down.{n}": "act", f"up.{n + 1}": {}}, ["up.*", "down.*"])
    capsule(place, "last", last, {f"down.{LEVELS}": "act", "gate.open": {}}, ["up.*", "gate.*"])


def ask_all_at_once(host: Host, topic: str) -> float:
    """Publish for each principal while the loop stands still, so that none is ahead; returns when that began."""
    begun = trio.current_time()
    thread = threading.Thread(target=lambda: [host.publish(topic, name, principal=name) for name in NAMES])
    thread.start()
    thread.join()
    return begun


async def answers(said: HostSubscription, begun: float) -> list[float]:
    """Seconds until each principal had its own answer."""
    took, whose = [], []
    for _ in NAMES:
        event = await next_of(said)
        took.append(trio.current_time() - begun)
        assert event.payload == event.principal
        whose.append(event.principal)
    assert sorted(map(str, whose)) == sorted(NAMES)
    return took


async def test_a_chain_of_six_waits_takes_no_longer_than_its_hops(tmp_path: Path) -> None:
    """Each round all 50 go down the whole chain at once, then the same 50 make its last hop alone."""
    last = Guest()
    chain(tmp_path, last.handles(last.say(f"up.{LEVELS}")))
    whole: list[float] = []
    hop: list[float] = []
    async with hosted(tmp_path) as host, host.subscribe("up.0") as up, host.subscribe(f"up.{LEVELS - 1}") as one:
        for n in range(ROUNDS):
            took = await answers(up, ask_all_at_once(host, "down.0"))
            await answers(one, 0.0)  # the chain passes there, too
            took_hop = await answers(one, ask_all_at_once(host, f"down.{LEVELS - 1}"))
            if n:  # in the first round instances are made
                whole += took
                hop += took_hop
    assert statistics.median(whole) <= 10 * statistics.median(hop)


async def test_300_guests_that_wait_for_each_other_hold_no_thread(tmp_path: Path) -> None:
    """Six deep for each of 50 principals, all of them waiting at the same time, while others are served."""
    chain(tmp_path, waiting(Guest(SUBSCRIBE, RECV), "gate.open", "gate.reached", f"up.{LEVELS}"))
    good(tmp_path)
    async with (
        hosted(tmp_path, workers=1) as host,
        host.subscribe("up.0") as up,
        host.subscribe("gate.reached") as reached,
    ):
        await good_still_answers(host)
        threads = threading.active_count() + 1  # the only worker begins with the first guest that computes for long
        begun = ask_all_at_once(host, "down.0")
        for _ in NAMES:
            await next_of(reached)
        assert host.stats().waiting == len(NAMES) * (LEVELS + 1)
        assert threading.active_count() <= threads
        await good_still_answers(host)
        for name in NAMES:
            host.publish("gate.open", name, principal=name)
        await answers(up, begun)
        assert host.stats().waiting == 0
        assert threading.active_count() <= threads


async def test_guests_that_wait_do_not_count_against_the_cap_that_their_responder_needs(tmp_path: Path) -> None:
    """300 guests wait at the same time, under a cap of 200: as many again may wait."""
    last = Guest()
    chain(tmp_path, last.handles(last.say(f"up.{LEVELS}")))
    async with hosted(tmp_path) as host, host.subscribe("up.0") as up:
        host._instances.cap = 200
        await answers(up, ask_all_at_once(host, "down.0"))
        assert host.stats().waiting == 0
        assert host.stats().instances <= 400
        assert host.stats().failures == {}
