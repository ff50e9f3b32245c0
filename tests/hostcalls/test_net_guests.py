"""Real guests with sockets: what they wait for wakes them and nobody else, a wait costs nothing, and no socket outlives them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import trio
from guests_in_wat import FAILED, POLL, RETURNED, SUBSCRIBE, Guest, capsule, compute, hosted, next_of
from net_doors import PEERS, Door, answer, hello
from net_functions import frame, listening, open_sockets, until
from net_guests import (
    ACCEPT_UNIX,
    ACCEPTABLE,
    BIND_UNIX,
    BLOCK,
    CONNECT,
    COUNT,
    DROP_STREAM,
    FIRST,
    IS_READY,
    LIST,
    LISTEN,
    MESSAGES,
    POLL_ACCEPT_UNIX,
    POLL_MANY,
    READ_BYTES,
    READ_FRAME,
    READABLE,
    SAY_NUMBER,
    connect,
    poll,
    say_number,
    with_net,
)

from astrid_host.errors import GuestCancelled

ROWS = {"net_connect": ["127.0.0.1:*"], "net_bind": ["127.0.0.1:*"]}


async def accepted(server: socket.socket) -> trio.SocketStream:
    server.setblocking(False)
    await trio.lowlevel.wait_readable(server)
    peer = server.accept()[0]
    peer.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(peer))


def reader(place: Path, port: int) -> None:
    """Connects, says `said.begun`, reads up to 100 bytes, and says how many they were."""
    guest = Guest(CONNECT, READ_BYTES).add(SAY_NUMBER)
    guest.handles(
        f"(local.set $j {connect(guest, port)})"
        + guest.say("said.begun")
        + f"(call $read_bytes (local.get $j) (i32.const 100) (i32.const {RETURNED}))"
        + say_number(guest, "said.read", COUNT)
    )
    capsule(place, "reader", guest, {"r.ask": "act"}, ["said.*"], capabilities=ROWS)


async def test_two_guests_wait_for_one_peer_and_each_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        reader(tmp_path, port)
        async with hosted(tmp_path) as host, host.subscribe("said.read") as events:
            host.publish("r.ask", {}, principal="one")
            first = await accepted(server)
            host.publish("r.ask", {}, principal="two")
            second = await accepted(server)
            await second.send_all(b"22")
            event = await next_of(events)
            assert (event.principal, event.payload) == ("two", 1002)
            await first.send_all(b"1")
            event = await next_of(events)
            assert (event.principal, event.payload) == ("one", 1001)
            await first.aclose()
            await second.aclose()


async def test_a_guest_that_waits_for_a_socket_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        reader(tmp_path, port)
        poller(tmp_path, port)
        async with hosted(tmp_path) as host, host.subscribe("said.read") as events:
            host.publish("r.ask", {})
            host.publish("p.ask", {})
            peers = [await accepted(server), await accepted(server)]
            await trio.sleep(0.7)  # by now the clock stands still
            on_loop, in_process = time.thread_time(), time.process_time()
            await trio.sleep(0.5)
            assert time.thread_time() - on_loop < 0.02
            assert time.process_time() - in_process < 0.05
            for peer in peers:
                await peer.send_all(b"x")
            assert (await next_of(events)).payload == 1001
            for peer in peers:
                await peer.aclose()


@pytest.mark.parametrize("how", ["cancelled", "host ends"])
async def test_a_call_that_ends_while_it_waits_leaves_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        reader(tmp_path, port)
        async with hosted(tmp_path) as host, host.subscribe("said.begun") as begun:
            before = open_sockets()
            host.publish("r.ask", {})
            await next_of(begun)
            peer = await accepted(server)
            if how == "cancelled":
                scheduler = host._scheduler
                with scheduler.lock:
                    for call in list(scheduler.live):
                        scheduler.cancel_locked(call, GuestCancelled("by the test"))
                scheduler.run_or_wake()
                assert await peer.receive_some() == b""
                await peer.aclose()
                await until(lambda: open_sockets() <= before)
        if how == "host ends":
            assert await peer.receive_some() == b""
            await peer.aclose()


async def test_a_guest_that_traps_or_drops_the_handle_hangs_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        guest = Guest(CONNECT, DROP_STREAM)
        guest.handles(
            f"(local.set $j {connect(guest, port)})"
            + guest.when("trap", "unreachable")
            + "(call $drop_stream (local.get $j))"
        )
        capsule(tmp_path, "brief", guest, {"b.trap": "trap", "b.drop": "drop"}, capabilities=ROWS)
        async with hosted(tmp_path) as host, host.subscribe(FAILED + "b.trap") as failures:
            host.publish("b.drop", {})
            peer = await accepted(server)
            assert await peer.receive_some() == b""
            await peer.aclose()
            host.publish("b.trap", {})
            peer = await accepted(server)
            assert await peer.receive_some() == b""
            await peer.aclose()
            assert (await next_of(failures)).payload["reason"] == "trap"


def poller(place: Path, port: int) -> None:
    """Polls messages of `p.more`, a connection, and a listener, and says how many are ready, and which is the first."""
    guest = Guest(SUBSCRIBE, MESSAGES, CONNECT, READABLE, LISTEN, ACCEPTABLE, POLL_MANY).add(SAY_NUMBER)
    guest.handles(
        f"""(call $subscribe {guest.text("p.more")} (i32.const {RETURNED}))
        (i32.store (i32.const {LIST}) (call $messages (i32.load (i32.const {RETURNED + 4}))))
        (i32.store (i32.const {LIST + 4}) (call $readable {connect(guest, port)}))
        (call $listen {guest.text("127.0.0.1")} (i32.const 0) (i32.const {RETURNED}))
        (i32.store (i32.const {LIST + 8}) (call $acceptable (i32.load (i32.const {RETURNED + 4}))))"""
        + guest.say("said.polls")
        + poll(3)
        + say_number(guest, "said.count", COUNT)
        + say_number(guest, "said.first", FIRST)
    )
    capsule(place, "poller", guest, {"p.ask": "act", "p.more": {}}, ["said.*"], capabilities=ROWS)


@pytest.mark.parametrize("what", ["message", "socket", "both"])
async def test_a_poll_over_messages_and_sockets_ends_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        poller(tmp_path, port)
        async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
            host.publish("p.ask", {})
            peer = await accepted(server)
            assert (await next_of(events)).topic == "said.polls"
            if what != "message":
                await peer.send_all(b"x")
            if what != "socket":
                host.publish("p.more", {})
            counted, first = await next_of(events), await next_of(events)
            assert counted.payload in (1001, 1002)
            assert first.payload == (1001 if what == "socket" else 1000) or (what == "both" and counted.payload == 1001)
            await peer.aclose()


async def test_a_poll_ends_when_somebody_connects_to_the_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_net(monkeypatch)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    guest = Guest(LISTEN, ACCEPTABLE, BLOCK, IS_READY).add(SAY_NUMBER)
    guest.handles(
        f"""(call $listen {guest.text("127.0.0.1")} (i32.const {port}) (i32.const {RETURNED}))
        (local.set $j (call $acceptable (i32.load (i32.const {RETURNED + 4}))))"""
        + say_number(guest, "said.before", "(call $is_ready (local.get $j))")
        + f"(call $block (local.get $j) (i32.const {RETURNED}))"
        + say_number(guest, "said.after", "(call $is_ready (local.get $j))")
    )
    capsule(tmp_path, "server", guest, {"s.ask": "act"}, ["said.*"], capabilities=ROWS)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("s.ask", {})
        assert (await next_of(events)).payload == 1000
        async with await trio.open_tcp_stream("127.0.0.1", port):
            assert (await next_of(events)).payload == 1001


async def test_a_poll_that_ended_by_something_else_leaves_the_socket_to_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        guest = Guest(SUBSCRIBE, MESSAGES, CONNECT, READABLE, READ_BYTES, POLL_MANY).add(SAY_NUMBER)
        guest.handles(
            f"""(local.set $j {connect(guest, port)})
            (call $subscribe {guest.text("p.more")} (i32.const {RETURNED}))
            (i32.store (i32.const {LIST}) (call $messages (i32.load (i32.const {RETURNED + 4}))))
            (i32.store (i32.const {LIST + 4}) (call $readable (local.get $j)))
            (i32.store (i32.const {LIST + 8}) (call $readable (local.get $j)))"""
            + guest.say("said.polls")
            + poll(3)
            + say_number(guest, "said.first", FIRST)
            + f"(call $read_bytes (local.get $j) (i32.const 100) (i32.const {RETURNED}))"
            + say_number(guest, "said.read", COUNT)
        )
        capsule(tmp_path, "mixed", guest, {"p.ask": "act", "p.more": {}}, ["said.*"], capabilities=ROWS)
        async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
            host.publish("p.ask", {})
            peer = await accepted(server)
            await next_of(events)
            host.publish("p.more", {})
            assert (await next_of(events)).payload == 1000
            await peer.send_all(b"abc")
            assert (await next_of(events)).payload == 1003
            await peer.aclose()


async def test_a_guest_that_computes_on_another_thread_polls_and_hangs_up_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        guest = Guest(SUBSCRIBE, MESSAGES, CONNECT, READABLE, READ_BYTES, POLL_MANY, DROP_STREAM).add(SAY_NUMBER)
        long = compute(40_000_000)
        guest.handles(
            f"""(local.set $j {connect(guest, port)})
            (call $subscribe {guest.text("p.more")} (i32.const {RETURNED}))
            (i32.store (i32.const {LIST}) (call $messages (i32.load (i32.const {RETURNED + 4}))))
            (i32.store (i32.const {LIST + 4}) (call $readable (local.get $j)))"""
            + long
            + guest.say("said.polls")
            + poll(2)
            + say_number(guest, "said.first", FIRST)
            + long
            + f"(call $read_bytes (local.get $j) (i32.const 100) (i32.const {RETURNED}))"
            + say_number(guest, "said.read", COUNT)
            + long
            + "(call $drop_stream (local.get $j))"
            + guest.say("said.dropped")
            + long
        )
        capsule(tmp_path, "far", guest, {"p.ask": "act", "p.more": {}}, ["said.*"], capabilities=ROWS)
        async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
            for _ in range(2):
                host.publish("p.ask", {})
                peer = await accepted(server)
                assert (await next_of(events)).topic == "said.polls"
                await peer.send_all(b"abc")
                assert (await next_of(events)).payload == 1001
                assert (await next_of(events)).payload == 1003
                assert (await next_of(events)).topic == "said.dropped"
                assert await peer.receive_some() == b""
                await peer.aclose()


async def test_a_guest_serves_its_own_unix_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an uplink does: wait for the first peer, look for others in passing, read until there is a frame."""
    door = Door(tmp_path)
    with_net(monkeypatch, doorway=door)
    guest = Guest(BIND_UNIX, ACCEPT_UNIX, POLL_ACCEPT_UNIX, READ_FRAME).add(SAY_NUMBER)
    guest.handles(
        f"""(call $bind_unix (i32.const {RETURNED}))
        (local.set $i (i32.load (i32.const {RETURNED + 4})))
        {guest.say("said.listens")}
        (call $accept_unix (local.get $i) (i32.const {RETURNED}))
        (local.set $j (i32.load (i32.const {RETURNED + 4})))
        (call $poll_accept (local.get $i) (i64.const 0) (i32.const {RETURNED}))
        {say_number(guest, "said.others", f"(i32.load8_u (i32.const {RETURNED + 4}))")}
        (loop $again
          (call $read_frame (local.get $j) (i32.const {RETURNED}))
          (br_if $again (i32.eq (i32.load8_u (i32.const {RETURNED + 4})) (i32.const 2))))
        {say_number(guest, "said.length", f"(i32.load (i32.const {RETURNED + 12}))")}"""
    )
    capsule(tmp_path, "uplink", guest, {"u.ask": "act"}, ["said.*"], capabilities={"net_bind": ["unix:*"]})
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("u.ask", {})
        assert (await next_of(events)).topic == "said.listens"
        peer = await hello(str(tmp_path / "uplink.sock"))
        assert (await next_of(events)).payload == 1000
        assert (await answer(peer))["status"] == "ok"
        await peer.send_all(frame(b"hello"))
        assert (await next_of(events)).payload == 1005
        assert await peer.receive_some() == b"", "the handler has ended, and its handles with it"
        await PEERS.pop().aclose()
    assert set(door.speakers) == {None}
    assert not (tmp_path / "uplink.sock").exists()


async def test_a_guest_that_looks_for_messages_and_frames_in_turn_does_not_wait_for_frames_while_there_are_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an uplink does, whose peer says nothing. With a wait of 50 ms for each message 200 would take 10 s."""
    with listening() as (server, port):
        with_net(monkeypatch, f"127.0.0.1:{port}")
        guest = Guest(CONNECT, READ_FRAME, SUBSCRIBE, POLL)
        guest.handles(
            f"""(local.set $j {connect(guest, port)})
            (call $subscribe {guest.text("l.ask")} (i32.const {RETURNED}))
            (local.set $i (i32.load (i32.const {RETURNED + 4})))
            {guest.say("said.begun")}
            (loop $again
              (global.set $heap (i32.const 65536))
              (call $read_frame (local.get $j) (i32.const {RETURNED}))
              (call $poll (local.get $i) (i32.const 1200))
              (if (i32.load (i32.const 1212)) (then {guest.say("said.heard", "1")}))
              (br $again))"""
        )
        capsule(tmp_path, "uplink", guest, {"u.ask": "act", "l.ask": {}}, ["said.*"], capabilities=ROWS)
        async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
            host.publish("u.ask", {})
            peer = await accepted(server)
            assert (await next_of(said)).topic == "said.begun"
            with trio.fail_after(5):
                for _ in range(200):
                    host.publish("l.ask", 1)
                for _ in range(200):
                    await next_of(said)
            await peer.aclose()
