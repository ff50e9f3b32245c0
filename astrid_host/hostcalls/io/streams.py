"""astrid:io/streams and astrid:io/error: bytes that come and go.

What a stream is made of is for other packages to say: they give an `InputStream` or an `OutputStream`. Here is what guests do
with them: read, skip, write, flush and splice, at most 10 MiB a call, waiting where the function's name says so. A wait that
takes longer than it may fails the operation; the stream goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, cast

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io.poll import Pollable, Readiness, patience
from astrid_host.scheduler import Call

CALL_BYTES = 10 << 20  # of one call
SPLICE_BYTES = 1 << 16  # what splice and skip take at once


class StreamError:
    """What the handle of an `error` holds."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def stream_closed() -> HostError:
    """The `closed` of a stream-error: no more bytes will come or be taken."""
    return HostError("closed")


def stream_failed(text: str) -> HostError:
    """The `last-operation-failed` of a stream-error.

    Args:
        text: for people; the guest can read it.
    """
    error = HostError("last-operation-failed", detail=text)
    cast(Any, error).payload = StreamError(text)
    return error


class InputStream(Pollable, Protocol):
    """What the handle of an `input-stream` holds. It is ready when `read` would give bytes or raise."""

    def read(self, most: int) -> bytes:
        """What is there, at most `most` (1 or more) bytes; none when nothing came yet. From any thread, and at once.

        Raises:
            HostError: `stream_closed()` or `stream_failed()`.
        """
        ...

    async def readable(self) -> None:
        """Return when `read` would give bytes or raise. On the trio loop."""
        ...

    def close(self) -> None:
        """The guest dropped it."""
        ...


class OutputStream(Pollable, Protocol):
    """What the handle of an `output-stream` holds. It is ready when there is room, or when `room` would raise."""

    def room(self) -> int:
        """How many bytes `write` takes now. From any thread, and at once.

        Raises:
            HostError: `stream_closed()` or `stream_failed()`.
        """
        ...

    def write(self, data: bytes) -> None:
        """Take bytes, no more than there is room for, and bring them out by and by. From any thread, and at once.

        Raises:
            HostError: as `room`.
        """
        ...

    async def roomy(self) -> None:
        """Return when there is room, or `room` would raise. On the trio loop."""
        ...

    async def flushed(self) -> None:
        """Return when everything is out that was written before. On the trio loop.

        Raises:
            HostError: it cannot be brought out.
        """
        ...

    def close(self) -> None:
        """The guest dropped it."""
        ...


class Errors(Interface):
    """The host functions of astrid:io/error."""

    wit = ("astrid:io/error@1.0.0",)

    @hostcall("[method]error.to-debug-string")
    def to_debug_string(self, _call: Call, error: StreamError) -> str:
        """What went wrong, for people."""
        return error.text


class Streams(Interface):
    """The host functions of astrid:io/streams.

    Each raises HostError `closed` when no more bytes will come or be taken, `last-operation-failed` when the operation
    failed. Those that wait do so for 120 s, or without end in a run loop; when the call is ended meanwhile, so is the wait.
    """

    wit = ("astrid:io/streams@1.0.0",)

    @hostcall("[method]input-stream.read")
    def read(self, _call: Call, stream: InputStream, length: int) -> bytes:
        """What is there, up to `length` bytes and 10 MiB; may be empty."""
        return stream.read(min(length, CALL_BYTES)) if length else b""

    @hostcall("[method]input-stream.blocking-read")
    async def blocking_read(self, call: Call, stream: InputStream, length: int) -> bytes:
        """The same, waiting for at least one byte."""
        return await _some(call, stream, min(length, CALL_BYTES)) if length else b""

    @hostcall("[method]input-stream.skip")
    def skip(self, _call: Call, stream: InputStream, length: int) -> int:
        """Read and forget up to `length` bytes and 64 KiB; how many they were."""
        return len(stream.read(min(length, SPLICE_BYTES))) if length else 0

    @hostcall("[method]input-stream.blocking-skip")
    async def blocking_skip(self, call: Call, stream: InputStream, length: int) -> int:
        """The same, waiting for at least one byte."""
        return len(await _some(call, stream, min(length, SPLICE_BYTES))) if length else 0

    @hostcall("[method]input-stream.subscribe")
    def subscribe_input(self, _call: Call, stream: InputStream) -> Readiness:
        """A pollable that is ready when there is something to read, or the end."""
        return Readiness(stream)

    @hostcall("[method]output-stream.check-write")
    def check_write(self, _call: Call, stream: OutputStream) -> int:
        """How many bytes may be written now."""
        return stream.room()

    @hostcall("[method]output-stream.write")
    def write(self, _call: Call, stream: OutputStream, contents: bytes) -> None:
        """Write what `check-write` permitted; more fails, and nothing of it is written."""
        _write(stream, contents)

    @hostcall("[method]output-stream.blocking-write-and-flush")
    async def blocking_write_and_flush(self, call: Call, stream: OutputStream, contents: bytes) -> None:
        """Write up to 10 MiB, and return when they are out."""
        _check_size(len(contents))
        await _write_all(call, stream, contents)

    @hostcall("[method]output-stream.flush")
    def flush(self, _call: Call, stream: OutputStream) -> None:
        """What was written is on its way already; this only tells whether that can still be."""
        stream.room()

    @hostcall("[method]output-stream.blocking-flush")
    async def blocking_flush(self, call: Call, stream: OutputStream) -> None:
        """Return when everything is out that was written."""
        await _within(call, stream.flushed, "the peer takes nothing")

    @hostcall("[method]output-stream.subscribe")
    def subscribe_output(self, _call: Call, stream: OutputStream) -> Readiness:
        """A pollable that is ready when more may be written, or nothing ever again."""
        return Readiness(stream)

    @hostcall("[method]output-stream.write-zeroes")
    def write_zeroes(self, _call: Call, stream: OutputStream, length: int) -> None:
        """Write so many zeroes, no more than `check-write` permitted."""
        room = stream.room()
        if length > room:
            _too_much(length, room)
        stream.write(bytes(length))

    @hostcall("[method]output-stream.blocking-write-zeroes-and-flush")
    async def blocking_write_zeroes_and_flush(self, call: Call, stream: OutputStream, length: int) -> None:
        """Write up to 10 MiB of zeroes, and return when they are out."""
        _check_size(length)
        await _write_all(call, stream, bytes(length))

    @hostcall("[method]output-stream.splice")
    def splice(self, _call: Call, stream: OutputStream, src: InputStream, length: int) -> int:
        """Move what is there, up to `length` bytes, 64 KiB, and what `check-write` permits; how many they were."""
        return _splice(stream, src, length)

    @hostcall("[method]output-stream.blocking-splice")
    async def blocking_splice(self, call: Call, stream: OutputStream, src: InputStream, length: int) -> int:
        """The same, waiting for at least one byte and for room."""
        while length:
            await _within(call, stream.roomy, "the peer takes nothing")
            moved = _splice(stream, src, length)
            if moved:
                return moved
            await _within(call, src.readable, "nothing came")
        return 0


async def _some(call: Call, stream: InputStream, most: int) -> bytes:
    while True:
        data = stream.read(most)
        if data:
            return data
        await _within(call, stream.readable, "nothing came")


async def _write_all(call: Call, stream: OutputStream, contents: bytes) -> None:
    view = memoryview(contents)
    while view:
        await _within(call, stream.roomy, "the peer takes nothing")
        taken = min(stream.room(), len(view))
        stream.write(bytes(view[:taken]))
        view = view[taken:]
    await _within(call, stream.flushed, "the peer takes nothing")


def _write(stream: OutputStream, contents: bytes) -> None:
    room = stream.room()
    if len(contents) > room:
        _too_much(len(contents), room)
    if contents:
        stream.write(contents)


def _splice(stream: OutputStream, source: InputStream, length: int) -> int:
    most = min(length, stream.room(), SPLICE_BYTES)
    data = source.read(most) if most else b""
    if data:
        stream.write(data)
    return len(data)


async def _within(call: Call, wait: Callable[[], Awaitable[None]], what: str) -> None:
    seconds = patience(call)
    with trio.move_on_after(seconds):
        await wait()
        return
    raise stream_failed(f"{what} for {seconds:g} s")


def _check_size(length: int) -> None:
    if length > CALL_BYTES:
        raise stream_failed(f"{length} bytes in one call; {CALL_BYTES} are allowed")


def _too_much(length: int, room: int) -> NoReturn:
    raise stream_failed(f"{length} bytes were written where check-write permits {room}")
