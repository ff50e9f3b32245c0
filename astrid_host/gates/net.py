"""What a manifest lets a capsule fetch, connect to and listen on.

Rows name hosts, not addresses: what a name leads to is checked once it is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from astrid_host.gates.verdicts import Denial, quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

UNIX = "unix:"


def may_fetch(manifest: Manifest, host: str) -> Denial | None:
    """Whether a capsule may make HTTP requests to a host: a row of `net` is that host, or one that it is below, or `*`.
    (Astrid, http: gate net.)

    Args:
        manifest: the capsule's.
        host: a name in ASCII or an address, without a port; the port does not matter.
    """
    name = _plain(host)
    for row in map(_plain, manifest.capabilities.net):
        if row and name and (row in ("*", name) or name.endswith("." + row)):
            return None
    return _lacks(manifest, "net", name, f"make requests to {host!r}")


def may_connect(manifest: Manifest, host: str, port: int) -> Denial | None:
    """Whether a capsule may open a connection: a row of `net_connect` is `host:port` or `host:*`. A host is never a
    wildcard. (Astrid, net: gate net_connect.)"""
    wanted = _joined(host, port)
    if _names(manifest.capabilities.net_connect, host, port):
        return None
    return _lacks(manifest, "net_connect", wanted, f"connect to {wanted!r}")


def may_bind(manifest: Manifest, host: str, port: int) -> Denial | None:
    """Whether a capsule may listen at a host and port: a row of `net_bind` is `host:port` or `host:*`.
    (Astrid, net: gate net_bind.)"""
    wanted = _joined(host, port)
    if _names(manifest.capabilities.net_bind, host, port):
        return None
    return _lacks(manifest, "net_bind", wanted, f"listen on {wanted!r}")


def may_bind_unix(manifest: Manifest) -> Denial | None:
    """Whether a capsule may listen on its Unix socket: there is a row `unix:…` in `net_bind`. The host chooses the path.
    (Astrid, net: bind-unix.)"""
    if any(row.startswith(UNIX) and row != UNIX for row in manifest.capabilities.net_bind):
        return None
    return _lacks(manifest, "net_bind", UNIX + "*", "listen on a Unix socket")


def _names(rows: Iterable[str], host: str, port: int) -> bool:
    name = _plain(host)
    for row in rows:
        row_host, colon, row_port = row.rpartition(":")
        if colon and name and _plain(row_host) == name and row_port in ("*", str(port)):
            return True
    return False


def _plain(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host.lower().removesuffix(".")


def _joined(host: str, port: int) -> str:
    name = _plain(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _lacks(manifest: Manifest, field: str, row: str, what: str) -> Denial:
    rows = [*getattr(manifest.capabilities, field), row]
    line = f"[capabilities] {field} = [{', '.join(map(quoted, rows))}]"
    name = manifest.package.name
    return Denial("capability-denied", f"capsule {name!r} may not {what}: write in its Capsule.toml: {line}")
