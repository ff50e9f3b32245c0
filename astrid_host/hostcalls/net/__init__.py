"""astrid:net: connections, listeners, datagrams and names.

Connecting needs a row of `net_connect` and the airlock's leave, listening a row of `net_bind` and a loopback address. Sockets
belong to handles: they are closed when the guest drops them or its instance ends. A guest that waits for one is suspended, and
costs nothing until the socket is ready.
"""

from __future__ import annotations

from astrid_host.hostcalls.addresses import Airlock
from astrid_host.hostcalls.interface import Interface
from astrid_host.hostcalls.io import Background
from astrid_host.hostcalls.net.connection import Connection
from astrid_host.hostcalls.net.datagrams import Datagrams, UdpSocket
from astrid_host.hostcalls.net.handshake import Doorway
from astrid_host.hostcalls.net.host import Net
from astrid_host.hostcalls.net.listeners import TcpListener, UnixListener
from astrid_host.hostcalls.net.streams import TcpStreams

__all__ = [
    "Connection",
    "Datagrams",
    "Doorway",
    "Net",
    "TcpListener",
    "TcpStreams",
    "UdpSocket",
    "UnixListener",
    "interfaces",
]


def interfaces(background: Background, airlock: Airlock, doorway: Doorway | None = None) -> tuple[Interface, ...]:
    """All host functions of astrid:net.

    Args:
        background: where their waits run.
        airlock: which addresses may be connected to.
        doorway: where capsules' Unix sockets are; None when capsules have none.
    """
    return Net(background, airlock, doorway), TcpStreams(doorway), Datagrams(background, airlock)
