"""The client's end of the control socket: what a command does with a host that runs in another process.

Each call and each subscription has a connection of its own, so that none waits for another, and leaving one ends what it asked
for. What the host answers with an error raises `AstridError`; a host that goes away raises `HostClosed`.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import stat
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from astrid_host import __version__
from astrid_host.control.executed import Approvals, Executed
from astrid_host.control.frames import Frames
from astrid_host.control.greeting import About, Greeting
from astrid_host.errors import AstridError, HostClosed
from astrid_host.payloads import NIL_SOURCE, IpcMessage, from_value
from astrid_host.payloads.outside import HostEvent, Tool
from astrid_host.sockets.handshake import VERSION, HandshakeFailed, Response, answer, ask, check_user
from astrid_host.topics import REQUESTS

CONNECT_S = 5.0
GONE = "the host that runs has stopped, or was killed: start it again with `astrid-host run`"


class Running:
    """A host that runs in another process.

    Args:
        path: of its control socket.
        principal: on whose behalf everything is done.
    """

    def __init__(self, path: Path, principal: str) -> None:
        self.path = path
        self.principal = principal

    async def ask(self, method: str, **params: Any) -> Any:
        """Ask for one of the kernel's methods, or of the control socket's own.

        Returns:
            The answer's data.

        Raises:
            AstridError: it said that something is wrong, or is another user's.
            HostClosed: it went away, or does not answer.
            OSError: there is nothing to connect to.

        Cancelled, what was asked for is ended if it can be.
        """
        async with self._connected([]) as frames:
            topic = f"{REQUESTS}{uuid.uuid4()}"
            request = {"type": "raw_json", "method": method, "params": params}
            await frames.send(IpcMessage(topic, from_value(request), NIL_SOURCE, time.time()))
            message = await frames.receive()
        if message is None:
            raise HostClosed(GONE)
        said = message.payload.data
        if not isinstance(said, dict) or "status" not in said:
            raise AstridError(f"the host answered {method} with what is no answer: {said!r}")
        if said["status"] == "Error":
            raise AstridError(str(said.get("data")))
        return said.get("data")

    async def execute(
        self, name: str, arguments: Any, *, call_id: str, timeout: float, approvals: Approvals
    ) -> Executed:
        """Call a tool; see `Tools.execute`. `approvals` says who answers what it asks for.

        Raises:
            AstridError: as for `ask`.

        Cancelled, the call is cancelled.
        """
        given = {"name": name, "arguments": arguments, "call_id": call_id, "timeout": timeout, "approvals": approvals}
        return msgspec.convert(await self.ask("ExecuteTool", **given), Executed)

    async def describe(self) -> list[Tool]:
        """Its tools; see `Tools.describe`."""
        return msgspec.convert(await self.ask("DescribeTools"), list[Tool])

    async def about(self) -> About:
        """What it was started with."""
        return msgspec.convert(await self.ask("DescribeHost"), About)

    async def publish(self, topic: str, payload: Any) -> int:
        """Publish an event; see `Host.publish`.

        Raises:
            AstridError: it cannot be published, and why.
        """
        return int((await self.ask("Publish", topic=topic, payload=payload))["seq"])

    @asynccontextmanager
    async def subscribe(
        self, *patterns: str, observe: Sequence[str] = (), everybody: bool = False
    ) -> AsyncGenerator[Events]:
        """Receive events: those of the principal, or everybody's, in the order of `seq`.

        Args:
            patterns: of what is received.
            observe: patterns of what is only watched.
            everybody: of all principals.

        Iterating ends with `HostClosed` when the host stops.

        Raises:
            AstridError: a pattern can match nothing.
        """
        async with self._connected(patterns, observe, everybody) as frames:
            yield Events(frames)

    @asynccontextmanager
    async def _connected(
        self, patterns: Sequence[str], observe: Sequence[str] = (), everybody: bool = False
    ) -> AsyncGenerator[Frames]:
        _check_owner(self.path.parent)
        greeting = Greeting("", VERSION, __version__, self.principal)
        greeting.subscribe, greeting.observe, greeting.everybody = list(patterns), list(observe), everybody
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                with trio.fail_after(CONNECT_S):
                    await sock.connect(str(self.path))
                    response = await _let_in(sock, greeting)
            except trio.TooSlowError:
                raise HostClosed(f"the host at {self.path} does not answer within {CONNECT_S:g} s") from None
            if response.status != "ok":
                raise AstridError(response.reason or "the host let nobody in")
            try:
                yield Frames(trio.SocketStream(sock))
            except trio.BrokenResourceError:
                raise HostClosed(GONE) from None


def _check_owner(folder: Path) -> None:
    """Refuse a folder that somebody else may have put a socket in.

    Raises:
        AstridError: it is another user's, or no folder.
        OSError: it is not there.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise AstridError(
            f"{folder} is not a folder of this user's own, so no host of this user's runs there: remove it"
        )


async def _let_in(sock: trio.socket.SocketType, greeting: Greeting) -> Response:
    try:
        check_user(sock)
    except HandshakeFailed:
        raise AstridError("what answers on the control socket is another user's, and is told nothing") from None
    try:
        with contextlib.suppress(BrokenPipeError):  # who does not listen may have said why
            await answer(sock, greeting)
        return await ask(sock, Response)
    except OSError:
        raise HostClosed(GONE) from None
    except HandshakeFailed as failed:
        raise HostClosed(f"what answers on the control socket is no host of this version: {failed}") from None


class Events:
    """What a subscription receives: an endless iterator. Cancelled in the middle of a frame, it can only be left."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> HostEvent:
        try:
            message = await self._frames.receive()
        except trio.BrokenResourceError:
            raise HostClosed(GONE) from None
        if message is None:
            raise HostClosed(GONE)
        when = datetime.datetime.fromtimestamp(message.timestamp, datetime.UTC)
        payload = msgspec.json.decode(message.payload.guest)
        return HostEvent(message.topic, payload, message.source_id, message.principal, message.seq, when)
