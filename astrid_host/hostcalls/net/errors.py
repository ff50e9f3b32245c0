"""What goes wrong with sockets, in the words of astrid:net's `error-code`."""

from __future__ import annotations

import errno

from astrid_host.errors import HostError
from astrid_host.gates import Denial

HOST_BYTES = 255

_CASES = {
    errno.EAGAIN: "would-block",
    errno.ECONNREFUSED: "connection-refused",
    errno.ECONNRESET: "connection-reset",
    errno.ECONNABORTED: "connection-reset",
    errno.EPIPE: "connection-reset",
    errno.ETIMEDOUT: "timeout",
    errno.EADDRINUSE: "address-in-use",
    errno.EADDRNOTAVAIL: "address-not-available",
    errno.EAFNOSUPPORT: "address-not-available",
    errno.ENOTCONN: "closed",
    errno.EBADF: "closed",
}


def socket_error(error: OSError) -> HostError:
    """What a guest learns of an error of the operating system: never a path or a file of the host."""
    case = _CASES.get(error.errno or 0)
    if case is not None:
        return HostError(case, detail=str(error))
    return HostError("unknown", error.strerror or "the socket failed", detail=str(error))


def denied(denial: Denial) -> HostError:
    """What a gate refused."""
    return HostError(denial.case, detail=denial.detail)


def too_many(what: str, most: int) -> HostError:
    """`quota`."""
    return HostError("quota", detail=f"{most} {what} are open already: drop some")


def check_host(host: str) -> None:
    """Refuse what is no host's name. (Astrid, net: host names.)

    Raises:
        HostError: `address-not-available` for an empty one, one of more than 255 bytes, or with a NUL.
    """
    if not host or "\0" in host or len(host.encode()) > HOST_BYTES:
        raise HostError(
            "address-not-available", detail=f"{host[:64]!r} is not a host: a name of 1 to {HOST_BYTES} bytes"
        )
