"""One peer of the control socket: what it sends is published, and what matches its patterns is sent to it.

A peer that says nothing about patterns gets what a front-end of Astrid's is sent: answers, questions to people, what became of
its requests, each on behalf of its principal. A frame on `astrid.v1.request.<x>` that is a kernel request is answered on
`astrid.v1.response.<x>`; some methods are answered here alone: `Publish`, `ExecuteTool`, `CancelTools`, `DescribeTools` and
`DescribeHost`.

A peer that sends what is no frame, or what may not be published, is told on `astrid.v1.control.refused` and goes on. One that
goes away ends what it has asked for: its calls are cancelled. Of what it asks for, 32 things are under way at a time; then it is
not read until one is done.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec
import trio

from astrid_host import __version__
from astrid_host.bus import Event
from astrid_host.control.executed import Approvals
from astrid_host.control.frames import Frames, Share
from astrid_host.control.greeting import About, Greeting
from astrid_host.control.limiter import ConnectionLimiter
from astrid_host.control.merging import Merged, merged
from astrid_host.control.policies import CallPolicies
from astrid_host.errors import AstridError, HostClosed, PayloadError
from astrid_host.host import Host
from astrid_host.payloads import NIL_SOURCE, IpcMessage, Payload, RawJson, from_value
from astrid_host.principals import check_principal
from astrid_host.sockets.handshake import VERSION, HandshakeFailed, Response, answer, ask, check_user
from astrid_host.topics import REQUESTS, RESPONSES, check_pattern, check_topic

log = logging.getLogger(__name__)

UNDER_WAY = 32
LOOK_S = 1.0
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


class Peer:
    """One peer, from its first byte to its last.

    Args:
        host: whom it talks to; made with these policies.
        policies: answer what its calls ask for.
        about: what it is told of the host.
        limiter: where it has a place, or is told that there is none.
        share: what its frames may take, with those of all others.

    Attributes:
        scope: cancelled, its connection is closed.
    """

    def __init__(
        self, host: Host, policies: CallPolicies, about: About, limiter: ConnectionLimiter, share: Share
    ) -> None:
        self._host = host
        self._policies = policies
        self._about = about
        self._limiter = limiter
        self._share = share
        self._heard = trio.current_time()
        self._free = trio.Semaphore(UNDER_WAY)
        self.scope = trio.CancelScope()
        self._methods: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
            "Publish": self._publish,
            "ExecuteTool": self._execute,
            "CancelTools": self._cancel,
            "DescribeTools": self._describe,
            "DescribeHost": self._describe_host,
        }

    @property
    def silent_since(self) -> float | None:
        """When it asked for something last; None while it waits for anything. Of who was let in."""
        greeting = self._greeting
        waits = greeting.subscribe is None or greeting.subscribe or greeting.observe
        return None if waits or self._free.value < UNDER_WAY else self._heard

    async def run(self, sock: trio.socket.SocketType) -> None:
        """Serve it until it goes away, or is sent away. What goes wrong is logged.

        Args:
            sock: just accepted; closed at the end.
        """
        try:
            with sock, self.scope:
                await self._run(sock)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, HandshakeFailed, HostClosed) as gone:
            log.debug("a peer of the control socket is gone: %s", gone.exceptions[0])
        except* Exception:
            log.exception("a peer of the control socket met a fault of the host")

    async def _run(self, sock: trio.socket.SocketType) -> None:
        async with AsyncExitStack() as stack:
            with self._limiter.shaking_hands(self):
                try:
                    self._greeting = await self._let_in(sock)
                    self._principal = self._greeting.claimed_principal or self._host.principal
                    if not self._limiter.let_in(self):
                        raise HandshakeFailed("the host is full: as many use it as may; close one, or try again later")
                    stack.callback(self._limiter.has_left, self)
                    events = await stack.enter_async_context(self._wanted())
                except HandshakeFailed as failed:
                    await answer(sock, Response("error", VERSION, __version__, reason=failed.args[0]))
                    await _take_leave(sock)
                    return
                await answer(sock, Response("ok", VERSION, __version__))
            await self._serve(sock, events)
            await _take_leave(sock)

    async def _serve(self, sock: trio.socket.SocketType, events: Merged) -> None:
        self._sock = sock
        self._frames = Frames(trio.SocketStream(sock), self._share)
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
            self._heard = trio.current_time()
            data = message.payload.data
            if isinstance(data, RawJson) and message.topic.startswith(REQUESTS) and isinstance(data.get("method"), str):
                await self._is_asked(message, data["method"], data.get("params") or {})
            else:
                await self._published(message)

    async def _is_asked(self, message: IpcMessage, method: str, params: Any) -> None:
        """Begin with what a peer asks for, once it has not too much under way."""
        topic = RESPONSES + message.topic.removeprefix(REQUESTS)
        try:
            check_topic(topic)
        except ValueError as error:
            await self._tell(REFUSED, {"topic": message.topic, "reason": str(error)})
            return
        while self._free.value == 0:
            with trio.move_on_after(LOOK_S):
                await self._free.acquire()
                break
            if _hung_up(self._sock):  # what it sent meanwhile is not read, so its end is not reached
                raise trio.BrokenResourceError("the peer went away")
        else:
            self._free.acquire_nowait()
        self._nursery.start_soon(self._asked, message, topic, method, params)

    async def _published(self, message: IpcMessage) -> None:
        """Publish what a peer sent, as its payload was read."""
        try:
            self._host.publish(message.topic, message.payload, principal=self._principal)
        except (ValueError, PayloadError) as error:
            await self._tell(REFUSED, {"topic": message.topic, "reason": str(error)})

    async def _asked(self, message: IpcMessage, topic: str, method: str, params: Any) -> None:
        try:
            own = self._methods.get(method)
            if own is None:
                await self._ask_kernel(message, topic)
                return
            try:
                status, data = "Success", await own(params)
            except (AstridError, ValueError, TypeError, msgspec.ValidationError) as error:
                status, data = "Error", str(error)
            try:
                await self._tell(topic, {"status": status, "data": data})
            except PayloadError as error:  # too long for a frame
                await self._tell(topic, {"status": "Error", "data": str(error)})
        finally:
            self._heard = trio.current_time()
            self._free.release()

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

    async def _describe_host(self, _params: Any) -> Any:
        return self._about


def _hung_up(sock: trio.socket.SocketType) -> bool:
    """Whether the peer has closed its end, whatever it sent before."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return bool(poll.poll(0))


async def _take_leave(sock: trio.socket.SocketType) -> None:
    """Let the peer read what it was sent last: closed with something unread, a socket takes that back."""
    with contextlib.suppress(OSError), trio.move_on_after(LEAVE_S):
        sock.shutdown(socket.SHUT_WR)
        while await sock.recv(1 << 16):
            pass


def _message(event: Event) -> IpcMessage:
    data = event.data if event.form is None else None  # it is not decoded while the frame waits for its peer
    payload = Payload(event.payload or b"null", data, event.form)
    return IpcMessage(event.topic, payload, event.source_id, event.time, seq=event.seq, principal=event.principal)
