"""Several subscriptions read as one: everything once, in the order of its numbers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from astrid_host import Host, open_host
from astrid_host.control.merging import Merged, merged
from astrid_host.errors import HostClosed


async def taken(events: Merged, count: int) -> list[tuple[str, int]]:
    with trio.fail_after(5):
        return [(event.topic, event.payload) for _ in range(count) if (event := await anext(events))]


async def test_events_of_several_patterns_come_in_the_order_of_their_numbers() -> None:
    async with open_host([], state_dir=":memory:") as host:
        async with merged(host, ["a.*", "b.x"], ["c.*"], "alice") as events:
            topics = ["c.x", "b.x", "a.y", "b.x", "a.x", "b.y", "c.y"] * 40
            for number, topic in enumerate(topics):
                host.publish(topic, number, principal="alice")
                host.publish(topic, number, principal="bob")
            expected = [(topic, number) for number, topic in enumerate(topics) if topic != "b.y"]
            assert await taken(events, len(expected)) == expected


async def test_a_reader_that_waits_is_woken_by_any_of_them() -> None:
    async with open_host([], state_dir=":memory:") as host, merged(host, ["a.*", "b.*"], ["c.*"], None) as events:
        for topic in ("b.x", "a.x", "c.x", "c.x", "a.x"):
            async with trio.open_nursery() as nursery:

                async def read(topic: str = topic) -> None:
                    assert await taken(events, 1) == [(topic, 1)]

                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                host.publish(topic, 1)


async def test_a_cancelled_wait_loses_nothing_and_leaves_nothing() -> None:
    async with open_host([], state_dir=":memory:") as host, merged(host, ["a.*", "b.*"], [], None) as events:
        for number in range(5):
            with trio.move_on_after(0.01):
                await anext(events)
            host.publish("b.x", number)
            assert await taken(events, 1) == [("b.x", number)]
        assert not any(source._waiting for source, _ in events._sources)


@pytest.mark.parametrize("waits", [True, False])
async def test_it_ends_when_the_host_stops(waits: bool) -> None:
    async def read(events: Merged) -> None:
        with pytest.raises(HostClosed):
            await taken(events, 1)

    async with trio.open_nursery() as nursery:
        async with open_host([], state_dir=":memory:") as host:
            left = merged(host, ["a.*", "b.*"], [], None)
            events = await left.__aenter__()
            if waits:
                nursery.start_soon(read, events)
                await trio.testing.wait_all_tasks_blocked()
        if not waits:
            await read(events)
    await left.__aexit__(None, None, None)


async def test_without_patterns_nothing_comes() -> None:
    async with open_host([], state_dir=":memory:") as host, merged(host, [], [], None) as events:
        host.publish("a.x", 1)
        with trio.move_on_after(0.05) as waited:
            await anext(events)
        assert waited.cancelled_caught


async def no_pattern(host: Host, pattern: str) -> None:
    async with merged(host, [pattern], [], None):
        pass


async def test_a_pattern_that_can_match_nothing_is_refused() -> None:
    async with open_host([], state_dir=":memory:") as host:
        with pytest.raises(ValueError, match="segment"):
            await no_pattern(host, "a..b")
