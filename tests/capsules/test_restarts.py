"""A run loop that fails is told of, and started again with growing pauses; after five times in a row it stays down."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from guests_in_wat import (
    FIRST,
    READY,
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

from astrid_host.capsules import runloops

HEALTH = "astrid.v1.health.failed"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runloops, "FIRST_PAUSE_S", 0.001)


def loop(place: Path, always: bool = False) -> None:
    """Says what it hears again; traps on what begins with a 9, or at once."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    traps = f"(if (i32.eq (i32.load8_u (i32.load offset=8 {FIRST})) (i32.const 57)) (then (unreachable)))"
    guest.add(
        f"""(func (export "run") (local $j i32)
          {guest.subscribe("l.ask")}
          (call $ready)
          {"(unreachable)" if always else ""}
          (loop $again
            {receive()}
            (if {RECEIVED} (then {traps} {guest.say("said.loop", "1")}))
            (br $again)))"""
    )
    capsule(place, "loop", guest, {"l.ask": {}}, ["said.*"])


async def test_a_run_loop_that_trapped_is_told_of_and_serves_again(tmp_path: Path) -> None:
    loop(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said, host.subscribe(HEALTH) as health:
        for _ in range(3):
            host.publish("l.ask", 9)
            told = await next_of(health)
            assert told.payload["capsule_id"] == "loop"
            assert "unreachable" in told.payload["reason"]
            while host.capsules["loop"].state != "ready":
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert host.capsules["loop"].error is None
            host.publish("l.ask", 1)
            await next_of(said)


async def test_one_that_traps_again_and_again_stays_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop(tmp_path, always=True)
    good(tmp_path)
    caplog.set_level("INFO")
    async with hosted(tmp_path) as host, host.subscribe(HEALTH, observe=True):
        with trio.fail_after(5):
            while "stays down" not in caplog.text:
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert caplog.text.count("is started again") == runloops.ATTEMPTS
        assert host.capsules["loop"].state == "failed"
        await good_still_answers(host)


async def test_one_that_is_unloaded_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop(tmp_path)
    caplog.set_level("INFO")
    async with hosted(tmp_path) as host, host.subscribe(HEALTH) as health:
        await host.unload("loop")
        assert host.capsules["loop"].state == "unloaded"
        await host.reload("loop")
        monkeypatch.setattr(runloops, "FIRST_PAUSE_S", 60.0)
        host.publish("l.ask", 9)
        await next_of(health)
        assert host.capsules["loop"].state == "failed"
    assert "is started again" not in caplog.text
