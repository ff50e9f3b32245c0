"""The handshake on a capsule's Unix socket: frames of JSON, before the guest learns of the connection.

The peer has the host's user, knows the token, and may prove to be a principal by signing a challenge; without a claim it is
unauthenticated. Frames have at most 4,096 bytes, each step takes at most 5 s. (Astrid, net: Unix listeners.)
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import struct
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import trio

if TYPE_CHECKING:
    from astrid_host.syscalls.interface import Running

FRAME_BYTES = 4096
STEP_S = 5.0
VERSION = 1
NONCE_BYTES = 32
HEADER = struct.Struct(">I")
UNAUTHENTICATED = "authentication failed"
_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANONYMOUS = "anonymous"
_UCRED = struct.Struct("3i")


Asked = TypeVar("Asked", bound=msgspec.Struct)


class Doorway(Protocol):
    """Where capsules' Unix sockets are, and whom they let in."""

    @property
    def token(self) -> bytes:
        """What every peer has to know."""
        ...

    @property
    def version(self) -> str:
        """The host's, told to peers."""
        ...

    @property
    def unclaimed(self) -> str | None:
        """Whom a peer works as that claims to be nobody; None for nobody at all."""
        ...

    def path(self, call: Running) -> str:
        """The path of the socket of the call's capsule, at most 107 bytes, in a folder that is there and nobody else's. From
        the loop's thread, at once.

        Raises:
            OSError: there can be none.
        """
        ...

    def verifies(self, principal: str, message: bytes, signature: str) -> bool:
        """Whether a signature (hexadecimal, as the peer sent it) over a message is one of a key of that principal."""
        ...

    def heard(self, call: Running, principal: str | None) -> None:
        """The call's guest has read a frame from a connection: of a peer that proved to be that principal, or of another one
        (None); or it got no frame (None as well). What it publishes for others next is theirs. On the loop's thread."""
        ...


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


async def shake(sock: socket.socket, doorway: Doorway) -> str | None:
    """Let a peer in.

    Args:
        sock: just accepted; it stays the caller's.

    Returns:
        The principal that the peer proved to be; whom the doorway says when it claimed none.

    Raises:
        HandshakeFailed: it is not let in, and was told so.
        OSError: the connection broke.

    Cancelled, it stops where it is.
    """
    check_user(sock)
    stream = trio.socket.from_stdlib_socket(sock)
    try:
        principal = await _let_in(stream, doorway)
    except HandshakeFailed as failed:
        reason = failed.args[0]
        await answer(stream, Response("error", VERSION, doorway.version, reason=reason))
        raise
    await answer(stream, Response("ok", VERSION, doorway.version))
    return principal


async def _let_in(stream: trio.socket.SocketType, doorway: Doorway) -> str | None:
    request = await ask(stream, Request)
    # The version comes first: whoever speaks another one must not learn whether its token is right.
    if request.protocol_version != VERSION:
        raise HandshakeFailed(f"protocol version {request.protocol_version}: this host speaks {VERSION}")
    if not _knows(request.token, doorway.token):
        raise HandshakeFailed(UNAUTHENTICATED)
    claimed = request.claimed_principal
    if claimed is None:
        return doorway.unclaimed
    if not _PRINCIPAL.fullmatch(claimed) or claimed == _ANONYMOUS:
        raise HandshakeFailed(UNAUTHENTICATED)
    nonce = secrets.token_hex(NONCE_BYTES)
    await answer(stream, Response("ok", VERSION, doorway.version, challenge=nonce))
    signature = (await ask(stream, Request)).signature
    message = f"astrid-principal-auth:v1:{claimed}:{nonce}".encode()
    if signature is None or not doorway.verifies(claimed, message, signature):
        raise HandshakeFailed(UNAUTHENTICATED)
    return claimed


def _knows(given: str, token: bytes) -> bool:
    try:
        return hmac.compare_digest(bytes.fromhex(given), token)
    except ValueError:
        return False


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
