"""Frames have bounds: how long one may take, and what all that are coming may take."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing

from astrid_host.control import frames
from astrid_host.control.frames import FRAME_BYTES, SMALL_BYTES, Frames, Share
from astrid_host.payloads import NIL_SOURCE, IpcMessage, from_value


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = trio.socket.socketpair()
    return trio.SocketStream(ours), trio.SocketStream(theirs)


def message(size: int) -> IpcMessage:
    return IpcMessage("x.y", from_value({"x": "x" * size}), NIL_SOURCE, 0.0)


@pytest.mark.parametrize("begun", [b"\0\0", struct.pack(">I", 10) + b"x", struct.pack(">I", FRAME_BYTES)])
async def test_a_frame_that_does_not_end_ends_the_connection(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_S", 0.05)
    ours, theirs = pair()
    async with ours, theirs:
        await theirs.send_all(begun)
        with pytest.raises(trio.BrokenResourceError, match="did not end within"):
            await Frames(ours).receive()


async def test_no_frame_at_all_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_S", 0.01)
    ours, theirs = pair()
    async with ours, theirs:
        with trio.move_on_after(0.05) as waited:
            await Frames(ours).receive()
        assert waited.cancelled_caught


async def test_who_waits_to_send_waits_no_longer_than_who_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SEND_S", 0.1)
    ours, theirs = pair()
    failed = 0
    async with ours, theirs:
        sender = Frames(ours)

        async def send() -> None:
            nonlocal failed
            with pytest.raises(trio.BrokenResourceError):
                await sender.send(message(1 << 20))
            failed += 1

        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(send)
    assert failed == 20


async def test_a_large_frame_waits_for_its_share_and_a_small_one_does_not() -> None:
    share = Share(FRAME_BYTES)
    arrived: list[str] = []
    first, to_first = pair()
    second, to_second = pair()
    third, to_third = pair()
    async with first, to_first, second, to_second, third, to_third:

        async def receive(name: str, stream: trio.SocketStream) -> None:
            got = await Frames(stream, share).receive()
            assert got is not None
            arrived.append(name)

        async with trio.open_nursery() as nursery:
            head = struct.pack(">I", FRAME_BYTES)
            await to_first.send_all(head)
            nursery.start_soon(receive, "first", first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(Frames(to_second).send, message(SMALL_BYTES + 1))
            nursery.start_soon(receive, "second", second)
            nursery.start_soon(Frames(to_third).send, message(10))
            nursery.start_soon(receive, "third", third)
            await trio.testing.wait_all_tasks_blocked()
            assert arrived == ["third"]
            await to_first.send_all(frame_of(FRAME_BYTES))
    assert arrived == ["third", "first", "second"]


def frame_of(size: int) -> bytes:
    """A frame's text of so many bytes."""
    text = b'{"topic":"x.y","source_id":"' + NIL_SOURCE.encode() + b'","payload":{}}'
    return text + b" " * (size - len(text))
