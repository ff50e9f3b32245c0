"""The handshake on a capsule's Unix socket: frames of JSON, before the guest learns of the connection.

The peer has the host's user, knows the token, and may prove to be a principal by signing a challenge; without a claim it is
unauthenticated. Frames have at most 4,096 bytes, each step takes at most 5 s. (Astrid, net: Unix listeners.)
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
from typing import TYPE_CHECKING, Protocol

import trio

from astrid_host.sockets.handshake import (
    UNAUTHENTICATED,
    VERSION,
    HandshakeFailed,
    Request,
    Response,
    answer,
    ask,
    check_user,
)

if TYPE_CHECKING:
    from astrid_host.hostcalls.interface import Running

NONCE_BYTES = 32
_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANONYMOUS = "anonymous"


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
