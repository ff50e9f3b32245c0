"""A version that does not begin well is refused and the old one goes on; what waits for ever is ended; nothing is left behind."""

from __future__ import annotations

import gc
import os
import shutil
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import (
    FAILED,
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
    spin,
)

from astrid_host import open_host
from astrid_host.capsules import Capsule, making, reloader, runloops
from astrid_host.errors import LoadError

FOR_EVER = f"(loop $for_ever {receive()} (br $for_ever))"


def rewrite(folder: Path, guest: Guest) -> None:
    (folder / f"{folder.name}.wasm").write_bytes(guest.wasm())


def raise_version(folder: Path, version: str) -> None:
    manifest = folder / "Capsule.toml"
    manifest.write_text(manifest.read_text().replace('version = "1.0.0"', f'version = "{version}"'))


def echoing(*more: str) -> Guest:
    guest = Guest()
    return guest.handles(guest.say("good.said")).add(*more)


def looping(body: str = "") -> Guest:
    """A run loop. It waits for short times: a wait keeps its call until its time is up."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    serving = f"(loop $again {receive(50)} (if {RECEIVED} (then {guest.say('l.said', '1')})) (br $again))"
    guest.add(
        f"""(func (export "run") (local $j i32)
          {guest.subscribe("l.ask")} (call $ready) {body} {serving})"""
    )
    return guest


# What does not begin.


@pytest.mark.parametrize("start", ["(unreachable)", spin()], ids=["traps", "spins"])
@pytest.mark.parametrize(
    "export", ["(start $begins)", '(export "_initialize" (func $begins))'], ids=["start", "initialize"]
)
async def test_a_version_of_which_no_instance_can_be_made_is_refused(
    start: str, export: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "MAKING_S", 0.2)
    folder = good(tmp_path)
    async with hosted(tmp_path) as host:
        rewrite(folder, echoing(f"(func $begins {start})", export))
        with pytest.raises(LoadError, match="no instance of it can be made"):
            await host.reload("good")
        assert host.capsules["good"].state == "ready"
        await good_still_answers(host)


@pytest.mark.parametrize("body", ["(unreachable)", "(call $ready) (unreachable)"])
async def test_a_run_loop_that_fails_at_once_gives_way_to_the_old_one(body: str, tmp_path: Path) -> None:
    folder = capsule(tmp_path, "loop", looping(), {"l.ask": {}}, ["l.said"])
    async with hosted(tmp_path) as host, host.subscribe("l.said") as said:
        source = host.capsules["loop"].source_id
        rewrite(folder, looping(body))
        with pytest.raises(LoadError, match="unreachable"):
            await host.reload("loop")
        info = host.capsules["loop"]
        assert (info.state, info.error, info.source_id) == ("ready", None, source)
        host.publish("l.ask", 1)
        await next_of(said)


async def test_a_run_loop_that_never_calls_the_host_gives_way_to_handlers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runloops, "STUB_S", 0.1)
    folder = good(tmp_path)
    async with hosted(tmp_path) as host:
        spinning = echoing()
        spinning.add(f'(func (export "run") {spin()})')
        rewrite(folder, spinning)
        with pytest.raises(LoadError, match="did not call the host within"):
            await host.reload("good")
        assert host.capsules["good"].state == "ready"
        await good_still_answers(host)


async def test_a_failed_one_whose_next_version_fails_at_once_says_so_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runloops, "FIRST_PAUSE_S", 0.001)
    caplog.set_level("INFO")
    folder = capsule(tmp_path, "loop", looping(), {"l.ask": {}}, ["l.said"])
    (folder / "loop.wasm").write_bytes(b"")
    async with hosted(tmp_path) as host:
        assert host.capsules["loop"].state == "failed"
        rewrite(folder, looping("(unreachable)"))
        with pytest.raises(LoadError, match="unreachable"):
            await host.reload("loop")
        with trio.fail_after(5):
            while "stays down" not in caplog.text:
                await trio.testing.wait_all_tasks_blocked(0.001)
        rewrite(folder, looping())
        await host.reload("loop")
        async with host.subscribe("l.said") as said:
            host.publish("l.ask", 1)
            await next_of(said)


# What waits for ever.


async def test_an_install_hook_that_waits_for_ever_ends_and_the_others_load(tmp_path: Path) -> None:
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles("").add(f'(func (export "astrid-install") (local $j i32) {guest.subscribe("x.go")} {FOR_EVER})')
    capsule(tmp_path / "capsules", "x", guest, {"x.ask": "act", "x.go": {}})
    good(tmp_path / "capsules")
    async with open_host(
        [tmp_path / "capsules"],
        trust=True,
        state_dir=tmp_path / "state",
        workspace=tmp_path / "capsules",
        limits={"hook_secs": 0.1},
    ) as host:
        assert host.capsules["x"].state == "failed"
        assert "astrid-install was not over within 0.1 s" in str(host.capsules["x"].error)
        await good_still_answers(host)


async def test_a_capsule_that_waits_for_ever_when_it_took_over_holds_up_no_other_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guest = Guest(SUBSCRIBE, RECV)
    waits = guest.say("x.began", "1") + guest.subscribe("x.go") + FOR_EVER
    guest.handles(guest.when("handle_lifecycle_restart", waits))
    rows: dict[str, Any] = {"system.v1.lifecycle.restart": "handle_lifecycle_restart", "x.go": {}}
    capsule(tmp_path, "x", guest, rows, ["x.began"])
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("x.began") as began, trio.open_nursery() as nursery:
        nursery.start_soon(host.reload, "x")
        await next_of(began)
        with trio.fail_after(3):
            await host.reload("good")
            await host.unload("x")
        nursery.cancel_scope.cancel()
    monkeypatch.setattr(reloader, "RESTARTED_S", 0.1)
    async with hosted(tmp_path) as host:
        await host.reload("x")
        assert "was not over within 0.1 s" in caplog.text
        assert host.capsules["x"].state == "ready"


@pytest.mark.parametrize("change", ["reload", "unload"])
async def test_calls_of_an_older_version_that_wait_for_ever_are_cancelled_after_a_while(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloader, "GRACE_S", 0.1)
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(guest.say("x.began") + guest.subscribe("x.go") + FOR_EVER)
    folder = capsule(tmp_path, "x", guest, {"x.ask": "act", "x.go": {}}, ["x.*"])
    async with hosted(tmp_path) as host, host.subscribe("x.*") as heard, host.subscribe(FAILED + "x.ask") as failed:
        host.publish("x.ask", 1, principal="alice")
        while (await next_of(heard)).topic != "x.began":
            pass
        if change == "reload":
            host.publish("x.ask", 2, principal="alice")
            mended = Guest()
            rewrite(folder, mended.handles(mended.say("x.said")))
            await host.reload("x")
        else:
            await host.unload("x")
        told = (await next_of(failed)).payload
        assert told["reason"] == "cancelled"
        assert "unloaded or replaced, and this call had not ended 0.1 s later" in str(told)
        if change == "reload":
            while (event := await next_of(heard)).topic != "x.said":
                pass
            assert event.payload == 2, "the principal is served again"


# What is left.


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def settled(alive: list[weakref.ref[object]], most: int) -> int:
    """How many of them live, once no more than `most` do, or after 5 s."""
    with trio.move_on_after(5):
        while True:
            gc.collect()
            if sum(one() is not None for one in alive) <= most:
                break
            await trio.sleep(0.05)
    return sum(one() is not None for one in alive)


@pytest.mark.parametrize("how", ["good", "stub", "loop", "failing hook", "cancelled", "no start", "failing loop"])
async def test_fifty_reloads_leave_nothing_of_older_versions(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runloops, "FIRST_PAUSE_S", 0.001)
    place, made = tmp_path / "capsules", []
    init = Capsule.__init__

    def counted(self: object, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        made.append(weakref.ref(self))

    monkeypatch.setattr(Capsule, "__init__", counted)
    if how in ("loop", "failing loop"):
        folder = capsule(place, "x", looping(), {"l.ask": {}}, ["l.said"])
    else:
        stub = '(func (export "run"))' if how == "stub" else ""
        folder = capsule(place, "x", echoing(stub), {"good.ask": "act"}, ["good.said"])
    async with open_host([place], trust=True, state_dir=tmp_path / "state", workspace=place) as host:
        if how == "failing hook":
            raise_version(folder, "1.1.0")
            rewrite(folder, echoing('(func (export "astrid-upgrade") (unreachable))'))
        elif how == "no start":
            rewrite(folder, echoing("(func $begins (unreachable))", "(start $begins)"))
        elif how == "failing loop":
            rewrite(folder, looping("(unreachable)"))

        async def once(n: int) -> None:
            if how == "cancelled":
                with trio.move_on_after(0.0002 * (n % 10)):
                    await host.reload("x")
            elif how in ("failing hook", "no start", "failing loop"):
                with pytest.raises(LoadError):
                    await host.reload("x")
            else:
                await host.reload("x")

        await once(9)
        await settled(made, 1)
        pools = len(host._instances._pools)
        before = descriptors()
        for n in range(50):
            await once(n)
        assert await settled(made, 1) == 1
        assert len(host._instances._pools) == pools == 1
        assert descriptors() <= before + 2


async def test_a_reload_while_the_host_stops_leaves_it_stopping(tmp_path: Path) -> None:
    good(tmp_path)
    ends = []

    async with trio.open_nursery() as nursery:
        async with hosted(tmp_path) as host:

            async def reloading() -> None:
                with pytest.raises(Exception) as caught:  # noqa: PT012 - one of them is the first that is refused
                    while True:
                        await host.reload("good")
                ends.append(caught.value)

            nursery.start_soon(reloading)
            await trio.sleep(0.02)
    assert [type(end).__name__ for end in ends] in (["HostClosed"], ["LoadError"])


async def test_a_bound_that_was_not_reached_costs_no_time(tmp_path: Path) -> None:
    folder = good(tmp_path)
    async with hosted(tmp_path) as host:
        begun = time.monotonic()
        for _ in range(5):
            shutil.copy(folder / "good.wasm", folder / "kept.wasm")
            await host.reload("good")
        assert time.monotonic() - begun < 2
