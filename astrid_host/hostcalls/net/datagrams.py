"""UDP sockets. Sending needs a `net_connect` row and the airlock's leave, as connecting does; opening one a `net_bind` row.

A socket on a loopback address hears everybody there; one on `0.0.0.0` or `::` hears only whom it sent to, so that no capsule
serves the network. What a name led to when it was first sent to is what it leads to for this socket. (Astrid, net: UDP.)
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

import msgspec

from astrid_host.errors import HostError
from astrid_host.gates.net import may_bind
from astrid_host.hostcalls.addresses import Airlock, asked_for, plain_host, shown
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io import Background, Readiness
from astrid_host.hostcalls.net.connecting import admitted, check_connect, loopback
from astrid_host.hostcalls.net.errors import check_host, denied, socket_error, too_many
from astrid_host.hostcalls.net.sockets import Endpoint

if TYPE_CHECKING:
    from astrid_host.scheduler import Call

SOCKETS = 8
PEERS = 256  # whom a socket has sent to: the oldest give way
DATAGRAM_BYTES = 65_535
SEND_S = 10.0
RECEIVE_S = 60.0
UNHEARD = 64  # datagrams of others that one receive passes over
_UNSPECIFIED = ("0.0.0.0", "::")

Address = tuple[str, int]


class Datagram(msgspec.Struct, gc=False):
    """`udp-datagram`."""

    data: bytes
    peer_host: str
    peer_port: int


class UdpSocket(Endpoint):
    """What the handle of a `udp-socket` holds.

    Attributes:
        peer: the only one it talks to, if it is connected.
        read_timeout: milliseconds that receiving waits; None not at all.
    """

    __slots__ = ("_known", "_open_to_all", "peer", "read_timeout")

    def __init__(self, sock: socket.socket, background: Background) -> None:
        address = sock.getsockname()
        super().__init__(sock, shown(*address[:2]), background)
        self._open_to_all = loopback(address[0]) is not None
        self._known: dict[tuple[str, int], Address] = {}
        self.peer: Address | None = None
        self.read_timeout: int | None = None

    async def resolve(self, airlock: Airlock, host: str, port: int, capsule: str) -> Address:
        """Where datagrams to a peer go; it is known from now on.

        Raises:
            HostError: `airlock-rejected`, `name-unresolvable`, `address-not-available` when it has no address of this
                socket's family.
        """
        key = plain_host(host), port
        known = self._known.get(key)
        if known is None:
            addresses = await admitted(airlock, host, port, capsule)
            of_kind = [a for a in addresses if (":" in a) == (self.sock.family == socket.AF_INET6)]
            if not of_kind:
                raise HostError(
                    "address-not-available", detail=f"{host!r} has no address that {self.target} can send to"
                )
            while len(self._known) >= PEERS:
                del self._known[next(iter(self._known))]
            known = self._known[key] = str(ipaddress.ip_address(of_kind[0])), port
        return known

    def receive(self, most: int) -> tuple[bytes, Address] | None:
        """The next datagram that is for the guest, cut to `most` bytes; None when there is none.

        Raises:
            OSError: what the system says.
        """
        for _ in range(UNHEARD):
            try:
                data, sender = self.sock.recvfrom(most)
            except (BlockingIOError, InterruptedError):
                return None
            address = sender[0], sender[1]
            if address == self.peer if self.peer is not None else self._hears(address):
                return data, address
        return None

    def _hears(self, address: Address) -> bool:
        return self._open_to_all or address in self._known.values()


class Datagrams(Interface):
    """The host functions of `udp-socket`.

    Args:
        background: where their waits run.
        airlock: which addresses may be sent to.
    """

    wit = ("astrid:net/host@1.0.0",)

    def __init__(self, background: Background, airlock: Airlock) -> None:
        self._background = background
        self._airlock = airlock

    @hostcall("udp-bind", audited=lambda host, port: f"udp:{asked_for(host, port)}")
    async def udp_bind(self, call: Call, host: str, port: int) -> UdpSocket:
        """Open a socket on a loopback address, or, with port 0, on `0.0.0.0` or `::`.

        Raises:
            HostError: `capability-denied` without a row of `net_bind`, `airlock-rejected` for any other address, `quota`
                beyond 8, `address-in-use`, `address-not-available`.
        """
        check_host(host)
        denial = may_bind(call.capsule.manifest, host, port)
        if denial is not None:
            raise denied(denial)
        address = loopback(host) or (plain_host(host) if plain_host(host) in _UNSPECIFIED and not port else None)
        if address is None:
            raise HostError(
                "airlock-rejected", detail=f"{host!r}:{port} is neither loopback nor 0.0.0.0 or :: with port 0"
            )
        assert call.instance is not None, "a host function runs inside a call"
        if call.instance.handles.count(UdpSocket) >= SOCKETS:
            raise too_many("UDP sockets", SOCKETS)
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            try:
                sock.bind((address, port))
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            raise socket_error(error) from error
        return UdpSocket(sock, self._background)

    @hostcall("[method]udp-socket.send-to", audited=lambda _, __, host, port: f"udp:{asked_for(host, port)}")
    async def send_to(self, call: Call, udp: UdpSocket, data: bytes, peer_host: str, peer_port: int) -> int:
        """Send one datagram.

        Raises:
            HostError: `capability-denied` without a row of `net_connect`, `airlock-rejected`, `name-unresolvable`,
                `timeout` when the system takes it not within 10 s.
        """
        udp.check_open()
        check_connect(call.capsule.manifest, peer_host, peer_port)
        address = await udp.resolve(self._airlock, peer_host, peer_port, call.capsule.id)
        return await self._send(udp, data, address)

    @hostcall("[method]udp-socket.recv-from", audited=lambda udp, *_: udp.target)
    async def recv_from(self, _call: Call, udp: UdpSocket, max_bytes: int) -> Datagram | None:
        """The next datagram, cut to `max_bytes`; none when none came within the read timeout, or, without one, when none is
        there."""
        found = await self._receive(udp, max_bytes)
        return None if found is None else Datagram(found[0], *found[1])

    @hostcall("[method]udp-socket.connect", audited=lambda _, host, port: f"udp:{asked_for(host, port)}")
    async def connect(self, call: Call, udp: UdpSocket, peer_host: str, peer_port: int) -> None:
        """Talk to one peer only: what others send is not received.

        Raises:
            HostError: as `send-to`.
        """
        udp.check_open()
        check_connect(call.capsule.manifest, peer_host, peer_port)
        udp.peer = await udp.resolve(self._airlock, peer_host, peer_port, call.capsule.id)

    @hostcall("[method]udp-socket.disconnect", audited=lambda udp: udp.target)
    def disconnect(self, _call: Call, udp: UdpSocket) -> None:
        """Talk to everybody again."""
        udp.check_open()
        udp.peer = None

    @hostcall("[method]udp-socket.send", audited=lambda udp, _: udp.target)
    async def send(self, _call: Call, udp: UdpSocket, data: bytes) -> int:
        """Send to the peer. `address-not-available` when there is none."""
        udp.check_open()
        if udp.peer is None:
            raise HostError("address-not-available", detail=f"{udp.target} is not connected to a peer")
        return await self._send(udp, data, udp.peer)

    @hostcall("[method]udp-socket.recv", audited=lambda udp, _: udp.target)
    async def recv(self, _call: Call, udp: UdpSocket, max_bytes: int) -> bytes | None:
        """The next datagram of the peer, as `recv-from`. `address-not-available` when there is none."""
        if udp.peer is None:
            raise HostError("address-not-available", detail=f"{udp.target} is not connected to a peer")
        found = await self._receive(udp, max_bytes)
        return None if found is None else found[0]

    @hostcall("[method]udp-socket.peer-addr", audited=lambda udp: udp.target)
    def peer_addr(self, _call: Call, udp: UdpSocket) -> str | None:
        """The peer, if there is one."""
        udp.check_open()
        return None if udp.peer is None else shown(*udp.peer)

    @hostcall("[method]udp-socket.set-read-timeout", audited=lambda udp, _: udp.target)
    def set_read_timeout(self, _call: Call, udp: UdpSocket, timeout_ms: int | None) -> None:
        """How long receiving waits, 60 s at most; none not at all."""
        udp.check_open()
        udp.read_timeout = timeout_ms

    @hostcall("[method]udp-socket.local-addr", audited=lambda udp: udp.target)
    def local_addr(self, _call: Call, udp: UdpSocket) -> str:
        """The own address."""
        udp.check_open()
        return udp.target

    @hostcall("[method]udp-socket.subscribe-readable", audited=lambda udp: udp.target)
    def subscribe_readable(self, _call: Call, udp: UdpSocket) -> Readiness:
        """A pollable that is ready when a datagram waits, whoever sent it."""
        return Readiness(udp)

    async def _send(self, udp: UdpSocket, data: bytes, address: Address) -> int:
        if len(data) > DATAGRAM_BYTES:
            text = f"a datagram of {len(data)} bytes; {DATAGRAM_BYTES} are allowed"
            raise HostError("unknown", text, detail=text)
        return await udp.attempt(lambda: udp.sock.sendto(data, address), udp.writable, SEND_S)

    async def _receive(self, udp: UdpSocket, max_bytes: int) -> tuple[bytes, Address] | None:
        most = min(max_bytes, DATAGRAM_BYTES)
        seconds = min((udp.read_timeout or 0) / 1000, RECEIVE_S)
        try:
            return await udp.attempt(lambda: udp.receive(most), udp.readable, seconds, "would-block")
        except HostError as error:
            if error.case == "would-block":
                return None
            raise
