"""Whoever asks is told when the last handler of an event has ended, and how many ended in which way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import FAILED, Guest, capsule, good, hosted, next_of

from astrid_host import Host

SETTLED = "astrid.v1.dispatch.settled."


def handler(place: Path, name: str, body: str = "", row: dict[str, Any] | None = None, **more: Any) -> None:
    """A capsule that says `said.<name>` for `a.ask`, and then does `body`."""
    guest = Guest()
    guest.handles(guest.say(f"said.{name}") + body)
    capsule(place, name, guest, {"a.ask": {"handler": "act", **(row or {})}}, ["said.*"], **more)


def answering(place: Path, name: str, word: str, row: dict[str, Any] | None = None) -> None:
    guest = Guest()
    guest.handles(guest.answer(word))
    capsule(place, name, guest, {"a.ask": {"handler": "act", **(row or {})}})


async def settled(host: Host, topic: str = "a.ask", **more: Any) -> dict[str, Any]:
    async with host.subscribe(SETTLED + topic) as events:
        seq = host.publish(topic, {}, settle=True, **more)
        told: dict[str, Any] = (await next_of(events)).payload
    assert (told["topic"], told["seq"]) == (topic, seq)
    assert told["handlers"] == told["done"] + told["failed"] + told["skipped"]
    return told


def counts(told: dict[str, Any]) -> tuple[int, int, int, int]:
    return told["handlers"], told["done"], told["failed"], told["skipped"]


async def test_a_fan_out_tells_how_many_ended_well_and_how_many_failed(tmp_path: Path) -> None:
    handler(tmp_path, "one")
    handler(tmp_path, "two")
    handler(tmp_path, "three", "(unreachable)")
    async with hosted(tmp_path) as host:
        told = await settled(host, principal="alice")
        assert counts(told) == (3, 2, 1, 0)
        assert told["principal"] == "alice"


async def test_it_comes_after_everything_that_the_handlers_published_and_after_the_failure_report(
    tmp_path: Path,
) -> None:
    handler(tmp_path, "one")
    handler(tmp_path, "two", "(unreachable)")
    async with hosted(tmp_path) as host, host.subscribe("*.*", observe=True) as events:
        async with host.subscribe("said.*"):
            host.publish("a.ask", {}, settle=True)
            topics = [(await next_of(events)).topic for _ in range(5)]
    assert topics == ["a.ask", "said.one", "said.two", FAILED + "a.ask", SETTLED + "a.ask"]


@pytest.mark.parametrize("word", ["deny", "final", "continue"])
async def test_a_chain_is_one_handler_however_it_ends(word: str, tmp_path: Path) -> None:
    answering(tmp_path, "first", word, {"priority": 1})
    handler(tmp_path, "last", row={"priority": 2})
    async with hosted(tmp_path) as host:
        assert counts(await settled(host)) == ((1, 0, 1, 0) if word == "deny" else (1, 1, 0, 0))


async def test_an_event_that_nobody_handles_is_settled_at_once(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        assert counts(await settled(host, "nobody.there")) == (0, 0, 0, 0)


async def test_a_handler_without_room_is_skipped(tmp_path: Path) -> None:
    handler(tmp_path, "one")
    async with hosted(tmp_path) as host, host.subscribe(SETTLED + "a.ask") as events:
        with host._bus.lock:  # nothing is handled meanwhile: all but 64 find the queue full
            host._scheduler._in_slice = True
            for _ in range(70):
                host.publish("a.ask", {}, settle=True)
            host._scheduler._in_slice = False
        host.publish("good.ask", {})
        found = [counts((await next_of(events)).payload) for _ in range(70)]
    assert sorted(found) == [(1, 0, 0, 1)] * 6 + [(1, 1, 0, 0)] * 64


async def test_nobody_is_told_who_did_not_ask(tmp_path: Path) -> None:
    handler(tmp_path, "one")
    async with hosted(tmp_path) as host, host.subscribe(SETTLED + "*") as events:
        host.publish("a.ask", {})
        seq = host.publish("a.ask", {}, settle=True)
        assert (await next_of(events)).payload["seq"] == seq


async def test_a_row_of_the_manifest_asks_for_what_its_guest_publishes(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.say("b.asked") + guest.say("b.other"))
    publish: dict[str, dict[str, Any]] = {"b.asked": {"settle": True}, "b.other": {"wit": "opaque"}}
    capsule(tmp_path, "asks", guest, {"a.ask": "act"}, publish=publish)
    guest = Guest()
    guest.handles("")
    capsule(tmp_path, "hears", guest, {"b.*": "act"})
    async with hosted(tmp_path) as host, host.subscribe(SETTLED + "*") as events:
        for _ in range(2):
            host.publish("a.ask", {}, principal="bob")
            event = await next_of(events)
            assert (event.topic, event.principal) == (SETTLED + "b.asked", "bob")
            assert counts(event.payload) == (1, 1, 0, 0)


async def test_a_guest_can_handle_it(tmp_path: Path) -> None:
    handler(tmp_path, "one")
    guest = Guest()
    guest.handles(guest.say("told.so"))
    capsule(tmp_path, "told", guest, {SETTLED + "a.ask": "act"}, ["told.so"])
    async with hosted(tmp_path) as host, host.subscribe("told.so") as events:
        host.publish("a.ask", {}, settle=True)
        assert counts((await next_of(events)).payload) == (1, 1, 0, 0)
