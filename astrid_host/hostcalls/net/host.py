"""The host functions of astrid:net that make connections and listeners, and those of listeners.

Checks come in one order: form, the manifest's row, loopback, quota, airlock. (Astrid, net.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from astrid_host.errors import HostError
from astrid_host.gates.net import may_bind, may_bind_unix
from astrid_host.hostcalls.addresses import Airlock, asked_for, shown
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io import Background, Readiness, patience
from astrid_host.hostcalls.net.connecting import check_connect, connect, look_up, loopback
from astrid_host.hostcalls.net.connection import Connection
from astrid_host.hostcalls.net.errors import check_host, denied, socket_error, too_many
from astrid_host.hostcalls.net.handshake import Doorway
from astrid_host.hostcalls.net.listeners import TcpListener, UnixListener, bind_tcp, bind_unix

if TYPE_CHECKING:
    from astrid_host.scheduler import Call

STREAMS = 8
LISTENERS = 4
POLL_ACCEPT_MS = 60_000


class Net(Interface):
    """The host functions of astrid:net but those of connections and datagrams.

    Args:
        background: where their waits run.
        airlock: which addresses may be connected to.
        doorway: where capsules' Unix sockets are; None when capsules have none.
    """

    wit = ("astrid:net/host@1.0.0",)

    def __init__(self, background: Background, airlock: Airlock, doorway: Doorway | None = None) -> None:
        self._background = background
        self._airlock = airlock
        self._doorway = doorway

    @hostcall("connect-tcp", audited=lambda host, port: f"tcp:{asked_for(host, port)}")
    async def connect_tcp(self, call: Call, host: str, port: int) -> Connection:
        """Connect, within 10 s.

        Raises:
            HostError: `address-not-available` for what is no host; `capability-denied` without a row `host:port` or `host:*`
                of `net_connect`; `quota` beyond 8 connections; `name-unresolvable`; `airlock-rejected`;
                `connection-refused`; `timeout`.

        When the call is ended meanwhile, no socket is left behind.
        """
        check_connect(call.capsule.manifest, host, port)
        _check_streams(call)
        sock = await connect(self._airlock, host, port, call.capsule.id)
        return Connection(sock, asked_for(host, port), self._background)

    @hostcall("lookup-host", audited=str)
    async def lookup_host(self, call: Call, host: str) -> list[str]:
        """The addresses of a name that a row of `net_connect` has, within 10 s.

        Raises:
            HostError: `address-not-available`, `capability-denied`, `name-unresolvable`; `airlock-rejected` when they are
                not public, and the operator allows none of its rows.
        """
        return await look_up(call.capsule.manifest, self._airlock, host, call.capsule.id)

    @hostcall("bind-tcp", audited=lambda host, port: f"tcp:{asked_for(host, port)}")
    async def bind_tcp(self, call: Call, host: str, port: int) -> TcpListener:
        """Listen on a loopback address; port 0 for a free one.

        Raises:
            HostError: `capability-denied` without a row of `net_bind`; `airlock-rejected` for another address; `quota`
                beyond 4 listeners; `address-in-use`, `address-not-available`.
        """
        check_host(host)
        denial = may_bind(call.capsule.manifest, host, port)
        if denial is not None:
            raise denied(denial)
        address = loopback(host)
        if address is None:
            detail = f"{host!r} is not a loopback address: capsules listen on localhost, 127.0.0.0/8 and ::1 only"
            raise HostError("airlock-rejected", detail=detail)
        _check_listeners(call)
        try:
            sock = bind_tcp(address, port)
        except OSError as error:
            raise socket_error(error) from error
        return TcpListener(sock, f"tcp:{shown(*sock.getsockname()[:2])}", self._background)

    @hostcall("bind-unix", audited=lambda: "unix")
    async def bind_unix(self, call: Call) -> UnixListener:
        """Listen on the capsule's own socket.

        Raises:
            HostError: `capability-denied` without a row `unix:…` of `net_bind`; `quota` beyond 4 listeners;
                `address-in-use` when it listens there already; `address-not-available` when this host has no such sockets.
        """
        denial = may_bind_unix(call.capsule.manifest)
        if denial is not None:
            raise denied(denial)
        _check_listeners(call)
        if self._doorway is None:
            raise HostError("address-not-available", detail="this host has no sockets for capsules")
        try:
            path = self._doorway.path(call)
            sock = bind_unix(path)
        except OSError as error:
            raise socket_error(error) from error
        return UnixListener(sock, path, self._background, self._doorway)

    # Listeners.

    @hostcall("[method]tcp-listener.accept", audited=lambda listener: listener.target)
    async def tcp_accept(self, call: Call, listener: TcpListener) -> Connection:
        """Wait for the next connection: 120 s, then `timeout`, or as long as it takes in a run loop. `quota` beyond 8
        connections."""
        _check_streams(call)
        return await listener.attempt(listener.take, listener.readable, patience(call))

    @hostcall("[method]tcp-listener.poll-accept", audited=lambda listener, _: listener.target)
    async def tcp_poll_accept(self, call: Call, listener: TcpListener, timeout_ms: int) -> Connection | None:
        """The same for a time, 60 s at most; none when nobody came. `quota` beyond 8 connections."""
        _check_streams(call)
        seconds = min(timeout_ms, POLL_ACCEPT_MS) / 1000
        try:
            return await listener.attempt(listener.take, listener.readable, seconds, "would-block")
        except HostError as error:
            if error.case == "would-block":
                return None
            raise

    @hostcall("[method]tcp-listener.local-addr", audited=lambda listener: listener.target)
    def tcp_local_addr(self, _call: Call, listener: TcpListener) -> str:
        """Where it listens."""
        listener.check_open()
        return shown(*listener.sock.getsockname()[:2])

    @hostcall("[method]tcp-listener.subscribe-readiness", audited=lambda listener: listener.target)
    def tcp_subscribe_readiness(self, _call: Call, listener: TcpListener) -> Readiness:
        """A pollable that is ready when somebody waits."""
        return Readiness(listener)

    @hostcall("[method]unix-listener.accept", audited=lambda listener: listener.target)
    async def unix_accept(self, call: Call, listener: UnixListener) -> Connection:
        """Wait for the next peer that was let in: 120 s, then `timeout`, or as long as it takes in a run loop. `quota` beyond
        8 connections."""
        _check_streams(call)
        found = await _arrival(listener, patience(call))
        if found is None:
            raise HostError("timeout", detail="nobody connected")
        return found

    @hostcall("[method]unix-listener.poll-accept", audited=lambda listener, _: listener.target)
    async def unix_poll_accept(self, call: Call, listener: UnixListener, timeout_ms: int) -> Connection | None:
        """The same for a time, 60 s at most; none when nobody came, or beyond 8 connections."""
        if _streams(call) >= STREAMS:
            return None
        return await _arrival(listener, min(timeout_ms, POLL_ACCEPT_MS) / 1000)

    @hostcall("[method]unix-listener.subscribe-readiness", audited=lambda listener: listener.target)
    def unix_subscribe_readiness(self, _call: Call, listener: UnixListener) -> Readiness:
        """A pollable that is ready when somebody waits who was let in."""
        listener.serve()
        return Readiness(listener)


async def _arrival(listener: UnixListener, seconds: float) -> Connection | None:
    listener.check_open()
    listener.serve()
    with trio.move_on_after(seconds):
        while (found := listener.take()) is None:
            await listener.arrival()
            listener.check_open()
        return found
    return None


def _streams(call: Call) -> int:
    assert call.instance is not None, "a host function runs inside a call"
    return call.instance.handles.count(Connection)


def _check_streams(call: Call) -> None:
    if _streams(call) >= STREAMS:
        raise too_many("connections", STREAMS)


def _check_listeners(call: Call) -> None:
    assert call.instance is not None, "a host function runs inside a call"
    handles = call.instance.handles
    if handles.count(TcpListener) + handles.count(UnixListener) >= LISTENERS:
        raise too_many("listeners", LISTENERS)
