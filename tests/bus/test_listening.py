"""What the embedding program receives: routed subscriptions, and broadcast receivers that only watch."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from guests_in_wat import good, good_still_answers, hosted, next_of

from astrid_host import AstridError, HostSubscription, open_host
from astrid_host.errors import HostClosed


async def test_a_subscription_that_is_not_read_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    good(tmp_path)
    text = "x" * 100_000
    async with hosted(tmp_path) as host, host.subscribe("a.b") as events:
        for n in range(30):
            host.publish("a.b", [n, text])
        assert events.dropped == 20
        assert events.lagged == 0
        assert [(await next_of(events)).payload[0] for _ in range(10)] == list(range(20, 30))
        assert host.stats().dropped == {"a.b": 20}


async def test_an_observer_that_is_not_read_lags_behind_the_ring_and_counts_what_it_missed(tmp_path: Path) -> None:
    good(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe("a.*", observe=True, name="slow") as slow,
        host.subscribe("b.c", observe=True) as other,
    ):
        for n in range(2000):
            host.publish("a.b", n)
        for n in range(24):
            host.publish("b.c", n)
        assert (slow.lagged, slow.dropped, other.lagged) == (1000, 0, 0)
        assert [(await next_of(slow)).payload for _ in range(1000)] == list(range(1000, 2000))
        assert [(await next_of(other)).payload for _ in range(24)] == list(range(24))
        assert host.stats().lagged == {"slow": 1000}


async def test_principals_take_turns_however_much_one_has_waiting(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("a.b") as events:
        for n in range(200):
            host.publish("a.b", n, principal="loud")
        for n in range(3):
            host.publish("a.b", n, principal="quiet")
        heard = [await next_of(events) for _ in range(203)]
    assert [event.payload for event in heard if event.principal == "loud"] == list(range(200))
    places = [at for at, event in enumerate(heard) if event.principal == "quiet"]
    assert places[0] <= 256 // len("a.b0") + 1, "the loud one had its share of one round before"
    assert places == [places[0], places[0] + 2, places[0] + 4]


async def test_whoever_waits_when_the_host_closes_is_told(tmp_path: Path) -> None:
    good(tmp_path)
    told: list[type[Exception]] = []

    async def listen(events: HostSubscription) -> None:
        try:
            async for _ in events:
                pass
        except HostClosed as error:
            told.append(type(error))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            async with hosted(tmp_path) as host:
                routed, watching = host.subscribe("a.b"), host.subscribe("a.b", observe=True)
                await routed.__aenter__()
                await watching.__aenter__()
                nursery.start_soon(listen, routed)
                nursery.start_soon(listen, watching)
                await trio.testing.wait_all_tasks_blocked()
    assert told == [HostClosed, HostClosed]
    with pytest.raises(HostClosed):
        await anext(routed)
    with pytest.raises(HostClosed, match="open_host"):
        await host.tools.execute("word_count", {})


async def test_several_tasks_may_share_a_subscription(tmp_path: Path) -> None:
    good(tmp_path)
    heard: list[object] = []

    async def one(events: HostSubscription) -> None:
        heard.append((await next_of(events)).payload)

    async with hosted(tmp_path) as host, host.subscribe("a.b") as events:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one, events)
            await trio.testing.wait_all_tasks_blocked()
            for n in range(5):
                host.publish("a.b", n)
    assert sorted(map(str, heard)) == list("01234")


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", ".".join(["a"] * 21)])
async def test_a_pattern_that_no_topic_can_match_is_refused(pattern: str, tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        with pytest.raises(ValueError, match="pattern"):
            host.subscribe(pattern)
        await good_still_answers(host)


async def test_fewer_than_one_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="given 0"):
        async with hosted(tmp_path, workers=0):
            raise AssertionError("it started")
    assert issubclass(HostClosed, AstridError)


async def test_counts_are_kept_by_capsule_and_by_principal(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("good.said") as said:
        for n in range(6):
            host.publish("good.ask", n, principal="alice" if n % 3 else "bob")
            await next_of(said)
        stats = host.stats()
    assert stats.events == 12
    assert (stats.capsules["good"].calls, stats.capsules["good"].events, stats.capsules["good"].bytes) == (6, 6, 6)
    assert (stats.principals["alice"].calls, stats.principals["bob"].calls) == (4, 2)
    assert stats.principals["bob"].cpu_seconds > 0
    assert stats.capsules["good"].peak_memory_bytes == 4 << 16
    assert (stats.queues, stats.queued, stats.instances, stats.waiting) == (2, 0, 2, 0)


async def test_a_host_whose_workspace_is_its_state_folder_keeps_its_files_out_of_sight(tmp_path: Path) -> None:
    good(tmp_path / "capsules")
    async with open_host([tmp_path / "capsules"], trust=True, state_dir=tmp_path, workspace=tmp_path) as host:
        await good_still_answers(host)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".astrid-host", "capsules"]
