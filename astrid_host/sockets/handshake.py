"""Frames of a handshake on a host's Unix socket: a big-endian length of four bytes, then JSON, 4,096 bytes at most.

Each step takes at most 5 s. A peer has to be of the host's user. (Astrid, net: Unix listeners.)
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import TypeVar

import msgspec
import trio

FRAME_BYTES = 4096
STEP_S = 5.0
VERSION = 1
HEADER = struct.Struct(">I")
UNAUTHENTICATED = "authentication failed"
_UCRED = struct.Struct("3i")

Asked = TypeVar("Asked", bound=msgspec.Struct)


class HandshakeFailed(Exception):
    """A peer that is not let in, and why."""


class Request(msgspec.Struct):
    """What a peer sends."""

    token: str
    protocol_version: int
    client_version: str = ""
    claimed_principal: str | None = None
    signature: str | None = None


class Response(msgspec.Struct, omit_defaults=True):
    """What it is answered; `challenge` is what it has to sign."""

    status: str
    protocol_version: int
    server_version: str
    reason: str | None = None
    challenge: str | None = None


def check_user(sock: socket.socket | trio.socket.SocketType) -> None:
    """Refuse a peer of another user.

    Raises:
        HandshakeFailed: it is one.
    """
    if sys.platform != "linux":  # elsewhere only the folder's mode keeps others out
        return
    _, user, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if user != os.geteuid():
        raise HandshakeFailed(UNAUTHENTICATED)


async def ask(stream: trio.socket.SocketType, kind: type[Asked]) -> Asked:
    """The next frame of a handshake.

    Raises:
        HandshakeFailed: it is too long, not what it has to be, or does not come in time.
        OSError: the connection broke.
    """
    with trio.move_on_after(STEP_S) as step:
        (length,) = HEADER.unpack(await _exactly(stream, HEADER.size))
        if length > FRAME_BYTES:
            raise HandshakeFailed(f"a handshake of {length} bytes; {FRAME_BYTES} are allowed")
        step.deadline = trio.current_time() + STEP_S
        text = await _exactly(stream, length)
        try:
            return msgspec.json.decode(text, type=kind)
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ) as error:  # the last of brackets within brackets
            raise HandshakeFailed(f"not a handshake: {error}") from error
    raise HandshakeFailed(f"no handshake within {STEP_S:g} s")


async def _exactly(stream: trio.socket.SocketType, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        data = await stream.recv(size - len(got))
        if not data:
            raise ConnectionResetError("the peer went away")
        got += data
    return bytes(got)


async def answer(stream: trio.socket.SocketType, response: msgspec.Struct) -> None:
    """Send a frame of a handshake.

    Raises:
        TimeoutError: the peer takes none.
        OSError: the connection broke.
    """
    text = msgspec.json.encode(response)
    left = memoryview(HEADER.pack(len(text)) + text)
    with trio.move_on_after(STEP_S):
        while left:
            left = left[await stream.send(left) :]
        return
    raise TimeoutError("the peer takes no answer")
