"""UDP sockets: who may open them and send where, whom they hear, and waiting for datagrams."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from net_functions import Functions, call, functions, names, until

from astrid_host.errors import HostError

UDP = "[method]udp-socket."


@contextmanager
def peer(address: str = "127.0.0.1") -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        sock.settimeout(5)
        yield sock, sock.getsockname()[1]


@asynccontextmanager
async def bound(*allow: str, **more: Any) -> AsyncIterator[tuple[Functions, Any]]:
    async with functions(*allow, **more) as net:
        yield net, await net("udp-bind", "127.0.0.1", 0)


async def test_datagrams_go_there_and_back() -> None:
    with peer() as (other, port):
        async with bound(f"127.0.0.1:{port}") as (net, udp):
            assert await net(UDP + "send-to", udp, b"ping", "127.0.0.1", port) == 4
            data, sender = other.recvfrom(100)
            assert data == b"ping"
            assert await net(UDP + "local-addr", udp) == f"127.0.0.1:{sender[1]}"
            ready = await net(UDP + "subscribe-readable", udp)
            assert not await net("[method]pollable.ready", ready)
            assert await net(UDP + "recv-from", udp, 100) is None
            other.sendto(b"pong", sender)
            other.sendto(b"", sender)
            assert await net("[method]pollable.ready", ready)
            found = await net(UDP + "recv-from", udp, 3)
            assert (found.data, found.peer_host, found.peer_port) == (b"pon", "127.0.0.1", port)
            assert (await net(UDP + "recv-from", udp, 100)).data == b""


async def test_receiving_waits_as_long_as_the_guest_said() -> None:
    with peer() as (other, _):
        async with bound() as (net, udp):
            await net(UDP + "set-read-timeout", udp, 20)
            begun = trio.current_time()
            assert await net(UDP + "recv-from", udp, 1) is None
            assert trio.current_time() - begun >= 0.02
            await net(UDP + "set-read-timeout", udp, 2**64 - 1)
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    await trio.testing.wait_all_tasks_blocked()
                    other.sendto(b"late", udp.sock.getsockname())

                nursery.start_soon(send)
                assert (await net(UDP + "recv-from", udp, 10)).data == b"late"


@pytest.mark.parametrize(
    ("rows", "host", "port", "case"),
    [
        ([], "127.0.0.1", 0, "capability-denied"),
        (["127.0.0.1:53"], "127.0.0.1", 0, "capability-denied"),
        (["0.0.0.0:*"], "0.0.0.0", 5353, "airlock-rejected"),
        (["10.0.0.1:*"], "10.0.0.1", 0, "airlock-rejected"),
        (["example.com:*"], "example.com", 0, "airlock-rejected"),
        (["127.0.0.1:*"], "x\0", 0, "address-not-available"),
    ],
)
async def test_a_socket_needs_a_row_and_an_address_of_this_machine(
    rows: Sequence[str], host: str, port: int, case: str
) -> None:
    async with functions(caller=call(bind=rows)) as net:
        assert await net.case("udp-bind", host, port) == case


async def test_eight_sockets_at_most_and_no_port_twice() -> None:
    with peer() as (_, port):
        async with functions() as net:
            assert await net.case("udp-bind", "127.0.0.1", port) == "address-in-use"
            sockets = [await net("udp-bind", "127.0.0.1", 0) for _ in range(8)]
            assert await net.case("udp-bind", "127.0.0.1", 0) == "quota"
            sockets[0].close()
            await net("udp-bind", "127.0.0.1", 0)


@pytest.mark.parametrize("function", ["send-to", "connect"])
async def test_sending_needs_a_row_and_the_airlock(function: str) -> None:
    table = {"private": ["10.0.0.1"], "six": ["2606:2800:220:1::1"]}
    caller = call(["private:*", "six:*", "gone:*", "127.0.0.1:*"])
    data = (b"x",) if function == "send-to" else ()
    async with bound(caller=caller, resolve=names(table)) as (net, udp):
        for host, case in {
            "example.com": "capability-denied",
            "": "address-not-available",
            "private": "airlock-rejected",
            "127.0.0.1": "airlock-rejected",
            "gone": "name-unresolvable",
            "six": "address-not-available",
        }.items():
            assert await net.case(UDP + function, udp, *data, host, 53) == case
        with pytest.raises(HostError) as caught:
            await net(UDP + function, udp, *data, "example.com", 53)
        assert '"example.com:53"' in caught.value.detail


async def test_a_name_leads_where_it_led_first() -> None:
    asked = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.1"]

    with peer() as (other, port):
        async with bound(f"model:{port}", caller=call(["model:*"]), resolve=resolve) as (net, udp):
            for _ in range(3):
                await net(UDP + "send-to", udp, b"x", "model", port)
                other.recv(1)
    assert asked == ["model"]


async def test_a_connected_socket_talks_to_one_peer() -> None:
    with peer() as (one, port), peer() as (other, _):
        async with bound(f"127.0.0.1:{port}") as (net, udp):
            assert await net(UDP + "peer-addr", udp) is None
            assert await net.case(UDP + "send", udp, b"x") == "address-not-available"
            assert await net.case(UDP + "recv", udp, 1) == "address-not-available"
            await net(UDP + "connect", udp, "127.0.0.1", port)
            assert await net(UDP + "peer-addr", udp) == f"127.0.0.1:{port}"
            assert await net(UDP + "send", udp, b"hi") == 2
            mine = one.recvfrom(10)[1]
            other.sendto(b"noise", mine)
            one.sendto(b"you", mine)
            await until(udp.ready)
            await net(UDP + "set-read-timeout", udp, 1000)
            assert await net(UDP + "recv", udp, 10) == b"you"
            await net(UDP + "set-read-timeout", udp, None)
            assert await net(UDP + "recv", udp, 10) is None
            await net(UDP + "disconnect", udp)
            assert await net(UDP + "peer-addr", udp) is None
            other.sendto(b"welcome", mine)
            await until(udp.ready)
            assert (await net(UDP + "recv-from", udp, 10)).data == b"welcome"


async def test_a_socket_for_the_network_hears_only_whom_it_sent_to() -> None:
    with peer() as (one, port), peer() as (other, _):
        async with functions(f"127.0.0.1:{port}") as net:
            udp = await net("udp-bind", "0.0.0.0", 0)
            await net(UDP + "send-to", udp, b"x", "127.0.0.1", port)
            mine = one.recvfrom(10)[1]
            for _ in range(70):
                other.sendto(b"unasked", mine)
            one.sendto(b"answer", mine)
            await net(UDP + "set-read-timeout", udp, 1000)
            assert (await net(UDP + "recv-from", udp, 10)).data == b"answer"


async def test_a_datagram_has_a_largest_size() -> None:
    with peer() as (_, port):
        async with bound(f"127.0.0.1:{port}") as (net, udp):
            assert await net.case(UDP + "send-to", udp, bytes(65_536), "127.0.0.1", port) == "unknown"
            assert await net.case(UDP + "send-to", udp, bytes(65_535), "127.0.0.1", port) == "unknown"
            assert await net(UDP + "send-to", udp, bytes(65_507), "127.0.0.1", port) == 65_507


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send-to", (b"x", "127.0.0.1", 1)),
        ("recv-from", (1,)),
        ("connect", ("127.0.0.1", 1)),
        ("disconnect", ()),
        ("send", (b"x",)),
        ("peer-addr", ()),
        ("set-read-timeout", (1,)),
        ("local-addr", ()),
    ],
)
async def test_a_closed_socket_answers_so(name: str, arguments: tuple[Any, ...]) -> None:
    async with bound() as (net, udp):
        udp.close()
        assert await net.case(UDP + name, udp, *arguments) == "closed"
        assert udp.ready()


async def test_closing_wakes_who_receives() -> None:
    async with bound() as (net, udp):
        await net(UDP + "set-read-timeout", udp, 60_000)
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                assert await net.case(UDP + "recv-from", udp, 1) == "closed"

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            udp.close()
