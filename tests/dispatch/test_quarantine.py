"""A capsule that traps five times in 10 s for one principal is not called for it for a while, and says so once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import FAILED, Guest, capsule, hosted, next_of

from astrid_host import Host, HostSubscription
from astrid_host.dispatch import Quarantine

# The rule alone, in seconds of its own clock.


def trapping(quarantine: Quarantine, who: str, *times: float) -> list[float | None]:
    return [quarantine.trapped(who, time) for time in times]


def test_the_fifth_trap_within_ten_seconds_begins_one_of_two_seconds() -> None:
    quarantine = Quarantine()
    assert trapping(quarantine, "p", 0, 1, 2, 3, 9.9) == [None, None, None, None, 2.0]
    assert quarantine.left("p", 10.9) == pytest.approx(1.0)
    assert quarantine.left("p", 12) == 0


def test_traps_further_apart_do_not() -> None:
    quarantine = Quarantine()
    assert trapping(quarantine, "p", *(2.6 * n for n in range(50))) == [None] * 50


def test_other_principals_are_not_concerned() -> None:
    quarantine = Quarantine()
    trapping(quarantine, "p", 0, 0, 0, 0, 0)
    assert (quarantine.left("p", 1), quarantine.left("q", 1), quarantine.left(None, 1)) == (1, 0, 0)
    assert list(quarantine.running(1)) == [("p", 1)]


def test_each_is_twice_as_long_as_the_last_up_to_two_minutes() -> None:
    quarantine, now, lasted = Quarantine(), 0.0, []
    for _ in range(9):
        *_, seconds = trapping(quarantine, "p", now, now, now, now, now)
        assert seconds is not None
        lasted.append(seconds)
        now += seconds
    assert lasted == [2, 4, 8, 16, 32, 64, 120, 120, 120]


def test_after_two_good_minutes_it_begins_anew_with_two_seconds() -> None:
    quarantine = Quarantine()
    trapping(quarantine, "p", 0, 0, 0, 0, 0)
    trapping(quarantine, "p", 2, 2, 2, 2, 2)
    assert trapping(quarantine, "p", *[130] * 5)[-1] == 2


def test_traps_of_calls_that_were_under_way_do_not_count() -> None:
    quarantine = Quarantine()
    trapping(quarantine, "p", 0, 0, 0, 0, 0)
    assert trapping(quarantine, "p", *[1] * 20) == [None] * 20
    assert trapping(quarantine, "p", 2, 2, 2, 2) == [None] * 4


def test_what_is_over_is_forgotten() -> None:
    quarantine = Quarantine()
    trapping(quarantine, "once", 0)
    trapping(quarantine, "often", 0, 0, 0, 0, 0)
    quarantine.sweep(9)
    assert quarantine.records
    quarantine.sweep(11)
    assert list(quarantine.records) == ["often"]
    quarantine.sweep(123)
    assert not quarantine.records


# In a host.


def trap_at(guest: Guest, letter: str) -> str:
    first = "(i32.load8_u offset=1 (local.get $payload))"
    return f"(if (i32.eq {first} (i32.const {ord(letter)})) (then (unreachable)))"


def moody(place: Path, name: str = "moody", **more: Any) -> None:
    """Traps at "t…", and says everything else again on `said.<name>`."""
    guest = Guest()
    guest.handles(trap_at(guest, "t") + guest.say(f"said.{name}"))
    capsule(place, name, guest, {"a.ask": {"handler": "act", **more.pop("row", {})}}, ["said.*"], **more)


async def reasons(host: Host, failing: HostSubscription, count: int, payload: str = "trap", **more: Any) -> list[str]:
    found = []
    for _ in range(count):
        host.publish("a.ask", payload, **more)
        found.append((await next_of(failing)).payload["reason"])
    return found


async def test_its_events_fail_at_once_and_one_line_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    moody(tmp_path)
    caplog.set_level(logging.WARNING, "astrid_host")
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failing, host.subscribe("said.*") as said:
        assert await reasons(host, failing, 8, principal="eve") == ["trap"] * 5 + ["quarantined"] * 3
        assert [told.principal for told in host.stats().quarantined] == ["eve"]
        host.publish("a.ask", "fine", principal="eve")
        report = (await next_of(failing)).payload
        assert (report["reason"], report["handlers"], report["done"]) == ("quarantined", 1, 0)
        assert "trapped too often" in report["detail"]
        host.publish("a.ask", "fine", principal="bob")
        assert (await next_of(said)).principal == "bob"
    lines = [record.message for record in caplog.records if "trapped too often" in record.message]
    assert len(lines) == 1
    assert "moody" in lines[0]
    assert "eve" in lines[0]


async def test_after_it_the_capsule_is_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moody(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failing, host.subscribe("said.*") as said:
        await reasons(host, failing, 5)
        monkeypatch.setattr("astrid_host.dispatch.dispatcher.now", later(3.0))
        host.publish("a.ask", "fine")
        assert (await next_of(said)).payload == "fine"
        assert await reasons(host, failing, 6) == ["trap"] * 5 + ["quarantined"]


def later(seconds: float) -> Callable[[], float]:
    import time

    return lambda: time.monotonic() + seconds


async def test_what_waits_when_it_begins_fails_too(tmp_path: Path) -> None:
    moody(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failing:
        host._scheduler._in_slice = True  # all of them are queued before the first is handled
        for _ in range(20):
            host.publish("a.ask", "trap")
        host._scheduler._in_slice = False
        host._scheduler.run_or_wake()
        found = [(await next_of(failing)).payload["reason"] for _ in range(20)]
    assert sorted(found) == ["quarantined"] * 15 + ["trap"] * 5


async def test_reload_means_never(tmp_path: Path) -> None:
    moody(tmp_path, limits={"on_trap": "reload"})
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failing:
        assert await reasons(host, failing, 30) == ["trap"] * 30
        assert host.stats().quarantined == ()
        assert host.stats().capsules["moody"].traps == 30


async def test_a_chain_goes_on_without_a_member_whose_row_lets_it(tmp_path: Path) -> None:
    moody(tmp_path, "first", row={"priority": 1, "on_error": "continue"})
    guest = Guest()
    guest.handles(guest.say("said.last"))
    capsule(tmp_path, "last", guest, {"a.ask": {"handler": "act", "priority": 2}}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe("said.last") as said:
        for _ in range(10):
            host.publish("a.ask", "trap")
            assert (await next_of(said)).payload == "trap"
        assert [told.capsule for told in host.stats().quarantined] == ["first"]


async def test_a_chain_that_needs_the_member_fails(tmp_path: Path) -> None:
    moody(tmp_path, "first", row={"priority": 1})
    guest = Guest()
    guest.handles(guest.say("said.last"))
    capsule(tmp_path, "last", guest, {"a.ask": {"handler": "act", "priority": 2}}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failing:
        assert await reasons(host, failing, 7) == ["trap"] * 5 + ["quarantined"] * 2
