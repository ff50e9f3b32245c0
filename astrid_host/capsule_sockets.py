"""Capsules' own Unix sockets: where they are, and whom they let in.

Each capsule with a row `unix:…` has one, in a folder of the host's user alone, never the host's own control socket. A peer has
that user and knows the token, which lies beside the sockets as `system.token`, in hexadecimal: who can read it may do whatever
the host's owner may. So one that claims to be a principal is believed, whatever signs for it, and one that claims nothing works
as the owner: were it somebody else, it would never see the answers to what it asked. (Astrid, net: Unix listeners.)
"""

from __future__ import annotations

import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Any

from astrid_host import __version__
from astrid_host.gates.net import may_bind_unix
from astrid_host.hostcalls.interface import Running
from astrid_host.sockets import place_of, private_folder

TOKEN, TOKEN_BYTES = "system.token", 32


class CapsuleSockets:
    """Implements `Doorway` for one host.

    Args:
        state: its state folder.
        owner: its principal.
    """

    version = __version__

    def __init__(self, state: Path, owner: str) -> None:
        self._state = state
        self.unclaimed = owner

    @cached_property
    def token(self) -> bytes:
        """What every peer has to know; new at each start, and written when it is first asked for."""
        made = secrets.token_bytes(TOKEN_BYTES)
        path = private_folder(self._state) / TOKEN
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="ascii") as writing:
            writing.write(made.hex())
        return made

    def path(self, call: Running) -> str:
        """Where the socket of the call's capsule is.

        Raises:
            OSError: there can be none.
        """
        private_folder(self._state)
        place = self._place(call)
        private_folder(place.parent, itself=True)
        _ = self.token  # made now: peers can read it before they can connect
        return str(place)

    def told(self, call: Running) -> str | None:
        """The same for `get-config`; None for a capsule that may have no socket."""
        return None if may_bind_unix(call.capsule.manifest) is not None else str(self._place(call))

    def _place(self, call: Running) -> Path:
        return place_of(self._state, f"{call.capsule.id}.capsule.sock")

    def verifies(self, principal: str, message: bytes, signature: str) -> bool:
        """Whether that is a signature of the principal's."""
        return True

    def heard(self, call: Any, principal: str | None) -> None:
        """What the call publishes for others next is this principal's."""
        call.peer = principal
