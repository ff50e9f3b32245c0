"""How many clients may be connected to the control socket: some that shake hands, and some that were let in.

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


class Client(Protocol):
    """A connection, as the limiter sees it."""

    @property
    def scope(self) -> trio.CancelScope:
        """Cancelled, the connection is closed."""
        ...

    @property
    def silent_since(self) -> float | None:
        """When it asked for something last, on trio's clock; None while it waits for anything."""
        ...


class ConnectionLimiter:
    """Limits the connections of one socket.

    Args:
        peers: how many may be let in.
        shaking: how many may shake hands.
    """

    def __init__(self, peers: int = PEERS, shaking: int = SHAKING) -> None:
        self._peers, self._shaking = peers, shaking
        self._admitted: dict[Client, None] = {}
        self._shaking_hands: dict[Client, None] = {}

    @contextmanager
    def shaking_hands(self, client: Client) -> Generator[None]:
        """While the body runs, it shakes hands."""
        if len(self._shaking_hands) >= self._shaking:
            longest = next(iter(self._shaking_hands))
            del self._shaking_hands[longest]
            longest.scope.cancel()
        self._shaking_hands[client] = None
        try:
            yield
        finally:
            self._shaking_hands.pop(client, None)

    def let_in(self, client: Client) -> bool:
        """Give it a place, until it has left; whether there is one."""
        if len(self._admitted) >= self._peers and not self.ask_one_to_leave():
            return False
        self._admitted[client] = None
        return True

    def has_left(self, client: Client) -> None:
        """Its place is free, if it had one."""
        self._admitted.pop(client, None)

    def ask_one_to_leave(self) -> bool:
        """Close the connection of who has been silent for longest, if there is one; whether there is."""
        silent = {client: since for client in self._admitted if (since := client.silent_since) is not None}
        longest = min(silent, key=silent.__getitem__, default=None)
        if longest is None or trio.current_time() - silent[longest] < SILENT_S:
            return False
        del self._admitted[longest]
        longest.scope.cancel()
        return True
