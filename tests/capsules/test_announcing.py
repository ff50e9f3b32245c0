"""The kernel tells which capsules are loaded, that time passes, and that events were lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import FAILED, Guest, capsule, good, good_still_answers, hosted, next_of

from astrid_host import BUNDLED, announcer, open_host

LOADED, TICK, LAGGED = "astrid.v1.capsules_loaded", "astrid.v1.watchdog.tick", "astrid.v1.event_bus.lagged"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "TICK_S", 0.02)
    monkeypatch.setattr(announcer, "LOOK_S", 0.02)


def listener(place: Path, topic: str) -> None:
    """Says again what the kernel told."""
    guest = Guest()
    guest.handles(guest.say("heard.it"))
    capsule(place, "listener", guest, {topic: "act"}, ["heard.it"])


async def test_the_loaded_capsules_are_told_with_their_tools(tmp_path: Path) -> None:
    listener(tmp_path, LOADED)
    places = [Path(BUNDLED) / name for name in ("word-tools", "router", "kv-notes")]
    async with (
        open_host([*places, tmp_path], trust=True, state_dir=":memory:", principal="owner") as host,
        host.subscribe("heard.it") as heard,
    ):
        event = await next_of(heard)
        assert (event.principal, event.payload["status"]) == ("owner", "ready")
        capsules = {entry["name"]: entry for entry in event.payload["capsules"]}
        assert list(capsules) == ["kv-notes", "listener", "router", "word-tools"]
        assert {entry["principal"] for entry in capsules.values()} == {"owner"}
        tools = {name: [tool["name"] for tool in entry["meta"]["tools"]] for name, entry in capsules.items()}
        assert tools["router"] == tools["listener"] == [], "the key is there for all of them"
        assert "word_count" in tools["word-tools"]
        described = {tool.name: tool for tool in await host.tools.describe()}
        for entry in capsules.values():
            for tool in entry["meta"]["tools"]:
                assert (tool["input_schema"].get("mutable") is True) == described[tool["name"]].mutable
        assert capsules["word-tools"]["meta"]["version"] == host.capsules["word-tools"].version


async def test_a_changed_set_of_capsules_is_told_to_everybody_who_was_seen(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(LOADED) as loaded, host.subscribe("good.said") as said:
        assert (await next_of(loaded)).principal == "default"
        host.publish("good.ask", {}, principal="alice")
        await next_of(said)
        await host.reload("good")
        assert {(await next_of(loaded)).principal for _ in range(2)} == {"default", "alice"}
        await host.unload("good")
        assert (await next_of(loaded)).payload["capsules"] == []


async def test_nothing_is_told_that_nobody_receives(tmp_path: Path, quick: None) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*", observe=True):
        for _ in range(5):
            await good_still_answers(host)
        assert host.stats().failures == {}


async def test_time_passes_for_the_owner_and_for_those_who_were_seen(tmp_path: Path, quick: None) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(TICK) as ticks, host.subscribe("good.said") as said:
        assert ((event := await next_of(ticks)).principal, event.payload) == ("default", {})
        host.publish("good.ask", {}, principal="alice")
        await next_of(said)
        while (await next_of(ticks)).principal != "alice":
            pass


async def test_handling_ticks_does_not_count_as_being_seen(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a principal that was seen once would be ticked for ever."""
    guest = Guest()
    guest.handles("")
    capsule(tmp_path, "x", guest, {TICK: "act", "x.ask": "act"})
    monkeypatch.setattr(announcer, "SEEN_S", 0.5)
    async with hosted(tmp_path) as host, host.subscribe(TICK) as ticks:
        host.publish("x.ask", {}, principal="alice")
        while (await next_of(ticks)).principal != "alice":
            pass
        quiet = 0
        while quiet < 5:  # ticks of the owner, who is still told of, in a row
            quiet = 0 if (await next_of(ticks)).principal == "alice" else quiet + 1
            host.publish("x.ask", {})


async def test_lost_events_are_told_with_how_many(tmp_path: Path, quick: None) -> None:
    good(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe(LAGGED) as lagged,
        host.subscribe("big.*") as _slow,
        host.subscribe("many.*", observe=True),
    ):
        for _ in range(12):
            host.publish("big.event", "x" * 100_000)
        assert (await next_of(lagged)).payload == {"lagged_count": 2}
        for _ in range(1030):
            host.publish("many.events", 1)
        lost = 0
        while lost < 6:
            lost += (await next_of(lagged)).payload["lagged_count"]


def describing(place: Path, name: str, depth: int) -> None:
    """A capsule that describes a tool of its name by a schema that nests so deep."""
    schema = '{"a":' * depth + "1" + "}" * depth
    guest = Guest()
    told = f'{{"tools":[{{"name":"{name}","description":"","input_schema":{schema}}}]}}'
    guest.handles(guest.when("describe", guest.say("tool.v1.response.describe.self", told)))
    rows = {f"tool.v1.execute.{name}": "execute", "tool.v1.request.describe": "describe"}
    capsule(place, name, guest, rows, ["tool.v1.response.describe.self"])


@pytest.mark.parametrize("depth", [100, 101, 119, 120, 121, 122, 123, 124])
async def test_a_schema_that_nests_deep_takes_nothing_from_other_capsules(
    depth: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    describing(tmp_path, "deep", depth)
    describing(tmp_path, "flat", 3)
    async with hosted(tmp_path) as host, host.subscribe(LOADED) as loaded:
        told = {entry["name"]: entry["meta"] for entry in (await next_of(loaded)).payload["capsules"]}
        assert [tool["name"] for tool in told["flat"]["tools"]] == ["flat"]
        assert [tool["name"] for tool in told["deep"]["tools"]] == (["deep"] if depth == 100 else [])
        assert [tool.name for tool in await host.tools.describe()] == (["deep", "flat"] if depth == 100 else ["flat"])
        assert ("the tool is left out" in caplog.text) == (depth > 100)


async def test_a_capsule_whose_meta_cannot_be_told_is_named_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("astrid_host.tools.describing.SCHEMA_DEPTH", 1000)
    describing(tmp_path, "deep", 122)
    describing(tmp_path, "flat", 3)
    async with hosted(tmp_path) as host, host.subscribe(LOADED) as loaded:
        told = {entry["name"]: entry["meta"] for entry in (await next_of(loaded)).payload["capsules"]}
        assert told["deep"] == {}
        assert told["flat"]["tools"]
        assert "deep: what is told of it has no `meta`" in caplog.text


@pytest.mark.parametrize("what", ["_tell_loaded", "_tick_all", "_tell_losses"])
async def test_a_fault_while_something_is_told_is_logged_and_the_host_goes_on(
    what: str, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(announcer.Announcer, what, fails)
    good(tmp_path)
    async with hosted(tmp_path) as host:
        with trio.fail_after(5):
            while "it broke" not in caplog.text:
                await trio.testing.wait_all_tasks_blocked(0.001)
        await host.reload("good")
        await good_still_answers(host)
    assert "a fault of the host" in caplog.text


async def test_a_tick_makes_no_instance_where_there_was_nothing_to_look_after(tmp_path: Path, quick: None) -> None:
    guest = Guest()
    guest.handles(guest.when("act", guest.say("x.ticked", "1")))
    capsule(tmp_path, "x", guest, {TICK: "act", "x.ask": "none"}, ["x.ticked"])
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("x.ticked") as ticked, host.subscribe("good.said") as said:
        host.publish("good.ask", {}, principal="alice")
        await next_of(said)
        host.publish("x.ask", {}, principal="bob")
        heard = {(await next_of(ticked)).principal for _ in range(20)}
        assert heard == {"default", "bob"}, "the capsule has nothing of alice"


async def test_ticks_are_spread_over_the_time_between_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "TICK_S", 1.0)
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("good.said") as said, host.subscribe(TICK) as ticks:
        for n in range(40):
            host.publish("good.ask", {}, principal=f"p{n}")
            await next_of(said)
        at: dict[str | None, float] = {}
        while len(at) < 41:
            event = await next_of(ticks)
            at[event.principal] = trio.current_time()
        times = sorted(at.values())
        assert times[-1] - times[0] > 0.6
        assert max(sum(first <= time < first + 0.1 for time in times) for first in times) < 20, "no burst"
