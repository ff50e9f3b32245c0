"""Who is connected to the control socket: so many that shake hands, and so many that were let in.

Of more that come to shake hands, the one that has been at it for longest gives way. Where all places of those that were let in
are taken, one that is of no use gives way: it is sent nothing, and has asked for nothing for 30 s. While there is none, the next
one is told that the host is full.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import trio

PEERS = 128
SHAKING = 32
SILENT_S = 30.0


class Guest(Protocol):
    """Who is connected."""

    @property
    def scope(self) -> trio.CancelScope:
        """Cancelled, the connection is closed."""
        ...

    @property
    def silent_since(self) -> float | None:
        """When it asked for something last, on trio's clock; None while it waits for anything."""
        ...


class Room:
    """The places of one socket.

    Args:
        peers: how many may be let in.
        shaking: how many may shake hands.
    """

    def __init__(self, peers: int = PEERS, shaking: int = SHAKING) -> None:
        self._peers, self._shaking = peers, shaking
        self._inside: dict[Guest, None] = {}
        self._at_the_door: dict[Guest, None] = {}

    @contextmanager
    def at_the_door(self, guest: Guest) -> Generator[None]:
        """While the body runs, it shakes hands."""
        if len(self._at_the_door) >= self._shaking:
            longest = next(iter(self._at_the_door))
            del self._at_the_door[longest]
            longest.scope.cancel()
        self._at_the_door[guest] = None
        try:
            yield
        finally:
            self._at_the_door.pop(guest, None)

    def let_in(self, guest: Guest) -> bool:
        """Give it a place, until it has left; whether there is one."""
        if len(self._inside) >= self._peers and not self.ask_one_to_leave():
            return False
        self._inside[guest] = None
        return True

    def has_left(self, guest: Guest) -> None:
        """Its place is free, if it had one."""
        self._inside.pop(guest, None)

    def ask_one_to_leave(self) -> bool:
        """Close the connection of who has been silent for longest, if there is one; whether there is."""
        silent = {guest: since for guest in self._inside if (since := guest.silent_since) is not None}
        longest = min(silent, key=silent.__getitem__, default=None)
        if longest is None or trio.current_time() - silent[longest] < SILENT_S:
            return False
        del self._inside[longest]
        longest.scope.cancel()
        return True
