"""The host functions of `tcp-stream`: frames, bytes, streams, timeouts and options.

A read waits as long as its read timeout says, then it is `would-block`; without one 120 s, then it is `timeout`, or as long as
it takes in a run loop. Writes likewise. (Astrid, net: streams.)
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING

from astrid_host.errors import HostError
from astrid_host.hostcalls.addresses import shown
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io import Readiness, patience
from astrid_host.hostcalls.ipc import has_messages
from astrid_host.hostcalls.net.connection import CALL_BYTES, Connection, ReadHalf, WriteHalf
from astrid_host.hostcalls.net.errors import socket_error

if TYPE_CHECKING:
    from astrid_host.abi import Variant
    from astrid_host.hostcalls.net.handshake import Doorway
    from astrid_host.scheduler import Call

HOPS = 255
KEEPALIVE_S = 32_767
_LINGER = struct.Struct("ii")
if sys.platform == "darwin":
    _IDLE = socket.TCP_KEEPALIVE
else:
    _IDLE = socket.TCP_KEEPIDLE


def _target(connection: Connection, *_: object) -> str:
    return connection.target


class TcpStreams(Interface):
    """The host functions of `tcp-stream`.

    Args:
        doorway: learns whose frames guests read, if capsules have Unix sockets.

    Each raises HostError `closed` once the connection is, and `connection-reset` when the peer broke it off.
    """

    wit = ("astrid:net/host@1.0.0",)

    def __init__(self, doorway: Doorway | None = None) -> None:
        self._doorway = doorway

    @hostcall("[method]tcp-stream.read", audited=_target)
    async def read(self, call: Call, stream: Connection) -> Variant:
        """The next frame, as `Connection.frame` gives it. A guest that has messages to take does not wait for its header."""
        principal = None
        try:
            status = await stream.frame(patient=not has_messages(call))
            principal = stream.principal if status.case == "data" else None
        finally:
            if self._doorway is not None:
                self._doorway.heard(call, principal)
        return status

    @hostcall("[method]tcp-stream.write", audited=_target)
    async def write(self, call: Call, stream: Connection, data: bytes) -> None:
        """Send one frame, as `Connection.send_frame` does."""
        await stream.send_frame(data, *_bound(call, stream.write_timeout))

    @hostcall("[method]tcp-stream.read-bytes", audited=_target)
    async def read_bytes(self, call: Call, stream: Connection, max_bytes: int) -> bytes:
        """What has arrived, up to `max_bytes` and 10 MiB, waiting for the first byte; empty at the end."""
        stream.check_open()
        most = min(max_bytes, CALL_BYTES)
        if not most:
            return b""
        return await stream.attempt(lambda: stream.take(most), stream.readable, *_bound(call, stream.read_timeout))

    @hostcall("[method]tcp-stream.write-bytes", audited=_target)
    async def write_bytes(self, call: Call, stream: Connection, data: bytes) -> int:
        """Send what is taken at once, waiting until something is; says how many bytes that were."""
        return await stream.send(data, *_bound(call, stream.write_timeout))

    @hostcall("[method]tcp-stream.peek", audited=_target)
    async def peek(self, call: Call, stream: Connection, max_bytes: int) -> bytes:
        """As `read-bytes`, without taking it."""
        stream.check_open()
        most = min(max_bytes, CALL_BYTES)
        if not most:
            return b""
        return await stream.attempt(lambda: stream.peek(most), stream.readable, *_bound(call, stream.read_timeout))

    @hostcall("[method]tcp-stream.shutdown", audited=_target)
    async def shutdown(self, call: Call, stream: Connection, how: str) -> None:
        """End one direction or both; what was written goes out before."""
        await stream.shut_down(how, _bound(call, stream.write_timeout)[0])

    @hostcall("[method]tcp-stream.peer-addr", audited=_target)
    def peer_addr(self, _call: Call, stream: Connection) -> str:
        """Who is there. `not-tcp` for a Unix connection, as all that follows but timeouts."""
        _check_tcp(stream)
        try:
            return shown(*stream.sock.getpeername()[:2])
        except OSError as error:
            raise socket_error(error) from error

    @hostcall("[method]tcp-stream.local-addr", audited=_target)
    def local_addr(self, _call: Call, stream: Connection) -> str:
        """The own address."""
        _check_tcp(stream)
        return shown(*stream.sock.getsockname()[:2])

    @hostcall("[method]tcp-stream.set-nodelay", audited=_target)
    def set_nodelay(self, _call: Call, stream: Connection, nodelay: bool) -> None:
        """Send small pieces at once."""
        _set(stream, socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nodelay))

    @hostcall("[method]tcp-stream.nodelay", audited=_target)
    def nodelay(self, _call: Call, stream: Connection) -> bool:
        """Whether it does."""
        return bool(_get(stream, socket.IPPROTO_TCP, socket.TCP_NODELAY))

    @hostcall("[method]tcp-stream.set-read-timeout", audited=_target)
    def set_read_timeout(self, _call: Call, stream: Connection, timeout_ms: int | None) -> None:
        """How long a read waits, in milliseconds; 0 not at all."""
        stream.check_open()
        stream.read_timeout = timeout_ms

    @hostcall("[method]tcp-stream.read-timeout", audited=_target)
    def read_timeout(self, _call: Call, stream: Connection) -> int | None:
        """How long a read waits."""
        stream.check_open()
        return stream.read_timeout

    @hostcall("[method]tcp-stream.set-write-timeout", audited=_target)
    def set_write_timeout(self, _call: Call, stream: Connection, timeout_ms: int | None) -> None:
        """How long a write waits, in milliseconds; 0 not at all."""
        stream.check_open()
        stream.write_timeout = timeout_ms

    @hostcall("[method]tcp-stream.write-timeout", audited=_target)
    def write_timeout(self, _call: Call, stream: Connection) -> int | None:
        """How long a write waits."""
        stream.check_open()
        return stream.write_timeout

    @hostcall("[method]tcp-stream.set-hop-limit", audited=_target)
    def set_hop_limit(self, _call: Call, stream: Connection, hops: int) -> None:
        """How many routers a packet may pass: 1 to 255, else `unknown`."""
        if not 1 <= hops <= HOPS:
            raise HostError("unknown", f"a hop limit is 1 to {HOPS}", detail=f"a hop limit of {hops}")
        _set(stream, *_hops(stream), hops)

    @hostcall("[method]tcp-stream.hop-limit", audited=_target)
    def hop_limit(self, _call: Call, stream: Connection) -> int:
        """How many routers a packet may pass."""
        return _get(stream, *_hops(stream))

    @hostcall("[method]tcp-stream.set-keepalive", audited=_target)
    def set_keepalive(self, _call: Call, stream: Connection, keepalive_secs: int | None) -> None:
        """Probe an idle connection after so many seconds, 1 to 32,767, and so often; none never."""
        if keepalive_secs is not None:
            seconds = min(max(keepalive_secs, 1), KEEPALIVE_S)
            _set(stream, socket.IPPROTO_TCP, _IDLE, seconds)
            _set(stream, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
        _set(stream, socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(keepalive_secs is not None))

    @hostcall("[method]tcp-stream.keepalive", audited=_target)
    def keepalive(self, _call: Call, stream: Connection) -> int | None:
        """How often it is probed, in seconds."""
        if not _get(stream, socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            return None
        return _get(stream, socket.IPPROTO_TCP, _IDLE)

    @hostcall("[method]tcp-stream.set-linger", audited=_target)
    def set_linger(self, _call: Call, stream: Connection, linger_ms: int | None) -> None:
        """How long closing waits for what is unsent. 0 breaks the connection off; otherwise the system goes on sending after
        the close, for which the host never waits, whatever the time."""
        _check_tcp(stream)
        try:
            stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(int(linger_ms == 0), 0))
        except OSError as error:
            raise socket_error(error) from error
        stream.linger = linger_ms

    @hostcall("[method]tcp-stream.linger", audited=_target)
    def linger(self, _call: Call, stream: Connection) -> int | None:
        """How long closing waits, in milliseconds, as it was set."""
        _check_tcp(stream)
        return stream.linger

    @hostcall("[method]tcp-stream.set-reuseaddr", audited=_target)
    def set_reuseaddr(self, _call: Call, stream: Connection, reuse: bool) -> None:
        """Take an address that was in use."""
        _set(stream, socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))

    @hostcall("[method]tcp-stream.reuseaddr", audited=_target)
    def reuseaddr(self, _call: Call, stream: Connection) -> bool:
        """Whether it does."""
        return bool(_get(stream, socket.SOL_SOCKET, socket.SO_REUSEADDR))

    @hostcall("[method]tcp-stream.subscribe-readable", audited=_target)
    def subscribe_readable(self, _call: Call, stream: Connection) -> Readiness:
        """A pollable that is ready when something arrived, or the end."""
        return Readiness(stream)

    @hostcall("[method]tcp-stream.read-stream", audited=_target)
    def read_stream(self, _call: Call, stream: Connection) -> ReadHalf:
        """What arrives, as a stream; it ends with the connection."""
        return ReadHalf(stream)

    @hostcall("[method]tcp-stream.write-stream", audited=_target)
    def write_stream(self, _call: Call, stream: Connection) -> WriteHalf:
        """What is sent, as a stream; it ends with the connection, and what is not out by then is lost."""
        return WriteHalf(stream)


def _bound(call: Call, timeout_ms: int | None) -> tuple[float, str]:
    """How many seconds to wait, and the case of the error after that."""
    return (patience(call), "timeout") if timeout_ms is None else (timeout_ms / 1000, "would-block")


def _check_tcp(stream: Connection) -> None:
    stream.check_open()
    if not stream.is_tcp:
        raise HostError("not-tcp", detail="a Unix connection has no such thing")


def _hops(stream: Connection) -> tuple[int, int]:
    if stream.sock.family == socket.AF_INET6:
        return socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS
    return socket.IPPROTO_IP, socket.IP_TTL


def _set(stream: Connection, level: int, option: int, value: int) -> None:
    _check_tcp(stream)
    try:
        stream.sock.setsockopt(level, option, value)
    except OSError as error:
        raise socket_error(error) from error


def _get(stream: Connection, level: int, option: int) -> int:
    _check_tcp(stream)
    try:
        return stream.sock.getsockopt(level, option)
    except OSError as error:
        raise socket_error(error) from error
