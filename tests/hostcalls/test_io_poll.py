"""astrid:io/poll: one to 256 pollables, signals that wake who waits, and waits that end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
import trio.testing
from guests_in_wat import RETURNED, SUBSCRIBE, Guest, capsule, hosted, next_of
from net_functions import connected, functions
from net_guests import BLOCK, COUNT, LIST, MESSAGES, POLL_MANY, SAY_NUMBER, poll, say_number

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import POLLABLES, Readiness, Signal
from astrid_host.hostcalls.io import poll as poll_module


async def test_no_pollable_and_more_than_256_are_refused() -> None:
    async with functions() as net:
        ready = Signal(net.scheduler, is_set=True)
        assert await net.case("poll", []) == "invalid-input"
        assert await net.case("poll", [ready] * (POLLABLES + 1)) == "too-large"
        assert await net("poll", [ready] * POLLABLES) == list(range(256))


async def test_a_poll_names_all_that_are_ready() -> None:
    async with functions() as net:
        yes, no = Readiness(Signal(net.scheduler, is_set=True)), Readiness(Signal(net.scheduler))
        assert await net("poll", [no, yes, no, yes]) == [1, 3]
        assert await net("[method]pollable.ready", yes)
        assert not await net("[method]pollable.ready", no)
        assert await net("[method]pollable.block", yes) is None


async def test_a_signal_wakes_tasks_from_any_thread() -> None:
    async with functions() as net:
        signal = Signal(net.scheduler)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(signal.wait)
            await trio.testing.wait_all_tasks_blocked()
            threading.Thread(target=signal.set).start()
        await signal.wait()
        signal.clear()
        with trio.move_on_after(0.01) as scope:
            await signal.wait()
        assert scope.cancelled_caught
        assert not signal._waiting


async def test_a_writer_is_told_when_there_is_room_again() -> None:
    async with connected() as (net, stream, peer):
        sink = await net("[method]tcp-stream.write-stream", stream)
        sent = 0
        while room := await net("[method]output-stream.check-write", sink):
            await net("[method]output-stream.write", sink, bytes(room))
            sent += room
        told: list[str] = []
        with net.scheduler.lock:
            undo = sink.when_ready(lambda: told.append("first"))
            sink.when_ready(lambda: told.append("second"))
        undo()
        await trio.testing.wait_all_tasks_blocked()
        assert not told
        while sent:
            sent -= len(await peer.receive_some(1 << 20))
        assert told == ["second"]


async def test_a_wait_for_a_socket_that_is_given_up_leaves_no_task() -> None:
    async with connected() as (net, stream, peer):
        idle = tasks()
        told: list[int] = []
        with net.scheduler.lock:
            undos = [stream.when_ready(lambda i=i: told.append(i)) for i in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        assert tasks() == idle + 1, "one task waits for all of them"
        for undo in undos[:2]:
            undo()
        await peer.send_all(b"x")
        await trio.testing.wait_all_tasks_blocked()
        assert told == [2]
        assert await net("[method]tcp-stream.read-bytes", stream, 1) == b"x"
        with net.scheduler.lock:
            undo = stream.when_ready(lambda: told.append(3))
        undo()
        undo()
        await trio.testing.wait_all_tasks_blocked()
        assert tasks() == idle
        with net.scheduler.lock:
            stream.when_ready(lambda: told.append(4))
        stream.close()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [2, 4]
        with net.scheduler.lock:
            stream.when_ready(lambda: told.append(5))
        await trio.testing.wait_all_tasks_blocked()
        assert told == [2, 4, 5]


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def waits_for_messages(place: Path, count: int, block: bool = False) -> None:
    """Waits for so many pollables, all of one subscription, and says how many are ready."""
    guest = Guest(SUBSCRIBE, MESSAGES, POLL_MANY, BLOCK).add(SAY_NUMBER)
    store = f"""(i32.store (i32.add (i32.const {LIST}) (i32.shl (local.get $i) (i32.const 2)))
      (call $messages (local.get $j)))"""
    wait = poll(count)
    if block:
        wait = f"""(call $block (i32.load (i32.const {LIST})) (i32.const {RETURNED}))
          (i32.store (i32.const {RETURNED + 8}) (i32.const 1))"""
    refused = say_number(guest, "said.refused", f"(i32.load8_u (i32.const {RETURNED + 4}))")
    guest.handles(
        f"""(call $subscribe {guest.text("w.more")} (i32.const {RETURNED}))
        (local.set $j (i32.load (i32.const {RETURNED + 4})))
        (loop $on {store}
          (br_if $on (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count}))))"""
        + guest.say("said.waits")
        + wait
        + f"""(if (i32.load8_u (i32.const {RETURNED}))
          (then {refused}) (else {say_number(guest, "said.ready", COUNT)}))"""
    )
    capsule(place, "waits", guest, {"w.ask": "act", "w.more": {}}, ["said.*"])


@pytest.mark.parametrize("count", [1, 256])
async def test_a_guest_waits_for_many_at_once(tmp_path: Path, count: int) -> None:
    waits_for_messages(tmp_path, count)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("w.ask", {})
        assert (await next_of(events)).topic == "said.waits"
        host.publish("w.more", {})
        event = await next_of(events)
        assert (event.topic, event.payload) == ("said.ready", 1000 + count)


async def test_a_guest_that_polls_257_is_told_so(tmp_path: Path) -> None:
    waits_for_messages(tmp_path, 257)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("w.ask", {})
        await next_of(events)
        event = await next_of(events)
        assert (event.topic, event.payload) == ("said.refused", 1002)  # `too-large`


@pytest.mark.parametrize("block", [False, True])
async def test_a_wait_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: bool) -> None:
    assert poll_module.WAIT_S == 60
    monkeypatch.setattr(poll_module, "WAIT_S", 0.05)
    waits_for_messages(tmp_path, 1, block)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("w.ask", {})
        await next_of(events)
        event = await next_of(events)
        assert (event.topic, event.payload) == ("said.ready", 1001 if block else 1000)


async def test_an_error_of_a_stream_is_told_as_text() -> None:
    from astrid_host.hostcalls.io import stream_closed, stream_failed

    assert (stream_closed().case, stream_closed().payload) == ("closed", None)
    assert isinstance(stream_failed("why"), HostError)
    assert str(stream_failed("why")) == "why"
