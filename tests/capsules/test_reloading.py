"""A capsule is replaced while the host runs: calls in flight end on the old version, what waits goes to the new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import (
    FAILED,
    READY,
    RECV,
    RETURNED,
    SUBSCRIBE,
    Guest,
    capsule,
    good,
    good_still_answers,
    hosted,
    next_of,
)

from astrid_host import Host
from astrid_host.capsules import reloader
from astrid_host.errors import LoadError
from astrid_host.manifest import ManifestError

WAIT = f"(call $recv (local.get $j) (i64.const 60000) (i32.const {RETURNED + 96}))"


def version(place: Path, said: str, *, number: str = "1.0.0", waits: bool = False, **more: Any) -> None:
    """The capsule `x`: it says `<said>.began`, waits for `x.go` perhaps, and says `<said>.done` with what it was called with."""
    guest = Guest(SUBSCRIBE, RECV)
    wait = f"""(call $subscribe {guest.text("x.go")} (i32.const {RETURNED}))
      (local.set $j (i32.load (i32.const {RETURNED + 4})))
      {guest.say(f"{said}.began")} {WAIT}"""
    guest.handles(f"{wait if waits else ''} {guest.say(f'{said}.done')}")
    shutil.rmtree(place / "x", ignore_errors=True)
    rows: dict[str, Any] = {"x.ask": "act", "x.go": {}, **more.pop("subscribe", {})}
    publish = ["old.began", "old.done", "new.began", "new.done"]
    capsule(place, "x", guest, rows, publish, package={"version": number}, **more)


async def test_the_next_call_after_a_reload_is_handled_by_the_new_version(tmp_path: Path) -> None:
    version(tmp_path, "old")
    async with hosted(tmp_path) as host, host.subscribe("*.done") as done:
        host.publish("x.ask", 1)
        assert (await next_of(done)).topic == "old.done"
        before = host.capsules["x"].source_id
        version(tmp_path, "new", number="1.1.0")
        await host.reload("x")
        host.publish("x.ask", 2)
        assert (await next_of(done)).topic == "new.done"
        info = host.capsules["x"]
        assert (info.state, info.version, info.calls) == ("ready", "1.1.0", 2)
        assert info.source_id != before, "another module has another source"


async def test_a_call_in_flight_ends_on_the_old_version_and_what_waits_goes_to_the_new_one_in_order(
    tmp_path: Path,
) -> None:
    version(tmp_path, "old", waits=True)
    async with hosted(tmp_path) as host, host.subscribe("*.began") as began, host.subscribe("*.done") as done:
        for n in range(5):
            host.publish("x.ask", n)
        assert (await next_of(began)).payload == 0
        version(tmp_path, "new")
        await host.reload("x")
        host.publish("x.ask", 5)
        host.publish("x.go", {})
        seen = [await next_of(done) for _ in range(6)]
        assert [event.payload for event in seen] == list(range(6))
        assert [event.topic for event in seen] == ["old.done"] + ["new.done"] * 5
        assert host.stats().failures == {}


async def test_other_principals_are_served_by_the_new_version_while_a_call_of_the_old_one_waits(tmp_path: Path) -> None:
    version(tmp_path, "old", waits=True)
    async with hosted(tmp_path) as host, host.subscribe("*.began") as began, host.subscribe("*.done") as done:
        host.publish("x.ask", 0, principal="alice")
        await next_of(began)
        version(tmp_path, "new")
        await host.reload("x")
        host.publish("x.ask", 1, principal="bob")
        assert ((event := await next_of(done)).topic, event.principal) == ("new.done", "bob")
        host.publish("x.go", {}, principal="alice")
        assert ((event := await next_of(done)).topic, event.principal) == ("old.done", "alice")


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        (lambda folder: (folder / "x.wasm").write_bytes(b"\0asm nothing"), "x"),
        (lambda folder: (folder / "x.wasm").unlink(), "x.wasm"),
        (lambda folder: (folder / "Capsule.toml").write_text("[package\n"), "Capsule.toml"),
        (lambda folder: (folder / "Capsule.toml").unlink(), "Capsule.toml"),
        (lambda folder: (folder / "Capsule.toml").write_text('[package]\nname = "y"\nversion = "1.0.0"'), "'y'"),
    ],
    ids=["no module", "module is missing", "manifest cannot be parsed", "manifest is missing", "another name"],
)
async def test_a_version_that_does_not_load_leaves_the_old_one_running_and_says_why(
    breaks: Any, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version(tmp_path, "old")
    async with hosted(tmp_path) as host, host.subscribe("*.done") as done:
        breaks(tmp_path / "x")
        with pytest.raises((LoadError, ManifestError), match=why):
            await host.reload("x")
        assert "1.0.0 goes on" in caplog.text
        host.publish("x.ask", 1)
        assert (await next_of(done)).topic == "old.done"
        assert (host.capsules["x"].state, host.capsules["x"].error) == ("ready", None)


async def test_a_capsule_that_failed_to_load_can_be_mended_and_reloaded(tmp_path: Path) -> None:
    version(tmp_path, "old")
    (tmp_path / "x" / "x.wasm").write_bytes(b"")
    async with hosted(tmp_path) as host, host.subscribe("*.done") as done:
        assert host.capsules["x"].state == "failed"
        version(tmp_path, "new")
        await host.reload("x")
        host.publish("x.ask", 1)
        assert (await next_of(done)).topic == "new.done"


async def test_what_waits_for_a_row_that_is_no_more_is_reported(tmp_path: Path) -> None:
    version(tmp_path, "old", waits=True, subscribe={"x.more": "act"})
    async with (
        hosted(tmp_path) as host,
        host.subscribe("old.began") as began,
        host.subscribe("*.done") as done,
        host.subscribe(FAILED + "*") as failed,
    ):
        for topic in ("x.ask", "x.more", "x.ask"):
            host.publish(topic, topic)
        await next_of(began)
        version(tmp_path, "new")
        await host.reload("x")
        report = (await next_of(failed)).payload
        assert (report["topic"], report["reason"]) == ("x.more", "cancelled")
        host.publish("x.go", {})
        assert [(await next_of(done)).topic for _ in range(2)] == ["old.done", "new.done"]
        host.publish("x.more", 1)
        assert (await next_of(failed)).payload["reason"] == "no-handler"


async def test_a_member_of_a_chain_is_replaced_while_the_event_is_with_another_member(tmp_path: Path) -> None:
    version(tmp_path, "old")
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(f"""(call $subscribe {guest.text("first.go")} (i32.const {RETURNED}))
      (local.set $j (i32.load (i32.const {RETURNED + 4})))
      {guest.say("first.began")} {WAIT}""")
    row = {"handler": "act", "priority": 10}
    capsule(tmp_path, "first", guest, {"x.ask": row, "first.go": {}}, ["first.began"])
    async with hosted(tmp_path) as host, host.subscribe("first.began") as began, host.subscribe("*.done") as done:
        host.publish("x.ask", 7)
        await next_of(began)
        version(tmp_path, "new")
        await host.reload("x")
        host.publish("first.go", {})
        assert ((event := await next_of(done)).topic, event.payload) == ("new.done", 7)


async def test_what_an_unloaded_capsule_was_to_handle_is_reported_and_its_tools_are_gone(tmp_path: Path) -> None:
    version(tmp_path, "old", waits=True)
    good(tmp_path)
    async with (
        hosted(tmp_path) as host,
        host.subscribe("old.began") as began,
        host.subscribe("old.done") as done,
        host.subscribe(FAILED + "x.ask") as failed,
    ):
        host.publish("x.ask", 0)
        host.publish("x.ask", 1)
        await next_of(began)
        await host.unload("x")
        assert (await next_of(failed)).payload["reason"] == "cancelled"
        host.publish("x.go", {})
        assert (await next_of(done)).payload == 0, "what was in flight ended"
        assert host.capsules["x"].state == "unloaded"
        host.publish("x.ask", 2)
        assert (await next_of(failed)).payload["reason"] == "no-handler"
        await good_still_answers(host)
        with pytest.raises(LoadError, match="unloaded"):
            await host.unload("x")
        version(tmp_path, "new")
        await host.reload("x")
        async with host.subscribe("new.done") as again:
            host.publish("x.ask", 3)
            assert (await next_of(again)).payload == 3


async def test_a_capsule_may_end_what_it_has_begun_before_it_is_unloaded(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.when("unloading", guest.say("x.farewell")))
    capsule(tmp_path, "x", guest, {"astrid.v1.capsule.unloading": "unloading", "x.ask": "act"}, ["x.farewell"])
    async with hosted(tmp_path) as host, host.subscribe("x.farewell") as farewells:
        host.publish("x.ask", 1, principal="alice")
        await host.unload("x")
        told = [await next_of(farewells) for _ in range(2)]
        assert {event.principal for event in told} == {"default", "alice"}
        assert [event.payload for event in told] == [{"capsule_id": "x"}] * 2
        assert host.stats().failures == {}


async def test_a_farewell_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloader, "FAREWELL_S", 0.05)
    version(tmp_path, "old", waits=True, subscribe={"astrid.v1.capsule.unloading": "act"})
    async with hosted(tmp_path) as host, host.subscribe("old.done") as done:
        await host.unload("x")
        assert "was not handled within" in caplog.text
        host.publish("x.go", {})
        assert (await next_of(done)).payload == {"capsule_id": "x"}


async def test_an_unknown_capsule_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        for change in (host.reload, host.unload):
            with pytest.raises(LoadError, match="no capsule 'nope'; there are: good"):
                await change("nope")


def loop(place: Path, said: str) -> None:
    guest = Guest(SUBSCRIBE, RECV, READY)
    guest.add(
        f"""(func (export "run") (local $j i32)
          (call $subscribe {guest.text("l.ask")} (i32.const {RETURNED}))
          (local.set $j (i32.load (i32.const {RETURNED + 4})))
          (call $ready)
          (loop $again
            (call $recv (local.get $j) (i64.const 60000) (i32.const 1200))
            (if (i32.load (i32.const 1212)) (then {guest.say(said, "1")}))
            (br $again)))"""
    )
    shutil.rmtree(place / "loop", ignore_errors=True)
    capsule(place, "loop", guest, {"l.ask": {}}, ["said.*"])


async def test_a_run_loop_is_stopped_before_its_next_version_starts(tmp_path: Path) -> None:
    loop(tmp_path, "said.old")
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        host.publish("l.ask", 1)
        assert (await next_of(said)).topic == "said.old"
        loop(tmp_path, "said.new")
        await host.reload("loop")
        host.publish("l.ask", 2)
        assert (await next_of(said)).topic == "said.new"
        await host.unload("loop")
        async with host.subscribe(FAILED + "l.ask") as failed:
            host.publish("l.ask", 3)
            assert (await next_of(failed)).payload["reason"] == "no-handler"


async def test_a_row_that_stepped_aside_is_active_once_the_one_that_kept_the_topic_is_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        guest = Guest()
        guest.handles(guest.say(f"said.{name}"))
        capsule(tmp_path, name, guest, {"tool.v1.execute.same": "act"}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        assert host.capsules["b"].inactive == ["tool.v1.execute.same"]
        await host.unload("a")
        assert (host.capsules["b"].inactive, host.capsules["b"].tools) == ([], ["same"])
        host.publish("tool.v1.execute.same", {})
        assert (await next_of(said)).topic == "said.b"
        await host.reload("a")
        assert host.capsules["a"].inactive == ["tool.v1.execute.same"], "who has it keeps it"


async def test_a_capsule_is_told_that_it_took_over_when_it_wants_to_know(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.when("handle_lifecycle_restart", guest.say("x.restarted", "1")))
    capsule(tmp_path, "x", guest, {"system.v1.lifecycle.restart": "handle_lifecycle_restart"}, ["x.restarted"])
    async with hosted(tmp_path) as host, host.subscribe("x.restarted") as told:
        await host.reload("x")
        assert (await next_of(told)).payload == 1


async def test_thousands_of_calls_around_ten_reloads_are_all_answered_in_order(tmp_path: Path) -> None:
    version(tmp_path, "old")
    seen: dict[str, list[Any]] = {who: [] for who in ("a", "b", "c", "d")}

    async def publishing(host: Host, who: str) -> None:
        for n in range(500):
            host.publish("x.ask", n, principal=who)
            while n - len(seen[who]) > 32:  # 64 have room
                await trio.lowlevel.checkpoint()

    async def reading(done: Any) -> None:
        while sum(map(len, seen.values())) < 2000:
            event = await next_of(done)
            assert event.principal is not None
            seen[event.principal].append(event.payload)

    async with hosted(tmp_path) as host, host.subscribe("*.done") as done:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading, done)
            for who in seen:
                nursery.start_soon(publishing, host, who)
            for _ in range(10):
                await host.reload("x")
        assert seen == {who: list(range(500)) for who in seen}
        assert host.stats().failures == {}
