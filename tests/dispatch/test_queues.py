"""Queues are one for each capsule and principal, up to 10,000; then the rest share one. They leave when not used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from guests_in_wat import Guest, capsule, hosted, next_of

from astrid_host.dispatch import queues


def echo(place: Path) -> None:
    guest = Guest()
    guest.handles(guest.say("said.it"))
    capsule(place, "echo", guest, {"a.ask": "act"}, ["said.it"])


async def test_beyond_the_most_queues_principals_share_one_each_still_on_its_own_behalf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queues, "QUEUES", 3)
    caplog.set_level(logging.WARNING, "astrid_host")
    echo(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.it") as said:
        host._scheduler._in_slice = True  # all are queued before the first is handled
        for n in range(40):
            host.publish("a.ask", n, principal=f"p{n % 8}")
        held = host._registry.capsules["echo"].queues
        assert len(held) == 4
        assert [len(queue.works) for queue in held] == [5, 5, 5, 25]
        host._scheduler._in_slice = False
        host._scheduler.run_or_wake()
        heard = [await next_of(said) for _ in range(40)]
    by_principal = {f"p{k}": [event.payload for event in heard if event.principal == f"p{k}"] for k in range(8)}
    assert by_principal == {f"p{k}": list(range(k, 40, 8)) for k in range(8)}
    assert sum("share one" in record.message for record in caplog.records) == 1


async def test_a_principal_that_shares_gets_a_queue_of_its_own_once_that_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier, its events could overtake those that wait in the shared one."""
    monkeypatch.setattr(queues, "QUEUES", 1)
    echo(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.it") as said:
        held = host._registry.capsules["echo"].queues
        for n in range(3):
            host.publish("a.ask", n, principal=f"p{n}")
            await next_of(said)
        shared = held.find("p1")
        assert shared is held.find("p2")
        assert shared is not held.find("p0")
        for _ in range(queues.SWEEPS_IDLE + 1):
            held.sweep(list(held.by_principal))
            held.sweep_shared()
        assert len(held) == 0
        host.publish("a.ask", 1, principal="p1")
        await next_of(said)
        assert held.find("p1") is not shared


async def test_a_queue_leaves_after_a_minute_without_use_and_not_before(tmp_path: Path) -> None:
    echo(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.it") as said:
        held = host._registry.capsules["echo"].queues
        for round_ in range(3):
            host.publish("a.ask", round_)
            await next_of(said)
            for _ in range(queues.SWEEPS_IDLE):
                held.sweep(list(held.by_principal))
            assert len(held) == 1
        held.sweep(list(held.by_principal))
        assert len(held) == 0


async def test_sixty_four_enter_and_the_rest_is_dropped_and_reported(tmp_path: Path) -> None:
    echo(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe("said.it") as said,
        host.subscribe("astrid.v1.dispatch.failed.*") as failed,
    ):
        host._scheduler._in_slice = True
        for n in range(100):
            host.publish("a.ask", n)
        host._scheduler._in_slice = False
        host._scheduler.run_or_wake()
        assert [(await next_of(said)).payload for _ in range(64)] == list(range(64))
        reports = [(await next_of(failed)).payload for _ in range(36)]
        assert [report["payload"] for report in reports] == list(range(64, 100))
        assert {report["reason"] for report in reports} == {"queue-full"}
        assert "64 events of default wait" in reports[0]["detail"]
        assert host.stats().failures == {"queue-full": 36}
