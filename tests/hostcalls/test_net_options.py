"""Options of a connection, and what every function answers once it is closed."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
import trio
import trio.testing
from net_functions import connected, fill, functions, listening


@pytest.mark.parametrize(
    ("option", "given", "read"),
    [
        ("nodelay", True, True),
        ("nodelay", False, False),
        ("reuseaddr", True, True),
        ("reuseaddr", False, False),
        ("read-timeout", 5, 5),
        ("read-timeout", None, None),
        ("write-timeout", 2**64 - 1, 2**64 - 1),
        ("write-timeout", None, None),
        ("hop-limit", 7, 7),
        ("hop-limit", 255, 255),
        ("keepalive", 30, 30),
        ("keepalive", 0, 1),
        ("keepalive", 2**64 - 1, 32_767),
        ("keepalive", None, None),
        ("linger", 1500, 1500),
        ("linger", 0, 0),
        ("linger", None, None),
    ],
)
async def test_an_option_is_as_it_was_set(option: str, given: Any, read: Any) -> None:
    async with connected() as (net, stream, _):
        await net(f"[method]tcp-stream.set-{option}", stream, given)
        assert await net(f"[method]tcp-stream.{option}", stream) == read


async def test_options_over_ipv6() -> None:
    with listening("::1") as (server, port):
        async with functions(f"[::1]:{port}") as net:
            stream = await net("connect-tcp", "::1", port)
            assert await net("[method]tcp-stream.peer-addr", stream) == f"[::1]:{port}"
            await net("[method]tcp-stream.set-hop-limit", stream, 9)
            assert await net("[method]tcp-stream.hop-limit", stream) == 9
            server.accept()[0].close()


@pytest.mark.parametrize("hops", [0, 256, 2**32 - 1])
async def test_a_hop_limit_that_is_none_is_refused(hops: int) -> None:
    async with connected() as (net, stream, _):
        assert await net.case("[method]tcp-stream.set-hop-limit", stream, hops) == "unknown"


async def test_no_linger_keeps_the_host_waiting() -> None:
    """A system that waits at close would stop the loop."""
    async with connected() as (net, stream, peer):
        await net("[method]tcp-stream.set-linger", stream, 2**64 - 1)
        assert struct.unpack("ii", stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0] == 0
        await fill(net, stream)
        begun = trio.current_time()
        stream.close()
        assert trio.current_time() - begun < 1
        assert await peer.receive_some(1)


async def test_a_linger_of_zero_breaks_the_connection_off() -> None:
    async with connected() as (net, stream, peer):
        await net("[method]tcp-stream.set-linger", stream, 0)
        stream.close()
        with pytest.raises(trio.BrokenResourceError):
            await peer.receive_some()


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "read": (),
    "write": (b"x",),
    "read-bytes": (1,),
    "write-bytes": (b"x",),
    "peek": (1,),
    "shutdown": ("both",),
    "peer-addr": (),
    "local-addr": (),
    "set-nodelay": (True,),
    "nodelay": (),
    "set-read-timeout": (1,),
    "read-timeout": (),
    "set-write-timeout": (1,),
    "write-timeout": (),
    "set-hop-limit": (1,),
    "hop-limit": (),
    "set-keepalive": (1,),
    "keepalive": (),
    "set-linger": (1,),
    "linger": (),
    "set-reuseaddr": (True,),
    "reuseaddr": (),
}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_what_is_closed_answers_so(name: str) -> None:
    async with connected() as (net, stream, _):
        stream.close()
        assert await net.case(f"[method]tcp-stream.{name}", stream, *ARGUMENTS[name]) == "closed"
        assert stream.ready()


@pytest.mark.parametrize("name", ["read", "read-bytes", "peek", "write-bytes"])
async def test_closing_wakes_who_waits(name: str) -> None:
    async with connected() as (net, stream, _):
        arguments = ARGUMENTS[name]
        if name == "write-bytes":
            await fill(net, stream)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                if name == "read":
                    assert (await net("[method]tcp-stream.read", stream)).case in ("closed", "pending")
                else:
                    assert await net.case(f"[method]tcp-stream.{name}", stream, *arguments) == "closed"

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            stream.close()
            stream.close()


async def test_a_cancelled_read_leaves_the_socket_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (net, stream, peer):
        for _ in range(3):
            with trio.move_on_after(0.01):
                await net("[method]tcp-stream.read-bytes", stream, 1)
        await peer.send_all(b"x")
        assert await net("[method]tcp-stream.read-bytes", stream, 1) == b"x"
