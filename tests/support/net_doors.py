"""Capsules' Unix sockets for tests: where they are, who is let in, and peers that knock."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from net_functions import Functions, frame, functions

TOKEN = bytes(range(32))
PEERS: list[trio.SocketStream] = []  # of one test


class Door:
    """Where the socket is, and who knows what."""

    token = TOKEN
    version = "1.2.3"
    unclaimed = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, bytes, str]] = []
        self.speakers: list[str | None] = []

    def path(self, call: Any) -> str:
        return str(self.folder / f"{call.capsule.id}.sock")

    def verifies(self, principal: str, message: bytes, signature: str) -> bool:
        self.asked.append((principal, message, signature))
        return signature == f"{principal}'s own"

    def heard(self, call: Any, principal: str | None) -> None:
        self.speakers.append(principal)


@asynccontextmanager
async def unix(door: Door) -> AsyncIterator[tuple[Functions, Any, str]]:
    """The functions, a listener, and its path."""
    async with functions(doorway=door) as net:
        listener = await net("bind-unix")
        try:
            yield net, listener, str(door.folder / "sockets.sock")
        finally:
            while PEERS:
                PEERS.pop().socket.close()


async def knock(path: str) -> trio.SocketStream:
    stream = await trio.open_unix_socket(path)
    PEERS.append(stream)
    return stream


async def hello(path: str, **fields: Any) -> trio.SocketStream:
    """Connect and begin a handshake."""
    stream = await knock(path)
    request = {"token": TOKEN.hex(), "protocol_version": 1, "client_version": "test", **fields}
    await stream.send_all(frame(json.dumps(request).encode()))
    return stream


async def answer(stream: trio.SocketStream) -> dict[str, Any]:
    got = b""
    while len(got) < 4 or len(got) < 4 + struct.unpack(">I", got[:4])[0]:
        more = await stream.receive_some()
        assert more, "the host hung up"
        got += more
    found: dict[str, Any] = json.loads(got[4:])
    return found
