"""The server's end of the control socket: lets peers in, publishes what they send, and sends them what matches their patterns.

A peer that says nothing about patterns gets what a front-end of Astrid's is sent: answers, questions to people, what became of
its requests, each on behalf of its principal. A frame on `astrid.v1.request.<x>` that is a kernel request is answered on
`astrid.v1.response.<x>`; some methods are answered here alone: `Publish`, `ExecuteTool`, `CancelTools` and `DescribeTools`.

A peer that sends what is no frame, or what may not be published, is told on `astrid.v1.control.refused` and goes on. One that
goes away ends what it has asked for: its calls are cancelled. Nothing that a peer does ends the host.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import trio

from astrid_host import __version__
from astrid_host.bus import Event
from astrid_host.control.frames import Frames
from astrid_host.control.merging import Merged, merged
from astrid_host.control.policies import Approvals, CallPolicies
from astrid_host.errors import AstridError, HostClosed, PayloadError
from astrid_host.host import Host
from astrid_host.kernel_methods import REQUESTS, RESPONSES
from astrid_host.payloads import NIL_SOURCE, IpcMessage, Payload, RawJson, from_value
from astrid_host.principals import check_principal
from astrid_host.syscalls.net.handshake import VERSION, HandshakeFailed, Request, Response, answer, ask, check_user
from astrid_host.topics import check_pattern

log = logging.getLogger(__name__)

PEERS = 128
LEAVE_S = 1.0
REFUSED = "astrid.v1.control.refused"
FRONT_END = (
    "agent.v1.response",
    "agent.v1.stream.delta",
    "agent.v1.session_changed",
    "astrid.v1.approval",
    "astrid.v1.capsules_loaded",
    "astrid.v1.elicit.*",
    "astrid.v1.onboarding.required",
    "astrid.v1.response.*",
    "astrid.v1.admin.response.*",
    "registry.v1.response.*",
    "registry.v1.active_model_changed",
    "registry.v1.selection.*",
    "session.v1.response.*",
    "cli.v1.command.result.*",
)


class Greeting(Request):
    """What a peer sends first.

    Attributes:
        subscribe: patterns of what it wants to be sent; None for what a front-end is.
        observe: the same, but only watched: an event that nobody else receives is reported all the same.
        everybody: of all principals, not only its own.
    """

    subscribe: list[str] | None = None
    observe: list[str] = msgspec.field(default_factory=list)
    everybody: bool = False


class _Execute(msgspec.Struct):
    name: str
    arguments: Any = {}
    call_id: str | None = None
    timeout: float = 60.0
    approvals: Approvals = "ask"


class _Publish(msgspec.Struct):
    topic: str
    payload: Any = {}
    settle: bool = False


class _Cancel(msgspec.Struct):
    call_ids: list[str]


async def serve(
    host: Host, path: Path, policies: CallPolicies, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Listen until cancelled.

    Args:
        host: whom peers talk to; made with these policies.
        path: where; nothing is there, and its folder is this user's alone.
        policies: answer what calls of peers ask for.
        task_status: told when peers may connect.

    Raises:
        OSError: the socket cannot be made.
    """
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        await listening.bind(str(path))
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)  # the folder keeps others out until then
        listening.listen(PEERS)
        room = trio.CapacityLimiter(PEERS)
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                sock, _ = await listening.accept()
                nursery.start_soon(_Peer(host, policies).run, sock, room)


class _Peer:
    """One peer, from its first byte to its last."""

    def __init__(self, host: Host, policies: CallPolicies) -> None:
        self._host = host
        self._policies = policies
        self._methods: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
            "Publish": self._publish,
            "ExecuteTool": self._execute,
            "CancelTools": self._cancel,
            "DescribeTools": self._describe,
        }

    async def run(self, sock: trio.socket.SocketType, room: trio.CapacityLimiter) -> None:
        try:
            with sock:
                async with room:
                    await self._run(sock)
                    await _take_leave(sock)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, HandshakeFailed, HostClosed) as gone:
            log.debug("a peer of the control socket is gone: %s", gone.exceptions[0])
        except* Exception:
            log.exception("a peer of the control socket met a fault of the host")

    async def _run(self, sock: trio.socket.SocketType) -> None:
        async with AsyncExitStack() as stack:
            try:
                self._greeting = await self._let_in(sock)
                self._principal = self._greeting.claimed_principal or self._host.principal
                events = await stack.enter_async_context(self._wanted())
            except HandshakeFailed as failed:
                await answer(sock, Response("error", VERSION, __version__, reason=failed.args[0]))
                return
            await answer(sock, Response("ok", VERSION, __version__))
            self._frames = Frames(trio.SocketStream(sock))
            connections = self._host.methods.connections
            connections[self._principal] = connections.get(self._principal, 0) + 1
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._forward, events)
                    try:
                        await self._hear()
                    except trio.BrokenResourceError as gone:
                        log.debug("a peer of the control socket is gone: %s", gone)
                    nursery.cancel_scope.cancel()
            finally:
                connections[self._principal] -= 1
                if not connections[self._principal]:
                    del connections[self._principal]

    async def _let_in(self, sock: trio.socket.SocketType) -> Greeting:
        check_user(sock)
        greeting = await ask(sock, Greeting)
        if greeting.protocol_version != VERSION:
            raise HandshakeFailed(f"protocol version {greeting.protocol_version}: this host speaks {VERSION}")
        if greeting.claimed_principal is not None:
            try:
                check_principal(greeting.claimed_principal)
            except ValueError as error:
                raise HandshakeFailed(str(error)) from None
        return greeting

    def _wanted(self) -> AbstractAsyncContextManager[Merged]:
        greeting = self._greeting
        subscribe = FRONT_END if greeting.subscribe is None else greeting.subscribe
        principal = None if greeting.everybody else self._principal
        for pattern in (*subscribe, *greeting.observe):
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise HandshakeFailed(str(error)) from None
        return merged(self._host, subscribe, greeting.observe, principal)

    # From the host to the peer.

    async def _forward(self, events: Merged) -> None:
        while True:
            await self._frames.send(_message(await events.next_event()))

    async def _tell(self, topic: str, value: Any) -> None:
        message = IpcMessage(topic, from_value(value), NIL_SOURCE, time.time(), principal=self._principal)
        await self._frames.send(message)

    # From the peer to the host.

    async def _hear(self) -> None:
        while True:
            try:
                message = await self._frames.receive()
            except PayloadError as error:
                await self._tell(REFUSED, {"reason": str(error)})
                continue
            if message is None:
                return
            data = message.payload.data
            if isinstance(data, RawJson) and message.topic.startswith(REQUESTS) and isinstance(data.get("method"), str):
                self._nursery.start_soon(self._asked, message, data["method"], data.get("params") or {})
            else:
                await self._published(message)

    async def _published(self, message: IpcMessage) -> None:
        """Publish what a peer sent, as its payload was read."""
        try:
            self._host.publish(message.topic, message.payload, principal=self._principal)
        except (ValueError, PayloadError) as error:
            await self._tell(REFUSED, {"topic": message.topic, "reason": str(error)})

    async def _asked(self, message: IpcMessage, method: str, params: Any) -> None:
        topic = RESPONSES + message.topic.removeprefix(REQUESTS)
        own = self._methods.get(method)
        if own is None:
            await self._ask_kernel(message, topic)
            return
        try:
            status, data = "Success", await own(params)
        except (AstridError, ValueError, TypeError, msgspec.ValidationError) as error:
            status, data = "Error", str(error)
        await self._tell(topic, {"status": status, "data": data})

    async def _ask_kernel(self, message: IpcMessage, topic: str) -> None:
        """Let the kernel answer; a front-end hears all answers anyway."""
        if self._greeting.subscribe is None:
            await self._published(message)
            return
        async with self._host.subscribe(topic, principal=self._principal) as answers:
            await self._published(message)
            while (event := await answers.next_event()).source_id != NIL_SOURCE:
                pass
            await self._frames.send(_message(event))

    # The methods that are answered here.

    async def _publish(self, params: Any) -> Any:
        given = msgspec.convert(params, _Publish)
        return {"seq": self._host.publish(given.topic, given.payload, principal=self._principal, settle=given.settle)}

    async def _execute(self, params: Any) -> Any:
        given = msgspec.convert(params, _Execute)
        return await self._policies.execute(
            self._host.tools,
            given.name,
            given.arguments,
            principal=self._principal,
            call_id=given.call_id or f"call-{secrets.token_hex(4)}",
            timeout=given.timeout,
            approvals=given.approvals,
        )

    async def _cancel(self, params: Any) -> Any:
        await self._host.tools.cancel(msgspec.convert(params, _Cancel).call_ids, principal=self._principal)
        return {}

    async def _describe(self, _params: Any) -> Any:
        return await self._host.tools.describe(principal=self._principal)


async def _take_leave(sock: trio.socket.SocketType) -> None:
    """Let the peer read what it was sent last: closed with something unread, a socket takes that back."""
    with contextlib.suppress(OSError), trio.move_on_after(LEAVE_S):
        sock.shutdown(socket.SHUT_WR)
        while await sock.recv(1 << 16):
            pass


def _message(event: Event) -> IpcMessage:
    payload = Payload(event.payload or b"null", event.data)
    return IpcMessage(event.topic, payload, event.source_id, event.time, seq=event.seq, principal=event.principal)
