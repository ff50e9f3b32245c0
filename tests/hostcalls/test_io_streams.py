"""astrid:io/streams: reading, writing, skipping, flushing and splicing, on a connection and on streams of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from net_functions import MIB, Functions, connected, fill, functions, names, reset, until

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import StreamError, poll, stream_closed, stream_failed

IN, OUT = "[method]input-stream.", "[method]output-stream."


async def halves(net: Functions, stream: Any) -> tuple[Any, Any]:
    return await net("[method]tcp-stream.read-stream", stream), await net("[method]tcp-stream.write-stream", stream)


async def failure(net: Functions, name: str, *arguments: Any) -> str:
    """The text of a `last-operation-failed`."""
    with pytest.raises(HostError) as caught:
        await net(name, *arguments)
    assert caught.value.case == "last-operation-failed"
    error: Any = caught.value.payload
    assert isinstance(error, StreamError)
    text: str = await net("[method]error.to-debug-string", error)
    return text


async def test_what_arrives_is_read() -> None:
    async with connected() as (net, stream, peer):
        source, _ = await halves(net, stream)
        assert await net(IN + "read", source, 10) == b""
        await peer.send_all(b"0123456789")
        await until(source.ready)
        assert await net(IN + "read", source, 0) == b""
        assert await net(IN + "read", source, 3) == b"012"
        assert await net(IN + "skip", source, 2) == 2
        assert await net(IN + "skip", source, 0) == 0
        assert await net(IN + "blocking-read", source, 0) == b""
        assert await net(IN + "blocking-read", source, 2**64 - 1) == b"56789"
        assert await net(IN + "skip", source, 9) == 0


@pytest.mark.parametrize(("name", "wanted"), [("blocking-read", b"late"), ("blocking-skip", 4)])
async def test_a_blocking_read_waits_for_the_first_byte(name: str, wanted: object) -> None:
    async with connected() as (net, stream, peer):
        source, _ = await halves(net, stream)
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await trio.testing.wait_all_tasks_blocked()
                await peer.send_all(b"late")

            nursery.start_soon(send)
            assert await net(IN + name, source, 10) == wanted
        assert await net(IN + "blocking-skip", source, 0) == 0


@pytest.mark.parametrize("name", ["read", "blocking-read", "skip", "blocking-skip"])
async def test_at_the_end_it_is_closed(name: str) -> None:
    async with connected() as (net, stream, peer):
        source, _ = await halves(net, stream)
        await peer.send_eof()
        await until(source.ready)
        for _ in range(2):
            assert await net.case(IN + name, source, 10) == "closed"
        assert source.ready()


async def test_a_connection_that_broke_fails_once_and_is_closed_then() -> None:
    async with connected() as (net, stream, peer):
        source, sink = await halves(net, stream)
        reset(peer)
        await until(source.ready)
        assert "reset" in await failure(net, IN + "read", source, 1)
        assert await net.case(IN + "read", source, 1) == "closed"
        assert "Broken pipe" in await failure(net, OUT + "blocking-write-and-flush", sink, b"x")
        assert await net.case(OUT + "check-write", sink) == "closed"
        assert sink.ready()


async def test_what_is_written_goes_out_by_itself() -> None:
    async with connected() as (net, stream, peer):
        _, sink = await halves(net, stream)
        room = await net(OUT + "check-write", sink)
        assert room == 256 * 1024
        await net(OUT + "write", sink, b"a" * room)
        await net(OUT + "flush", sink)
        await net(OUT + "write", sink, b"")
        await net(OUT + "write-zeroes", sink, 10)
        await net(OUT + "blocking-write-and-flush", sink, b"end")
        await net(OUT + "blocking-flush", sink)
        got = b""
        while len(got) < room + 13:
            got += await peer.receive_some()
        assert got == b"a" * room + bytes(10) + b"end"


async def test_no_more_is_taken_than_was_permitted() -> None:
    async with connected() as (net, stream, peer):
        _, sink = await halves(net, stream)
        permitted = await net(OUT + "check-write", sink)
        assert "check-write permits" in await failure(net, OUT + "write", sink, bytes(permitted + 1))
        assert "check-write permits" in await failure(net, OUT + "write-zeroes", sink, permitted + 1)
        assert "check-write permits" in await failure(net, OUT + "write-zeroes", sink, 2**64 - 1)
        await net(OUT + "blocking-write-and-flush", sink, b"x")
        assert await peer.receive_some() == b"x"


async def test_one_call_takes_ten_mebibytes_and_no_more() -> None:
    async with connected() as (net, stream, peer):
        _, sink = await halves(net, stream)
        assert "allowed" in await failure(net, OUT + "blocking-write-and-flush", sink, bytes(10 * MIB + 1))
        assert "allowed" in await failure(net, OUT + "blocking-write-zeroes-and-flush", sink, 2**64 - 1)
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                await net(OUT + "blocking-write-and-flush", sink, b"1" * (10 * MIB))
                await net(OUT + "blocking-write-zeroes-and-flush", sink, 10 * MIB)

            nursery.start_soon(write)
            got = bytearray()
            while len(got) < 20 * MIB:
                got += await peer.receive_some(MIB)
        assert got == b"1" * (10 * MIB) + bytes(10 * MIB)


async def test_while_the_peer_takes_nothing_there_is_no_room_and_then_there_is_again() -> None:
    async with connected() as (net, stream, peer):
        _, sink = await halves(net, stream)
        ready = await net(OUT + "subscribe", sink)
        sent = 0
        while room := await net(OUT + "check-write", sink):
            await net(OUT + "write", sink, bytes(room))
            sent += room
        assert not await net("[method]pollable.ready", ready)
        with trio.move_on_after(0.02) as scope:
            await net(OUT + "blocking-flush", sink)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(net, OUT + "blocking-flush", sink)
            got = 0
            while got < sent:
                got += len(await peer.receive_some(MIB))
        assert await net("[method]pollable.ready", ready)
        assert await net(OUT + "check-write", sink) == 256 * 1024


async def test_waiting_has_a_bound_and_the_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll, "HANDLER_S", 0.03)
    async with connected() as (net, stream, peer):
        source, sink = await halves(net, stream)
        assert await failure(net, IN + "blocking-read", source, 1) == "nothing came for 0.03 s"
        assert await failure(net, IN + "blocking-skip", source, 1) == "nothing came for 0.03 s"
        assert await failure(net, OUT + "blocking-splice", sink, source, 1) == "nothing came for 0.03 s"
        await peer.send_all(b"x")
        assert await net(IN + "blocking-read", source, 1) == b"x"
        await fill(net, stream)
        for name, argument in {"write": b"1", "write-zeroes": 2**20}.items():
            name = f"{OUT}blocking-{name}-and-flush"
            assert await failure(net, name, sink, argument) == "the peer takes nothing for 0.03 s"
        assert await failure(net, OUT + "blocking-flush", sink) == "the peer takes nothing for 0.03 s"
        assert await failure(net, OUT + "blocking-splice", sink, source, 1) == "the peer takes nothing for 0.03 s"


async def test_splicing_moves_what_is_there() -> None:
    async with connected() as (net, stream, peer):
        source, sink = await halves(net, stream)
        assert await net(OUT + "splice", sink, source, 10) == 0
        await peer.send_all(b"0123456789")
        await until(source.ready)
        assert await net(OUT + "splice", sink, source, 0) == 0
        assert await net(OUT + "splice", sink, source, 4) == 4
        assert await net(OUT + "blocking-splice", sink, source, 2**64 - 1) == 6
        assert await net(OUT + "blocking-splice", sink, source, 0) == 0
        got = b""
        while len(got) < 10:
            got += await peer.receive_some()
        assert got == b"0123456789"
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await trio.testing.wait_all_tasks_blocked()
                await peer.send_all(b"late")

            nursery.start_soon(send)
            assert await net(OUT + "blocking-splice", sink, source, 10) == 4
        await peer.send_eof()
        await until(source.ready)
        assert await net.case(OUT + "splice", sink, source, 1) == "closed"
        assert await net.case(OUT + "blocking-splice", sink, source, 1) == "closed"


INPUTS = [("read", (1,)), ("blocking-read", (1,)), ("skip", (1,)), ("blocking-skip", (1,))]
OUTPUTS: list[tuple[str, tuple[Any, ...]]] = [
    ("check-write", ()),
    ("write", (b"x",)),
    ("blocking-write-and-flush", (b"x",)),
    ("flush", ()),
    ("blocking-flush", ()),
    ("write-zeroes", (1,)),
    ("blocking-write-zeroes-and-flush", (1,)),
]


@pytest.mark.parametrize(("name", "arguments"), [*INPUTS, *OUTPUTS])
@pytest.mark.parametrize("dropped", ["connection", "stream"])
async def test_a_stream_ends_with_its_connection_and_when_it_is_dropped(
    name: str, arguments: tuple[Any, ...], dropped: str
) -> None:
    async with connected() as (net, stream, peer):
        source, sink = await halves(net, stream)
        one, prefix = (source, IN) if (name, arguments) in INPUTS else (sink, OUT)
        (stream if dropped == "connection" else one).close()
        assert await net.case(prefix + name, one, *arguments) == "closed"
        assert one.ready()
        if dropped == "stream":
            await net("[method]tcp-stream.write-bytes", stream, b"goes on")
            assert await peer.receive_some() == b"goes on"


async def test_splicing_with_a_stream_that_ended() -> None:
    async with connected() as (net, stream, peer):
        source, sink = await halves(net, stream)
        await peer.send_all(b"x")
        await until(source.ready)
        sink.close()
        for name in ("splice", "blocking-splice"):
            assert await net.case(OUT + name, sink, source, 1) == "closed"
        assert await net(IN + "read", source, 1) == b"x"


@pytest.mark.parametrize("waits", ["blocking-read", "blocking-flush"])
async def test_a_connection_that_is_dropped_wakes_who_waits_for_its_streams(waits: str) -> None:
    async with connected() as (net, stream, _):
        source, sink = await halves(net, stream)
        await fill(net, stream)
        while room := await net(OUT + "check-write", sink):
            await net(OUT + "write", sink, bytes(room))

        async def wait() -> None:
            arguments = (source, 1) if waits == "blocking-read" else (sink,)
            assert await net.case((IN if waits == "blocking-read" else OUT) + waits, *arguments) == "closed"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            stream.close()


class Trickle:
    """A stream of the test that gives a byte at a time, and fails at the end."""

    def __init__(self, data: bytes, error: Callable[[], HostError]) -> None:
        self.data = data
        self.error = error
        self.closed = False
        self.asked: list[int] = []

    def read(self, most: int) -> bytes:
        self.asked.append(most)
        if not self.data:
            raise self.error()
        byte, self.data = self.data[:1], self.data[1:]
        return byte

    async def readable(self) -> None:
        await trio.lowlevel.checkpoint()

    def ready(self) -> bool:
        return True

    def when_ready(self, wake: Callable[[], None]) -> None:
        wake()

    def close(self) -> None:
        self.closed = True


async def test_streams_of_other_packages_are_read_likewise() -> None:
    async with functions(resolve=names({})) as net:
        source = Trickle(b"ab", lambda: stream_failed("the disk is on fire"))
        assert await net(IN + "read", source, 2**64 - 1) == b"a"
        assert await net(IN + "blocking-skip", source, 2**64 - 1) == 1
        assert source.asked == [10 * MIB, 65_536]
        assert await failure(net, IN + "blocking-read", source, 1) == "the disk is on fire"
        ended = Trickle(b"", stream_closed)
        assert await net.case(IN + "read", ended, 1) == "closed"
        ready = await net(IN + "subscribe", ended)
        assert await net("[method]pollable.ready", ready)
        assert not hasattr(ready, "close"), "dropping a pollable must not close what it is about"
