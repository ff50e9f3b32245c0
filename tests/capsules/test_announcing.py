"""The kernel tells which capsules are loaded, that time passes, and that events were lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from guests_in_wat import FAILED, Guest, capsule, good, good_still_answers, hosted, next_of

from astrid_host import BUNDLED, announcing, open_host

LOADED, TICK, LAGGED = "astrid.v1.capsules_loaded", "astrid.v1.watchdog.tick", "astrid.v1.event_bus.lagged"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "TICK_S", 0.02)
    monkeypatch.setattr(announcing, "LOOK_S", 0.02)


def listener(place: Path, topic: str) -> None:
    """Says again what the kernel told."""
    guest = Guest()
    guest.handles(guest.say("heard.it"))
    capsule(place, "listener", guest, {topic: "act"}, ["heard.it"])


async def test_the_loaded_capsules_are_told_with_their_tools(tmp_path: Path) -> None:
    listener(tmp_path, LOADED)
    places = [Path(BUNDLED) / name for name in ("word-tools", "router", "kv-notes")]
    async with (
        open_host([*places, tmp_path], state_dir=":memory:", principal="owner") as host,
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
    monkeypatch.setattr(announcing, "SEEN_S", 0.5)
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
