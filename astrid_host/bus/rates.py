"""How much a capsule may publish: bytes in a fixed window of one second, for each capsule and principal.

Who passes on what others sent does not pay for it. An event that a capsule originates is its own, and carries a credit of some
times its size; what is published while it, or what it led to, is handled, and is no larger than what is handled, is taken from
that credit and owed by who began. It is never refused; who owes is, until it is paid off. Beyond the credit, or with more bytes
than came in, everybody pays for himself, so a flood gains nothing by going through a router. Events from outside, of the host's
own ends, are owed by nobody: there is room for few of them at once.
"""

from __future__ import annotations

BYTES_PER_SECOND = 10 << 20
PRUNE_ABOVE = 1000
RELAYS = 8  # so many times its size may be passed on of an event
FREE_BYTES = 8 << 10  # and so much besides
ADDED_BYTES = 1 << 10  # what passes an event on may add to it


class Credit:
    """What may still be passed on of an event, and of all that it leads to, on the account of who began.

    Args:
        payer: who began: the source's id; None for the host's own ends.
        principal: on whose behalf.
        size: bytes of the first event.
    """

    __slots__ = ("left", "payer", "principal")

    def __init__(self, payer: str | None, principal: str | None, size: int) -> None:
        self.payer = payer
        self.principal = principal
        self.left = RELAYS * size + FREE_BYTES


class RateLimiter:
    """Counts published bytes. The bus's lock is held.

    Args:
        limit: bytes a second.
    """

    __slots__ = ("_pruned_at", "_windows", "limit")

    def __init__(self, limit: int = BYTES_PER_SECOND) -> None:
        self.limit = limit
        self._pruned_at = 0.0
        self._windows: dict[tuple[str, str | None], list[float]] = {}  # -> [begin of the window, bytes in it]

    def charge(self, source_id: str, principal: str | None, size: int, now: float) -> bool:
        """Count `size` bytes; False, and nothing counted, when the window has no room for them."""
        window = self._window(source_id, principal, now)
        if window[1] + size > self.limit:
            return False
        window[1] += size
        return True

    def passes_on(self, credit: Credit, came_in: int, size: int, now: float) -> bool:
        """Count `size` bytes that are published while an event of `came_in` bytes is handled as owed by who began; False, and
        nothing counted, when they are no longer what he sent."""
        if size > came_in + ADDED_BYTES or size > credit.left:
            return False
        credit.left -= size
        if credit.payer is not None:
            self._window(credit.payer, credit.principal, now)[1] += size
        return True

    def _window(self, source_id: str, principal: str | None, now: float) -> list[float]:
        window = self._windows.get((source_id, principal))
        if window is None:
            if len(self._windows) >= PRUNE_ABOVE and now - self._pruned_at >= 1.0:
                self._pruned_at = now
                self._windows = {
                    key: kept for key, kept in self._windows.items() if now - kept[0] < max(1.0, kept[1] / self.limit)
                }
            self._windows[source_id, principal] = window = [now, 0.0]
        elif now - window[0] >= 1.0:
            owed = window[1] - self.limit * (now - window[0])
            window[0], window[1] = now, max(owed, 0.0)
        return window
