"""Framed reads and writes: a length and so many bytes, however they arrive and however slow the peer is."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from net_functions import MIB, connected, fill, frame, reset, until

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.hostcalls.io import poll
from astrid_host.hostcalls.net import connection

PENDING, CLOSED = Variant("pending"), Variant("closed")


async def test_a_frame_arrives_whole() -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(frame(b"one") + frame(b"") + frame(b"three"))
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"one")
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"")
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"three")


async def test_without_one_it_is_pending_after_50_ms() -> None:
    async with connected() as (net, stream, _):
        begun = trio.current_time()
        assert await net("[method]tcp-stream.read", stream) == PENDING
        assert 0.04 < trio.current_time() - begun < 1


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with connected() as (net, stream, peer):
        async with trio.open_nursery() as nursery:

            async def trickle() -> None:
                for byte in frame(b"hello") + frame(b"again"):
                    await peer.send_all(bytes([byte]))
                    await trio.sleep(0.001)

            nursery.start_soon(trickle)
            assert await net("[method]tcp-stream.read", stream) == Variant("data", b"hello")
            assert await net("[method]tcp-stream.read", stream) == Variant("data", b"again")


async def test_what_came_of_a_header_is_kept_while_it_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_S", 0.01)
    async with connected() as (net, stream, peer):
        for byte in frame(b"ab")[:4]:
            assert await net("[method]tcp-stream.read", stream) == PENDING
            await peer.send_all(bytes([byte]))
        await peer.send_all(b"ab")
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"ab")


@settings(max_examples=25)
@given(
    frames=st.lists(st.binary(max_size=300), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 400), max_size=12),
)
def test_however_frames_are_cut_they_arrive_as_they_were(frames: list[bytes], cuts: list[int]) -> None:
    async def check() -> None:
        async with connected() as (net, stream, peer):
            left = b"".join(map(frame, frames))
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    rest = left
                    for cut in cuts:
                        await peer.send_all(rest[:cut])
                        rest = rest[cut:]
                    await peer.send_all(rest)

                nursery.start_soon(send)
                for wanted in frames:
                    while (got := await net("[method]tcp-stream.read", stream)) == PENDING:
                        pass
                    assert got == Variant("data", wanted)

    trio.run(check)


async def test_frames_of_ten_mebibytes_go_both_ways() -> None:
    async with connected() as (net, stream, peer):
        big = bytes(range(256)) * (10 * MIB // 256)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, frame(big))
            assert (await net("[method]tcp-stream.read", stream)).value == big
        async with trio.open_nursery() as nursery:
            nursery.start_soon(net, "[method]tcp-stream.write", stream, big)
            got = bytearray()
            while len(got) < len(big) + 4:
                got += await peer.receive_some(MIB)
        assert got == frame(big)


async def test_a_larger_frame_is_refused_without_waiting_for_it() -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(struct.pack(">I", 10 * MIB + 1))
        for _ in range(2):
            with pytest.raises(HostError) as caught:
                await net("[method]tcp-stream.read", stream)
            assert (caught.value.case, caught.value.payload) == (
                "unknown",
                "a frame of 10485761 bytes; 10485760 are allowed",
            )
        assert await net.case("[method]tcp-stream.write", stream, bytes(10 * MIB + 1)) == "unknown"


async def test_the_length_alone_takes_no_memory() -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(struct.pack(">I", 10 * MIB) + b"x")
        with trio.move_on_after(0.02):
            await net("[method]tcp-stream.read", stream)
        assert len(stream._inbox) == 5


async def test_a_frame_that_stops_in_the_middle_times_out_and_can_be_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (connection.FRAME_S, connection.FRAME_S_PER_BYTE * 1024) == (5.0, 0.001)
    monkeypatch.setattr(connection, "FRAME_S", 0.02)
    async with connected() as (net, stream, peer):
        await peer.send_all(frame(b"hello")[:6])
        await until(stream.ready)
        assert await net.case("[method]tcp-stream.read", stream) == "timeout"
        await peer.send_all(b"llo")
        assert await net("[method]tcp-stream.read", stream) == Variant("data", b"hello")


@pytest.mark.parametrize("sent", [b"", b"\0\0", frame(b"hello")[:6]])
@pytest.mark.parametrize("breaks", [True, False])
async def test_a_peer_that_goes_is_closed_wherever_it_stopped(sent: bytes, breaks: bool) -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(sent)
        if breaks:
            reset(peer)
        else:
            await peer.aclose()
        assert await net("[method]tcp-stream.read", stream) == CLOSED
        if not breaks:
            assert await net("[method]tcp-stream.read", stream) == CLOSED


async def test_what_a_framed_read_left_bytes_are_read_of() -> None:
    async with connected() as (net, stream, peer):
        await peer.send_all(b"GE")
        assert await net("[method]tcp-stream.read", stream) == PENDING
        await peer.send_all(b"T /")
        assert await net("[method]tcp-stream.peek", stream, 1) == b"G"
        assert await net("[method]tcp-stream.read-bytes", stream, 9) == b"GE"
        assert await net("[method]tcp-stream.read-bytes", stream, 9) == b"T /"


async def test_a_write_to_a_slow_peer_waits_until_it_is_out() -> None:
    async with connected() as (net, stream, peer):
        await fill(net, stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(net, "[method]tcp-stream.write", stream, b"end")
            await trio.testing.wait_all_tasks_blocked()
            got = b""
            while not got.endswith(frame(b"end")):
                got += await peer.receive_some(MIB)


async def test_a_frame_that_is_not_out_in_time_stays_whole_and_the_next_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll, "HANDLER_S", 0.05)
    async with connected() as (net, stream, peer):
        taken = await fill(net, stream)
        assert await net.case("[method]tcp-stream.write", stream, b"first" * 1000) == "timeout"
        assert await net.case("[method]tcp-stream.write", stream, b"second") == "timeout"
        await net("[method]tcp-stream.set-write-timeout", stream, 10)
        assert await net.case("[method]tcp-stream.write", stream, b"third") == "would-block"
        assert await net.case("[method]tcp-stream.write-bytes", stream, b"third") == "would-block"
        assert await net.case("[method]tcp-stream.shutdown", stream, "send") == "timeout"
        got = 0
        while got < taken:
            got += len(await peer.receive_some(min(MIB, taken - got)))
        rest = b""
        while len(rest) < 5004:
            rest += await peer.receive_some(MIB)
        assert rest == frame(b"first" * 1000)
        await net("[method]tcp-stream.write", stream, b"fourth")
        assert await peer.receive_some() == frame(b"fourth")


async def test_a_peer_that_breaks_off_fails_the_write_that_waits_for_it() -> None:
    async with connected() as (net, stream, peer):
        await fill(net, stream)
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                assert await net.case("[method]tcp-stream.write", stream, b"x") == "connection-reset"

            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            reset(peer)
