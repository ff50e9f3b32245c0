"""Where a guest may connect to, and the connecting: gates first, then the airlock, then only the addresses that it admitted."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

import trio

from astrid_host.errors import HostError
from astrid_host.gates import quoted
from astrid_host.gates.net import may_connect
from astrid_host.hostcalls.addresses import AddressRefused, Airlock, NameUnresolved, plain_host
from astrid_host.hostcalls.net.errors import check_host, denied, socket_error

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

CONNECT_S = 10.0
LOOKUP_S = 10.0


async def admitted(airlock: Airlock, host: str, port: int, capsule: str) -> list[str]:
    """The numeric addresses of a host that may be connected to.

    Raises:
        HostError: `airlock-rejected`, `name-unresolvable`.
    """
    try:
        return await airlock.admit(host, port, capsule)
    except AddressRefused as error:
        raise HostError("airlock-rejected", detail=str(error)) from error
    except NameUnresolved as error:
        raise HostError("name-unresolvable", detail=str(error)) from error


def check_connect(manifest: Manifest, host: str, port: int) -> None:
    """
    Raises:
        HostError: `address-not-available` for what is no host, `capability-denied`.
    """
    check_host(host)
    denial = may_connect(manifest, host, port)
    if denial is not None:
        raise denied(denial)


async def connect(airlock: Airlock, host: str, port: int, capsule: str) -> socket.socket:
    """A connection to the first address of a host that takes it, within 10 s with the lookup. (Astrid, net: connect-tcp.)

    Raises:
        HostError: `airlock-rejected`, `name-unresolvable`, `timeout`, `connection-refused` and what else the last address
            answered.

    Cancelled, it leaves no socket behind.
    """
    with trio.move_on_after(CONNECT_S):
        addresses = await admitted(airlock, host, port, capsule)
        begun = trio.current_time()
        failure = HostError("timeout", detail=f"{host!r} did not answer")
        for tried, address in enumerate(addresses):
            # One that never answers may not use up the time of the others.
            share = (begun + CONNECT_S - trio.current_time()) / (len(addresses) - tried)
            with trio.move_on_after(share):
                try:
                    return await _connected(address, port)
                except OSError as error:
                    failure = socket_error(error)
        raise failure
    raise HostError("timeout", detail=f"{host!r} did not answer within {CONNECT_S:g} s")


async def _connected(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.setblocking(False)
        error = sock.connect_ex((address, port))
        if error == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        sock.close()
        raise
    return sock


async def look_up(manifest: Manifest, airlock: Airlock, host: str, capsule: str) -> list[str]:
    """The addresses of a host that some row of `net_connect` names, if they may be connected to at one of its ports.

    Raises:
        HostError: `address-not-available`, `capability-denied`, `airlock-rejected`, `name-unresolvable`.
    """
    check_host(host)
    ports = _ports(manifest, host)
    if not ports:
        rows = [*manifest.capabilities.net_connect, f"{plain_host(host)}:*"]
        line = f"[capabilities] net_connect = [{', '.join(map(quoted, rows))}]"
        detail = f"capsule {manifest.package.name!r} may not look up {host!r}: write in its Capsule.toml: {line}"
        raise HostError("capability-denied", detail=detail)
    refusal = HostError("name-unresolvable", detail=f"{host!r} was not found within {LOOKUP_S:g} s")
    with trio.move_on_after(LOOKUP_S):
        for port in ports:
            try:
                return await admitted(airlock, host, port, capsule)
            except HostError as error:  # the operator may have allowed another port
                refusal = error
                if error.case != "airlock-rejected":
                    break
    raise refusal


def _ports(manifest: Manifest, host: str) -> list[int]:
    """Those at which the host may be connected to; 0 stands for any."""
    found = []
    for row in manifest.capabilities.net_connect:
        text = row.rpartition(":")[2]
        port = int(text) if text.isdecimal() and text.isascii() and len(text) <= len("65535") else 0
        if port not in found and may_connect(manifest, host, port) is None:
            found.append(port)
    return found


def loopback(host: str) -> str | None:
    """The address of a host that is this machine's loopback: `localhost`, or an address of it; else None."""
    name = plain_host(host)
    if name == "localhost":
        return "127.0.0.1"
    try:
        return name if ipaddress.ip_address(name).is_loopback else None
    except ValueError:
        return None
