"""Unix listeners: who is let in by the handshake, that slow peers keep nobody waiting, and whose the socket is."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
from net_doors import TOKEN, Door, answer, hello, knock, unix
from net_functions import call, frame, functions, until

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.sockets import handshake


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


async def test_a_peer_that_knows_the_token_is_let_in(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        ready = await net("[method]unix-listener.subscribe-readiness", listener)
        assert not await net("[method]pollable.ready", ready)
        assert await net("[method]unix-listener.poll-accept", listener, 0) is None
        peer = await hello(path)
        stream = await net("[method]unix-listener.accept", listener)
        assert await answer(peer) == {"status": "ok", "protocol_version": 1, "server_version": "1.2.3"}
        await peer.send_all(frame(b"hi"))
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"hi")
        await net("[method]tcp-stream.write", stream, b"you")
        assert await peer.receive_some() == frame(b"you")
        await peer.aclose()
        assert await net("[method]tcp-stream.read", stream) == Variant("closed")
        assert door.speakers == [None, None]


async def test_readiness_follows_who_was_let_in(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        ready = await net("[method]unix-listener.subscribe-readiness", listener)
        stranger = await hello(path, token="00")
        assert (await answer(stranger))["status"] == "error"
        assert not await net("[method]pollable.ready", ready)
        peers = [await hello(path), await hello(path)]
        for peer in peers:
            assert (await answer(peer))["status"] == "ok"
        for _ in peers:
            await until(listener.ready)
            assert await net("[method]unix-listener.poll-accept", listener, 0) is not None
        assert not await net("[method]pollable.ready", ready)


async def test_a_peer_may_prove_who_it_is(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        peer = await hello(path, claimed_principal="claude")
        challenge = (await answer(peer))["challenge"]
        assert len(bytes.fromhex(challenge)) == 32
        signed = {"token": TOKEN.hex(), "protocol_version": 1, "client_version": "t", "signature": "claude's own"}
        await peer.send_all(frame(json.dumps(signed).encode()))
        assert (await answer(peer))["status"] == "ok"
        assert door.asked == [("claude", f"astrid-principal-auth:v1:claude:{challenge}".encode(), "claude's own")]
        stream = await net("[method]unix-listener.accept", listener)
        await peer.send_all(frame(b"x"))
        await net("[method]tcp-stream.read", stream)
        await net("[method]tcp-stream.read", stream)
        assert door.speakers == ["claude", None]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another version": ({"protocol_version": 2}, "protocol version 2"),
    "another version and token": ({"protocol_version": 2, "token": "00"}, "protocol version 2"),
    "a wrong token": ({"token": "00" * 32}, "authentication failed"),
    "no hexadecimal": ({"token": "zz"}, "authentication failed"),
    "no ASCII": ({"token": "ü"}, "authentication failed"),
    "an empty token": ({"token": ""}, "authentication failed"),
    "no name": ({"claimed_principal": ""}, "authentication failed"),
    "a path for a name": ({"claimed_principal": "../x"}, "authentication failed"),
    "a reserved name": ({"claimed_principal": "anonymous"}, "authentication failed"),
    "no number": ({"protocol_version": "1"}, "not a handshake"),
}


@pytest.mark.parametrize("name", BAD)
async def test_others_are_told_why_and_hung_up_on(door: Door, name: str) -> None:
    fields, reason = BAD[name]
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        peer = await hello(path, **fields)
        told = await answer(peer)
        assert (told["status"], told["protocol_version"]) == ("error", 1)
        assert reason in told["reason"]
        assert await peer.receive_some() == b""
        assert not listener.ready()


@pytest.mark.parametrize("second", [{}, {"signature": "eve's own"}, {"signature": ""}])
async def test_a_claim_that_is_not_proved_is_no_way_in(door: Door, second: dict[str, str]) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        peer = await hello(path, claimed_principal="claude")
        await answer(peer)
        await peer.send_all(frame(json.dumps({"token": TOKEN.hex(), "protocol_version": 1, **second}).encode()))
        assert (await answer(peer))["reason"] == "authentication failed"
        assert not listener.ready()


@pytest.mark.parametrize(
    "raw",
    [
        frame(b"{"),
        frame(b"\xff"),
        frame(b"[]"),
        frame(b'{"x":' + b"[" * 4000),
        frame(b'{"x":' + b'{"":' * 1000),
        struct.pack(">I", 4097),
        b"GET / HTTP",
    ],
    ids=["cut off", "not UTF-8", "a list", "brackets", "braces", "too long", "HTTP"],
)
async def test_what_is_no_handshake_is_hung_up_on(door: Door, raw: bytes) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        async with await trio.open_unix_socket(path) as peer:
            await peer.send_all(raw)
            assert (await answer(peer))["status"] == "error"
            try:
                assert await peer.receive_some() == b""
            except trio.BrokenResourceError:
                assert raw.startswith(b"GET")  # more than was read of it


async def test_a_fault_at_the_door_is_logged_and_the_next_peer_is_let_in(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        with monkeypatch.context() as patched:
            patched.setattr(door, "verifies", lambda *_: 1 // 0)
            peer = await hello(path, claimed_principal="claude")
            await answer(peer)
            signed = {"token": TOKEN.hex(), "protocol_version": 1, "signature": "claude's own"}
            await peer.send_all(frame(json.dumps(signed).encode()))
            assert await peer.receive_some() == b""
        assert "ZeroDivisionError" in caplog.text
        await hello(path)
        await net("[method]unix-listener.accept", listener)


async def test_a_slow_peer_keeps_nobody_waiting_and_is_given_up(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handshake.STEP_S == 5.0
    monkeypatch.setattr(handshake, "STEP_S", 0.1)
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        slow = [await knock(path) for _ in range(7)]
        await hello(path)
        await net("[method]unix-listener.accept", listener)
        for peer in slow:
            assert "no handshake within" in (await answer(peer))["reason"]


async def test_eight_stand_at_the_door_and_the_next_wait_outside(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        peers = [await hello(path) for _ in range(10)]
        for peer in peers[:8]:
            await answer(peer)
        with trio.move_on_after(0.02) as scope:
            await answer(peers[8])
        assert scope.cancelled_caught
        streams = [await net("[method]unix-listener.accept", listener) for _ in range(8)]
        assert await net("[method]unix-listener.poll-accept", listener, 0) is None
        assert await net.case("[method]unix-listener.accept", listener) == "quota"
        for stream in streams[:2]:
            stream.close()
        for _ in range(2):
            await net("[method]unix-listener.accept", listener)


async def test_who_waits_at_the_door_is_hung_up_on_when_the_listener_is_dropped(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        waiting, shaking = await hello(path), await knock(path)
        await answer(waiting)
        await until(listener.ready)
        listener.close()
        assert await waiting.receive_some() == b""
        assert await shaking.receive_some() == b""
        assert not os.path.exists(path)


async def test_the_socket_is_its_owners_and_has_one_listener(door: Door) -> None:
    async with unix(door) as (net, listener, path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert await net.case("bind-unix") == "address-in-use"
        listener.close()
        await net("bind-unix")


async def test_what_an_ended_host_left_there_goes(door: Door) -> None:
    path = door.folder / "sockets.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    assert path.exists()
    async with unix(door) as (net, listener, _):
        await net("[method]unix-listener.poll-accept", listener, 0)


async def test_a_file_in_the_way_stays(door: Door) -> None:
    (door.folder / "sockets.sock").write_text("not yours")
    async with functions(doorway=door) as net:
        assert await net.case("bind-unix") == "address-in-use"
    assert (door.folder / "sockets.sock").read_text() == "not yours"


async def test_listening_on_a_unix_socket_needs_a_row_and_a_host_that_has_one(door: Door) -> None:
    async with functions(caller=call(bind=["127.0.0.1:*", "unix:"]), doorway=door) as net:
        assert await net.case("bind-unix") == "capability-denied"
    async with functions() as net:
        assert await net.case("bind-unix") == "address-not-available"


async def test_a_path_that_there_cannot_be_is_not_told_to_the_guest(door: Door) -> None:
    door.folder = door.folder / "missing"
    async with functions(doorway=door) as net:
        with pytest.raises(HostError) as caught:
            await net("bind-unix")
        assert (caught.value.case, caught.value.payload) == ("unknown", "No such file or directory")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("peer-addr", ()),
        ("local-addr", ()),
        ("set-nodelay", (True,)),
        ("nodelay", ()),
        ("set-hop-limit", (1,)),
        ("hop-limit", ()),
        ("set-keepalive", (1,)),
        ("keepalive", ()),
        ("set-linger", (1,)),
        ("linger", ()),
        ("set-reuseaddr", (True,)),
        ("reuseaddr", ()),
    ],
)
async def test_a_unix_connection_is_not_tcp(door: Door, name: str, arguments: tuple[Any, ...]) -> None:
    async with unix(door) as (net, listener, path):
        await net("[method]unix-listener.poll-accept", listener, 0)
        peer = await hello(path)
        stream = await net("[method]unix-listener.accept", listener)
        assert await net.case(f"[method]tcp-stream.{name}", stream, *arguments) == "not-tcp"
        await peer.aclose()
