"""What a peer of the control socket says first, and what it is told of the host that it has reached."""

from __future__ import annotations

import msgspec

from astrid_host.sockets.handshake import Request


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


class About(msgspec.Struct):
    """What a host was started with, for who uses it from elsewhere.

    Attributes:
        workspace: what `cwd://` means in it, an absolute path; empty when that is not known.
        given: what capsules are configured with in this run only, as `CAPSULE.KEY`.
    """

    workspace: str = ""
    given: list[str] = []
