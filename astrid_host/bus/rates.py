"""How much a capsule may publish: bytes in a fixed window of one second, for each capsule and principal."""

from __future__ import annotations

BYTES_PER_SECOND = 10 << 20
PRUNE_ABOVE = 1000


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
        window = self._windows.get((source_id, principal))
        if window is None:
            if len(self._windows) >= PRUNE_ABOVE and now - self._pruned_at >= 1.0:
                self._pruned_at = now
                self._windows = {key: kept for key, kept in self._windows.items() if now - kept[0] < 1.0}
            self._windows[source_id, principal] = window = [now, 0.0]
        elif now - window[0] >= 1.0:
            window[0], window[1] = now, 0.0
        if window[1] + size > self.limit:
            return False
        window[1] += size
        return True
