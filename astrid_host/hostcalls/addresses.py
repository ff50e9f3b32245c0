"""The airlock: which addresses a guest's connection may go to, whatever name it was asked for.

Only public unicast addresses pass. Loopback, private, link-local, shared, metadata, documentation, multicast and reserved ones
do not, nor do the same hidden in an IPv6 address; of a name each address must pass. The check is on what the resolver
answered, and the caller connects to exactly that answer, so a name that answers differently the next time gains nothing.
What the operator names (`--allow-local HOST:PORT`) passes. An address of this machine itself does not pass otherwise, however
public it is: what is meant for others only may listen there, behind a firewall that connections from inside do not meet.
(Astrid, http: the SSRF airlock.)

`AddressRefused` is for what may not be, `NameUnresolved` for what has no address; each interface has cases of its own for
them.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

RESOLVE_S = 10.0
LOOKUPS = 16  # names that are looked up at once: each holds a thread until the system's resolver answers
LOOKUPS_EACH = 4  # of one capsule, so that names that are never answered for hold up nobody else
ADDRESSES = 32  # of one name; what more there are is left out
NAME_BYTES = 253

# What is not public by the IANA registries of special-purpose addresses, and one public address that Azure serves its
# machines' metadata on. (Other clouds use 169.254.169.254, 100.100.100.200, 192.0.0.192 and fd00:ec2::254.)
_REFUSED_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Of IPv6 only global unicast is let through, without what tunnels (Teredo, 6to4) or documents.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_NOBODYS_V4, _NOBODYS_V6 = "192.0.2.1", "2001:db8::1"  # of documentation: no machine has them
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ROW = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]*]+):([0-9]{1,5})")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


class AddressRefused(Exception):
    """An address that guests may not connect to; the message names it and what the operator may allow."""


class NameUnresolved(Exception):
    """A name that has no address, or that the resolver does not answer for in 10 s."""


def plain_host(host: str) -> str:
    """A host as it is compared: lower case, without the brackets of an IPv6 address and the dot that ends a full name."""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host.lower().removesuffix(".")


def is_public(address: str) -> bool:
    """Whether guests may connect to a numeric address without the operator's leave.

    An IPv4 address inside an IPv6 one (mapped, or of the well-known NAT64 prefix) is judged as what it is. An address with a
    scope, and a text that is no address, are not public.
    """
    try:
        found: Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return False
        inner = found.ipv4_mapped
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is None:
            return found in _GLOBAL_V6 and not any(found in network for network in _REFUSED_V6)
        found = inner
    return not any(found in network for network in _REFUSED_V4)


def address_fault(address: str) -> str | None:
    """What an address is that guests may not connect to without the operator's leave; None when they may."""
    if not is_public(address):
        return "not a public address"
    if _is_here(address) and not _is_here(_NOBODYS_V6 if ":" in address else _NOBODYS_V4):
        return "an address of this machine"
    return None


def _is_here(address: str) -> bool:
    """Whether a socket can be bound to it: then it is this machine's, unless the system lets anything be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class Airlock:
    """Admits connections to addresses.

    Args:
        allow_local: what the operator allows, as `HOST:PORT` (an IPv6 address in brackets). A row with a name admits what
            that name resolves to; one with an address admits that address, also when a name leads to it.
        resolve: gives the numeric addresses of a name; the system's resolver by default. It raises `OSError` or answers
            nothing when there are none.

    Raises:
        ValueError: a row of `allow_local` is no `HOST:PORT`.
    """

    def __init__(self, allow_local: Sequence[str] = (), resolve: Resolve | None = None) -> None:
        self._allowed = {_allowed(row) for row in allow_local}
        self._resolve = resolve
        self._lookups = _Lookups()

    async def admit(self, host: str, port: int, capsule: str) -> list[str]:
        """The addresses of a host, all of which may be connected to: connect to these, and do not resolve again.

        Args:
            host: a name in ASCII, or an address (IPv6 with or without brackets).
            port: the operator's leave is for one port.
            capsule: who asks: the lookups of one capsule wait for each other, beyond 4, and not those of others for them.

        Returns:
            At least one numeric address, in the resolver's order, without repetitions.

        Raises:
            AddressRefused: an address of it is not public, or is this machine's, and the operator does not allow it.
            NameUnresolved: it has none.

        When cancelled, the lookup is abandoned; its thread ends when the resolver answers.
        """
        name = plain_host(host)
        addresses = [name] if _is_address(name) else await self._look_up(name, port, capsule)
        if (name, port) in self._allowed:
            return addresses
        for address in addresses:
            fault = address_fault(address)
            if fault is not None and (_canonical(address), port) not in self._allowed:
                raise AddressRefused(
                    f"{host!r} leads to {address}, which is {fault}: where it is meant, the operator allows it "
                    f"by --allow-local {shown(host, port)}"
                )
        return addresses

    async def _look_up(self, name: str, port: int, capsule: str) -> list[str]:
        if not name or len(name) > NAME_BYTES or not name.isascii() or _CONTROL.search(name):
            raise NameUnresolved(f"{name[:NAME_BYTES]!r} is not the name of a host")
        found: Sequence[str] = ()
        why = f"the resolver did not answer within {RESOLVE_S:g} s"
        with trio.move_on_after(RESOLVE_S):
            try:
                found = await (
                    self._resolve(name, port) if self._resolve else self._lookups.resolve(name, port, capsule)
                )
                why = "it has no address"
            except (OSError, UnicodeError) as error:
                why = str(error)
        addresses = list(dict.fromkeys(found))[:ADDRESSES]
        if not addresses:
            raise NameUnresolved(f"{name!r} cannot be resolved: {why}")
        return addresses


class _Share:
    """One capsule's part of the lookups: a limiter of threads, which gives a place of the capsule's own and one of all."""

    def __init__(self, everybodys: trio.CapacityLimiter) -> None:
        self._own = trio.CapacityLimiter(LOOKUPS_EACH)
        self._everybodys = everybodys

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._everybodys.acquire_on_behalf_of(borrower)
        except BaseException:
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        self._everybodys.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)


class _Lookups:
    """The system's resolver, for all capsules of a host."""

    def __init__(self) -> None:
        self._everybodys = trio.CapacityLimiter(LOOKUPS)
        self._shares: dict[str, _Share] = {}  # by capsule: no more than are installed

    async def resolve(self, name: str, port: int, capsule: str) -> Sequence[str]:
        share: Any = self._shares.get(capsule) or self._shares.setdefault(capsule, _Share(self._everybodys))
        # Nobody can interrupt the system's resolver. An abandoned lookup keeps its places until it ends, so guests that ask
        # for names that are never answered cannot fill the process with threads.
        found = await trio.to_thread.run_sync(
            lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), abandon_on_cancel=True, limiter=share
        )
        return [str(sockaddr[0]) for *_, sockaddr in found]


def shown(host: str, port: int) -> str:
    """`host:port` in one spelling, an IPv6 address in brackets."""
    name = plain_host(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def asked_for(host: str, port: int) -> str:
    """The same as a guest spelled it, for the audit: neither cut nor changed, so that secrets in it are found first."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _allowed(row: str) -> tuple[str, int]:
    found = _ROW.fullmatch(row)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        raise ValueError(f"{row!r} is not HOST:PORT, such as localhost:11434 or [::1]:8080")
    return _canonical(plain_host(found[1])), int(found[2])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _canonical(text: str) -> str:
    """An address in its one spelling (an IPv4 address also when it is mapped into IPv6); a name as it is."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(getattr(found, "ipv4_mapped", None) or found)
