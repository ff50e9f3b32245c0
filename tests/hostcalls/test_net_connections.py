"""astrid:net, connecting and the bytes of connections: gates, airlock, limits, timeouts, options, and what peers do."""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence

import pytest
import trio
from net_functions import MIB, call, connected, fill, functions, listening, names, open_sockets, reset, until

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import poll
from astrid_host.hostcalls.net import connecting

# Connecting.


async def test_a_guest_connects_and_talks() -> None:
    async with connected() as (net, stream, peer):
        assert await net("[method]tcp-stream.write-bytes", stream, b"hello") == 5
        assert await peer.receive_some() == b"hello"
        await peer.send_all(b"hello yourself")
        assert await net("[method]tcp-stream.peek", stream, 5) == b"hello"
        assert await net("[method]tcp-stream.read-bytes", stream, 6) == b"hello "
        assert await net("[method]tcp-stream.read-bytes", stream, 1 << 31) == b"yourself"
        mine = "{}:{}".format(*stream.sock.getsockname())
        assert await net("[method]tcp-stream.local-addr", stream) == mine
        assert await net("[method]tcp-stream.peer-addr", stream) == "{}:{}".format(*stream.sock.getpeername())
        assert net.audited("[method]tcp-stream.read-bytes", stream, 1) == stream.target


@pytest.mark.parametrize("host", ["", "a\0b", "x" * 256, "ü" * 128])
async def test_what_is_no_host_is_not_available(host: str) -> None:
    async with functions() as net:
        assert await net.case("connect-tcp", host, 80) == "address-not-available"
        assert await net.case("lookup-host", host) == "address-not-available"


@pytest.mark.parametrize(
    ("rows", "host", "port", "may"),
    [
        (["example.com:443"], "example.com", 443, True),
        (["example.com:443"], "EXAMPLE.com.", 443, True),
        (["example.com:*"], "example.com", 1, True),
        (["example.com:443"], "example.com", 80, False),
        (["example.com:443"], "www.example.com", 443, False),
        (["*:443"], "example.com", 443, False),
        (["*"], "example.com", 443, False),
        ([], "example.com", 443, False),
    ],
)
async def test_connecting_needs_a_row(rows: Sequence[str], host: str, port: int, may: bool) -> None:
    async with functions(caller=call(rows), resolve=names({})) as net:
        assert await net.case("connect-tcp", host, port) == ("name-unresolvable" if may else "capability-denied")


async def test_a_denial_names_the_line_to_write() -> None:
    async with functions(caller=call(["a:1"])) as net:
        with pytest.raises(HostError) as caught:
            await net("connect-tcp", "example.com", 443)
        assert '[capabilities] net_connect = ["a:1", "example.com:443"]' in caught.value.detail
        assert caught.value.payload is None
        with pytest.raises(HostError) as caught:
            await net("lookup-host", "example.com")
        assert '[capabilities] net_connect = ["a:1", "example.com:*"]' in caught.value.detail


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "sneaky"])
async def test_private_addresses_are_refused_whatever_name_leads_there(host: str) -> None:
    table = {"localhost": ["127.0.0.1"], "sneaky": ["93.184.216.34", "169.254.169.254"]}
    async with functions(caller=call([f"{host}:*", "[::1]:*"]), resolve=names(table)) as net:
        assert await net.case("connect-tcp", host, 80) == "airlock-rejected"
        assert await net.case("lookup-host", host) == "airlock-rejected"


async def test_the_operator_may_allow_one_port_of_loopback() -> None:
    with listening() as (_, port), listening() as (_, other):
        async with functions(f"127.0.0.1:{port}") as net:
            await net("connect-tcp", "127.0.0.1", port)
            assert await net.case("connect-tcp", "127.0.0.1", other) == "airlock-rejected"


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A name that answers differently the second time gains nothing."""
    asked = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with listening() as (_, port):
        async with functions(f"model:{port}", caller=call([f"model:{port}"]), resolve=resolve) as net:
            stream = await net("connect-tcp", "model", port)
            assert stream.sock.getpeername() == ("127.0.0.1", port)
    assert asked == ["model"]


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    with listening() as (_, port):
        resolve = names({"two": ["127.0.0.2", "127.0.0.1"]})
        async with functions(f"two:{port}", caller=call(["two:*"]), resolve=resolve) as net:
            stream = await net("connect-tcp", "two", port)
            assert stream.sock.getpeername() == ("127.0.0.1", port)


async def test_a_refused_connection_says_so() -> None:
    with listening() as (server, port):
        server.close()
        async with functions(f"127.0.0.1:{port}") as net:
            before = open_sockets()
            assert await net.case("connect-tcp", "127.0.0.1", port) == "connection-refused"
            assert open_sockets() == before


class Deaf:
    """A server that never answers: its backlog is full."""

    def __init__(self, server: socket.socket, port: int) -> None:
        server.listen(0)
        self.fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            self.fillers.append(filler)

    def close(self) -> None:
        for filler in self.fillers:
            filler.close()


async def test_connecting_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_S", 0.1)
    with listening() as (server, port):
        deaf = Deaf(server, port)
        async with functions(f"127.0.0.1:{port}") as net:
            before = open_sockets()
            assert await net.case("connect-tcp", "127.0.0.1", port) == "timeout"
            assert open_sockets() == before
        deaf.close()


async def test_a_lookup_that_hangs_ends_with_the_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_S", 0.05)
    monkeypatch.setattr(connecting, "LOOKUP_S", 0.05)

    async def resolve(name: str, port: int) -> Sequence[str]:
        await trio.sleep_forever()
        raise AssertionError

    async with functions(caller=call(["slow:1"]), resolve=resolve) as net:
        assert await net.case("connect-tcp", "slow", 1) == "timeout"
        assert await net.case("lookup-host", "slow") == "name-unresolvable"


async def test_a_cancelled_connecting_leaves_no_socket() -> None:
    with listening() as (server, port):
        deaf = Deaf(server, port)
        async with functions(f"127.0.0.1:{port}") as net:
            before = open_sockets()
            with trio.move_on_after(0.05) as scope:
                await net("connect-tcp", "127.0.0.1", port)
            assert scope.cancelled_caught
            assert open_sockets() == before
        deaf.close()


async def test_a_connection_that_nobody_took_closes_itself() -> None:
    """Its call ended between the connecting and the guest's next step."""
    with listening() as (_, port):
        async with functions(f"127.0.0.1:{port}") as net:
            before = open_sockets()
            stream = await net("connect-tcp", "127.0.0.1", port)
            assert open_sockets() == before + 1
            net.call.instance.handles.reps.clear()
            del stream
            gc.collect()
            assert open_sockets() == before


async def test_eight_connections_are_open_at_once() -> None:
    with listening() as (_, port):
        async with functions(f"127.0.0.1:{port}") as net:
            streams = [await net("connect-tcp", "127.0.0.1", port) for _ in range(8)]
            assert await net.case("connect-tcp", "127.0.0.1", port) == "quota"
            streams[3].close()
            await net("connect-tcp", "127.0.0.1", port)


async def test_names_are_looked_up_where_some_row_has_them() -> None:
    table = {"example.com": ["93.184.216.34", "2606:2800:220:1::1"], "model": ["127.0.0.1"]}
    caller = call(["example.com:443", "model:1", "model:80", "gone:*"])
    async with functions("model:80", caller=caller, resolve=names(table)) as net:
        assert await net("lookup-host", "example.com") == ["93.184.216.34", "2606:2800:220:1::1"]
        assert await net("lookup-host", "model") == ["127.0.0.1"]
        assert await net.case("lookup-host", "gone") == "name-unresolvable"
        assert await net.case("lookup-host", "other") == "capability-denied"
        assert net.audited("lookup-host", "Example.com") == "Example.com"


async def test_a_real_name_that_there_is_not() -> None:
    async with functions(caller=call(["no-such-name.invalid:*"])) as net:
        assert await net.case("connect-tcp", "no-such-name.invalid", 80) == "name-unresolvable"


# Bytes.


async def test_reading_waits_as_long_as_the_guest_said() -> None:
    async with connected() as (net, stream, peer):
        for function in ("read-bytes", "peek"):
            await net("[method]tcp-stream.set-read-timeout", stream, 20)
            assert await net.case(f"[method]tcp-stream.{function}", stream, 1) == "would-block"
            await net("[method]tcp-stream.set-read-timeout", stream, 0)
            assert await net.case(f"[method]tcp-stream.{function}", stream, 1) == "would-block"
        await peer.send_all(b"x")
        await until(stream.ready)
        assert await net("[method]tcp-stream.read-bytes", stream, 1) == b"x"


async def test_without_a_timeout_a_handler_waits_so_long_and_a_run_loop_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert poll.HANDLER_S == 120
    monkeypatch.setattr(poll, "HANDLER_S", 0.02)
    async with connected() as (net, stream, _):
        assert await net.case("[method]tcp-stream.read-bytes", stream, 1) == "timeout"
    async with connected(call(follows=True)) as (net, stream, peer):
        async with trio.open_nursery() as nursery:

            async def late() -> None:
                await trio.sleep(0.1)
                await peer.send_all(b"late")

            nursery.start_soon(late)
            assert await net("[method]tcp-stream.read-bytes", stream, 10) == b"late"


async def test_one_read_takes_ten_mebibytes_at_most_and_zero_bytes_at_once() -> None:
    async with connected() as (net, stream, peer):
        assert await net("[method]tcp-stream.read-bytes", stream, 0) == b""
        assert await net("[method]tcp-stream.peek", stream, 0) == b""
        got = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, bytes(12 * MIB))
            while got < 12 * MIB:
                data = await net("[method]tcp-stream.read-bytes", stream, (1 << 32) - 1)
                assert 0 < len(data) <= 10 * MIB
                got += len(data)


async def test_a_write_takes_what_the_socket_does_and_waits_while_it_takes_nothing() -> None:
    async with connected() as (net, stream, peer):
        sent = await fill(net, stream)
        assert 0 < sent < 100 * MIB
        async with trio.open_nursery() as nursery:
            nursery.start_soon(net, "[method]tcp-stream.write-bytes", stream, b"end")
            got = b""
            while len(got) < sent + 3:
                got += await peer.receive_some(1 << 20)
        assert got == bytes(sent) + b"end"
        assert await net("[method]tcp-stream.write-bytes", stream, b"") == 0
        await net("[method]tcp-stream.set-write-timeout", stream, 0)
        assert await net("[method]tcp-stream.write-bytes", stream, b"at once") == 7
        await net("[method]tcp-stream.write", stream, b"at once")


async def test_a_peer_that_ended_its_half_can_still_be_written_to() -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(b"last")
        await peer.send_eof()
        assert await net("[method]tcp-stream.read-bytes", stream, 10) == b"last"
        assert await net("[method]tcp-stream.read-bytes", stream, 10) == b""
        assert await net("[method]tcp-stream.read-bytes", stream, 10) == b""
        await net("[method]tcp-stream.write-bytes", stream, b"still")
        assert await peer.receive_some() == b"still"


@pytest.mark.parametrize("how", ["receive", "send", "both"])
async def test_a_guest_ends_a_direction_or_both(how: str) -> None:
    async with connected() as (net, stream, peer):
        await net("[method]tcp-stream.shutdown", stream, how)
        if how != "send":
            assert await net("[method]tcp-stream.read-bytes", stream, 1) == b""
        if how != "receive":
            assert await peer.receive_some() == b""
            assert await net.case("[method]tcp-stream.write-bytes", stream, b"x") == "connection-reset"
            assert await net.case("[method]tcp-stream.write", stream, b"x") == "connection-reset"
        else:
            await net("[method]tcp-stream.write-bytes", stream, b"x")
            assert await peer.receive_some() == b"x"


async def test_ending_both_directions_twice_is_closed_once_the_peer_went() -> None:
    async with connected() as (net, stream, peer):
        reset(peer)
        await until(stream.ready)
        assert await net.case("[method]tcp-stream.read-bytes", stream, 1) == "connection-reset"
        assert await net.case("[method]tcp-stream.shutdown", stream, "both") == "closed"
        assert await net.case("[method]tcp-stream.peer-addr", stream) == "closed"


async def test_a_peer_that_breaks_off_wakes_who_reads() -> None:
    async with connected() as (net, stream, peer):
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                assert await net.case("[method]tcp-stream.read-bytes", stream, 1) == "connection-reset"

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            reset(peer)
        assert await net.case("[method]tcp-stream.write-bytes", stream, b"x") == "connection-reset"
