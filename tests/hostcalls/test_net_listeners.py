"""Listeners on TCP: who may listen where, how many, and that waiting for peers ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from net_doors import Door
from net_functions import call, frame, functions, listening

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.hostcalls.io import poll


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


async def test_a_guest_listens_and_answers() -> None:
    async with functions() as net:
        listener = await net("bind-tcp", "localhost", 0)
        address = await net("[method]tcp-listener.local-addr", listener)
        port = int(address.rpartition(":")[2])
        assert address == f"127.0.0.1:{port}"
        ready = await net("[method]tcp-listener.subscribe-readiness", listener)
        assert not await net("[method]pollable.ready", ready)
        assert await net("[method]tcp-listener.poll-accept", listener, 0) is None
        assert await net("[method]tcp-listener.poll-accept", listener, 10) is None
        async with await trio.open_tcp_stream("127.0.0.1", port) as peer:
            assert await net("[method]pollable.ready", ready)
            stream = await net("[method]tcp-listener.accept", listener)
            await peer.send_all(b"hi")
            assert await net("[method]tcp-stream.read-bytes", stream, 10) == b"hi"
            mine = "{}:{}".format(*peer.socket.getsockname())
            assert await net("[method]tcp-stream.peer-addr", stream) == mine
        async with await trio.open_tcp_stream("127.0.0.1", port):
            assert await net("[method]tcp-listener.poll-accept", listener, 2**64 - 1) is not None


@pytest.mark.parametrize(
    ("rows", "host", "port", "case"),
    [
        ([], "127.0.0.1", 0, "capability-denied"),
        (["127.0.0.1:1"], "127.0.0.1", 0, "capability-denied"),
        (["unix:*"], "127.0.0.1", 0, "capability-denied"),
        (["0.0.0.0:*"], "0.0.0.0", 0, "airlock-rejected"),
        (["192.168.1.10:*"], "192.168.1.10", 0, "airlock-rejected"),
        (["[::]:*"], "::", 0, "airlock-rejected"),
        (["example.com:*"], "example.com", 0, "airlock-rejected"),
        (["127.0.0.1:*"], "", 0, "address-not-available"),
    ],
)
async def test_capsules_listen_on_loopback_where_a_row_says_so(
    rows: list[str], host: str, port: int, case: str
) -> None:
    async with functions(caller=call(bind=rows)) as net:
        assert await net.case("bind-tcp", host, port) == case


async def test_a_denial_names_the_row() -> None:
    async with functions(caller=call(bind=["unix:x"])) as net:
        with pytest.raises(HostError) as caught:
            await net("bind-tcp", "localhost", 80)
        assert '[capabilities] net_bind = ["unix:x", "localhost:80"]' in caught.value.detail


async def test_an_address_in_use_and_one_that_there_is_not() -> None:
    with listening() as (_, port):
        async with functions(caller=call(bind=["127.0.0.1:*", "[::ffff:127.0.0.1]:*"])) as net:
            assert await net.case("bind-tcp", "127.0.0.1", port) == "address-in-use"


async def test_four_listeners_at_most_and_a_dropped_one_frees_its_port(door: Door) -> None:
    async with functions(doorway=door) as net:
        listeners = [await net("bind-tcp", "127.0.0.1", 0) for _ in range(4)]
        assert await net.case("bind-tcp", "127.0.0.1", 0) == "quota"
        assert await net.case("bind-unix") == "quota"
        port = listeners[0].sock.getsockname()[1]
        listeners[0].close()
        await net("bind-tcp", "127.0.0.1", port)


async def test_a_ninth_connection_is_not_accepted() -> None:
    async with functions() as net:
        listener = await net("bind-tcp", "127.0.0.1", 0)
        port = listener.sock.getsockname()[1]
        peers = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(9)]
        streams = [await net("[method]tcp-listener.accept", listener) for _ in range(8)]
        assert await net.case("[method]tcp-listener.accept", listener) == "quota"
        assert await net.case("[method]tcp-listener.poll-accept", listener, 0) == "quota"
        streams[0].close()
        await net("[method]tcp-listener.accept", listener)
        for peer in peers:
            await peer.aclose()


async def test_a_handler_accepts_for_so_long_and_a_run_loop_as_it_takes(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "HANDLER_S", 0.02)
    async with functions(doorway=door) as net:
        tcp, listener = await net("bind-tcp", "127.0.0.1", 0), await net("bind-unix")
        assert await net.case("[method]tcp-listener.accept", tcp) == "timeout"
        assert await net.case("[method]unix-listener.accept", listener) == "timeout"
        net.call.follows = True
        with trio.move_on_after(0.1) as scope:
            await net("[method]tcp-listener.accept", tcp)
        assert scope.cancelled_caught


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_closing_a_listener_wakes_who_accepts(kind: str, door: Door) -> None:
    async with functions(doorway=door) as net:
        listener = await (net("bind-tcp", "127.0.0.1", 0) if kind == "tcp" else net("bind-unix"))
        async with trio.open_nursery() as nursery:

            async def accept() -> None:
                assert await net.case(f"[method]{kind}-listener.accept", listener) == "closed"

            nursery.start_soon(accept)
            await trio.testing.wait_all_tasks_blocked()
            listener.close()
        assert listener.ready()
        assert await net.case(f"[method]{kind}-listener.poll-accept", listener, 0) == "closed"
        if kind == "tcp":
            assert await net.case("[method]tcp-listener.local-addr", listener) == "closed"


async def test_who_speaks_over_tcp_is_nobody(door: Door) -> None:
    """Or the guest would publish it for whom it heard before."""
    async with functions(doorway=door) as net:
        listener = await net("bind-tcp", "127.0.0.1", 0)
        async with await trio.open_tcp_stream("127.0.0.1", listener.sock.getsockname()[1]) as peer:
            stream = await net("[method]tcp-listener.accept", listener)
            door.heard(net.call, "claude")
            await peer.send_all(frame(b"x"))
            assert await net("[method]tcp-stream.read", stream) == Variant("data", b"x")
    assert door.speakers == ["claude", None]
