"""Compressed bodies, taken apart some pieces at a time: however much a few bytes unfold to, no more than these exist. (Inside a
decoder there is its window besides, of 16 MiB at most.)

What is not compressed in a way that is known here is handed on as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from astrid_host.errors import HostError

PIECE_BYTES = 1 << 16
SOME_BYTES = 1 << 18
ACCEPTED = "gzip, deflate, br"
GZIP_WINDOW = 16 + zlib.MAX_WBITS
ZLIB_HEADER = 8  # the method in the low half of the first byte of a zlib stream


class Decoder(Protocol):
    """One body on its way."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """What these bytes unfold to, in pieces of about 64 KiB; to be used up before the next call.

        Raises:
            HostError: `protocol`, for bytes that are not in the encoding.
        """
        ...

    def finish(self) -> None:
        """The body is over.

        Raises:
            HostError: `protocol`, when it ends inside compressed data.
        """
        ...


def decoder_for(encoding: str) -> Decoder | None:
    """A decoder for what stands in `Content-Encoding`; None for an encoding that is not known, or several."""
    name = encoding.strip().lower()
    if name in ("gzip", "x-gzip"):
        return Inflate(GZIP_WINDOW)
    if name == "deflate":
        return Inflate(None)
    if name == "br":
        return Brotli()
    return None


def some_of(pieces: Iterator[bytes]) -> tuple[list[bytes], bool]:
    """The next pieces of what `Decoder.decode` gives, about 256 KiB, and whether these were the last. On any thread.

    Raises:
        HostError: as `Decoder.decode`.
    """
    some, size = [], 0
    for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size >= SOME_BYTES:
            return some, False
    return some, True


class Inflate:
    """`gzip`, of one or more members, and `deflate`, with the zlib header that it should have or without.

    Args:
        window: what zlib is told; None to see from the first byte.
    """

    def __init__(self, window: int | None) -> None:
        self._window = window
        self._more_members = window == GZIP_WINDOW
        self._inflate: Any = None  # of the member under way
        self._gave = self._ended = False  # whether that gave anything; whether one has ended before
        self._over = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._inflate is None:
                self._begin(data)
            piece = self._unfold(data)
            if piece:
                self._gave = True
                yield piece
            if self._inflate.eof:
                data = self._inflate.unused_data
                self._inflate, self._ended, self._over = None, True, not self._more_members
            else:
                # zlib may hold back what did not fit, though it has all its input.
                data = self._inflate.unconsumed_tail
                while not data and len(piece) == PIECE_BYTES and not self._inflate.eof:
                    piece = self._unfold(b"")
                    if piece:
                        yield piece

    def _begin(self, data: bytes) -> None:
        if self._window is None:
            zlib_header = data[0] & 0x0F == ZLIB_HEADER and data[0] >> 4 <= 7
            self._window = zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS
        self._inflate, self._gave = zlib.decompressobj(self._window), False

    def _unfold(self, data: bytes) -> bytes:
        try:
            return bytes(self._inflate.decompress(data, PIECE_BYTES))
        except zlib.error as error:
            if self._ended and not self._gave:  # what follows the last member is no other one: it is padding
                self._over, self._inflate = True, zlib.decompressobj()
                return b""
            raise HostError("protocol", "the body is not compressed as its headers say", detail=str(error)) from None

    def finish(self) -> None:
        if self._inflate is not None and not self._over and (self._gave or not self._ended) and not self._inflate.eof:
            raise HostError("protocol", "the body ends inside compressed data")


class Brotli:
    """`br`."""

    def __init__(self) -> None:
        import brotli  # type: ignore[import-untyped]

        self._brotli: Any = brotli.Decompressor()
        self._error: type[Exception] = brotli.error
        self._begun = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._begun = self._begun or bool(data)
        while not self._brotli.is_finished():
            try:
                piece = self._brotli.process(data, output_buffer_limit=PIECE_BYTES)
            except self._error as error:
                raise HostError(
                    "protocol", "the body is not compressed as its headers say", detail=str(error)
                ) from None
            data = b""
            if piece:
                yield piece
            elif self._brotli.can_accept_more_data():
                return

    def finish(self) -> None:
        if self._begun and not self._brotli.is_finished():
            raise HostError("protocol", "the body ends inside compressed data")
