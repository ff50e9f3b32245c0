"""Guests that sleep: on no thread, as long as they asked, until their call is ended."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from guests_in_wat import RETURNED, Guest, capsule, hosted, next_of

SLEEP = '(import "astrid:sys/host@1.0.0" "sleep-ns" (func $sleep (param i64 i32)))'
TOO_LARGE = 2  # the case's number in `error-code`
SLEEPERS = 100


def sleeper(place: Path, ns: int, concurrency: int = 1) -> None:
    """Says `said.begun`, sleeps, and says `said.awake`, or `said.refused` for an error that is `too-large`."""
    guest = Guest(SLEEP)
    guest.handles(
        guest.say("said.begun")
        + f"(call $sleep (i64.const {ns}) (i32.const {RETURNED}))"
        + f"(if (i32.load8_u (i32.const {RETURNED})) (then"
        + f"  (if (i32.eq (i32.load8_u (i32.const {RETURNED + 4})) (i32.const {TOO_LARGE}))"
        + f"    (then {guest.say('said.refused')})))"
        + f"(else {guest.say('said.awake')}))"
    )
    capsule(place, "sleeper", guest, {"sleep.ask": "act"}, ["said.*"], {"concurrency": concurrency})


async def test_a_guest_sleeps_as_long_as_it_asked(tmp_path: Path) -> None:
    sleeper(tmp_path, 50_000_000)
    async with hosted(tmp_path) as host, host.subscribe("said.awake") as awake:
        begun = time.monotonic()
        host.publish("sleep.ask", 1)
        await next_of(awake)
        assert time.monotonic() - begun >= 0.05


async def test_a_guest_that_wants_to_sleep_for_too_long_is_told(tmp_path: Path) -> None:
    sleeper(tmp_path, 60_000_000_001)
    async with hosted(tmp_path) as host, host.subscribe("said.refused") as refused:
        host.publish("sleep.ask", 1)
        await next_of(refused)


async def test_a_hundred_guests_that_sleep_need_no_threads(tmp_path: Path) -> None:
    sleeper(tmp_path, 60_000_000_000)
    async with hosted(tmp_path, workers=1) as host, host.subscribe("said.begun") as begun:
        threads = threading.active_count()
        for number in range(SLEEPERS):
            host.publish("sleep.ask", 1, principal=f"p{number}")
        for _ in range(SLEEPERS):
            await next_of(begun)
        assert threading.active_count() <= threads + 1
        ended = time.monotonic()
    assert time.monotonic() - ended < 5, "the host waited for its sleepers"


async def test_a_sleep_does_not_count_as_computing(tmp_path: Path) -> None:
    guest = Guest(SLEEP)
    guest.handles(f"(call $sleep (i64.const 300000000) (i32.const {RETURNED}))" + guest.say("said.awake"))
    capsule(tmp_path, "sleeper", guest, {"sleep.ask": "act"}, ["said.*"], {"timeout_secs": 0.1})
    async with hosted(tmp_path) as host, host.subscribe("said.awake") as awake:
        host.publish("sleep.ask", 1)
        await next_of(awake)
