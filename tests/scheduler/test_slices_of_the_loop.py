"""A busy host leaves the loop to others between two slices, and no guest keeps the loop for itself."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule, compute, good, hosted, next_of

from astrid_host import Host
from astrid_host.bus import Subscription
from astrid_host.scheduler import Scheduler


def counted_slices(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each slice began."""
    taken: list[float] = []
    run_slice = Scheduler.run_slice

    def counted(scheduler: Scheduler) -> None:
        taken.append(time.monotonic())
        run_slice(scheduler)

    monkeypatch.setattr(Scheduler, "run_slice", counted)
    return taken


def noted_take_overs(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that are handed over to the worker pool from now on."""
    take_over = host._scheduler.workers.take_over
    handed_over: list[Any] = []

    def noted(call: Any) -> None:
        handed_over.append(call)
        take_over(call)

    monkeypatch.setattr(host._scheduler.workers, "take_over", noted)
    return handed_over


def talker(place: Path, count: int) -> None:
    """Says `count` things in one call."""
    guest = Guest()
    guest.handles(f"""(local.set $i (i32.const {count}))
      (loop $on {guest.say("t.said")} (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))""")
    capsule(place, "talker", guest, {"t.go": "act"}, ["t.said"])


async def test_publishing_while_there_is_work_wakes_the_loop_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were each slice to leave one more behind, a hundred would soon follow each other before anybody else runs."""
    taken = counted_slices(monkeypatch)
    guest = Guest()
    capsule(tmp_path, "busy", guest.handles(compute(200_000)), {"b.ask": "act"})
    async with hosted(tmp_path) as host:
        most = 0
        host._scheduler._in_slice = True  # there is work for a second
        for n in range(2000):
            host.publish("b.ask", n, principal=f"p{n % 50}")
        host._scheduler._in_slice = False
        for n in range(100):
            host.publish("b.ask", n, principal=f"p{n % 50}")
            before = len(taken)
            await trio.lowlevel.checkpoint()
            most = max(most, len(taken) - before)
        assert most <= 2


async def test_a_guest_that_talks_all_the_time_shares_the_loop_and_does_not_go_to_the_worker_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "astrid_host")
    talker(tmp_path, 5000)
    good(tmp_path)
    async with hosted(tmp_path) as host:
        handed_over = noted_take_overs(host, monkeypatch)
        async with host.subscribe("good.said") as said, host.subscribe("t.said", principal="x") as talk:
            kept = talk._source
            assert isinstance(kept, Subscription)
            host.publish("t.go", {}, principal="x")
            assert kept.waiting < 500, "it is in the middle of what it has to say"
            host.publish("good.ask", 1)
            await next_of(said)
            assert kept.waiting < 2000
            for _ in range(5000):
                await next_of(talk)
        assert len(handed_over) <= 3, "of some 150 stretches; on a busy machine one may seem long"


async def test_a_guest_that_only_computes_goes_to_the_worker_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = Guest()
    capsule(tmp_path, "busy", guest.handles(compute(60_000_000) + guest.say("b.said")), {"b.ask": "act"}, ["b.said"])
    async with hosted(tmp_path) as host, host.subscribe("b.said") as said:
        handed_over = noted_take_overs(host, monkeypatch)
        host.publish("b.ask", {})
        await next_of(said)
        assert len(handed_over) == 1
