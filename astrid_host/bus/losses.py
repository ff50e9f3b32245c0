"""Events that receivers could not be given, counted by who missed them. Nothing is lost in silence: they are logged too."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

NAMES = 1000
OTHERS = "*"
LOG_S = 1.0


class Losses:
    """Counts of lost events by name; above 1,000 names the rest is counted together as `*`. The bus's lock is held.

    Args:
        how: what happened to them, for the log.
    """

    __slots__ = ("_how", "_logged_at", "_unlogged", "by_name")

    def __init__(self, how: str) -> None:
        self.by_name: dict[str, int] = {}
        self._how = how
        self._logged_at = float("-inf")
        self._unlogged = 0

    def count(self, name: str, lost: int = 1) -> None:
        """So many events were lost to `name`. Logged at most once a second, with all that was lost since."""
        if name not in self.by_name and len(self.by_name) >= NAMES:
            name = OTHERS
        self.by_name[name] = self.by_name.get(name, 0) + lost
        self._unlogged += lost
        now = time.monotonic()
        if now - self._logged_at >= LOG_S:
            log.warning("%d events %s (%s, and perhaps others)", self._unlogged, self._how, name)
            self._logged_at, self._unlogged = now, 0
