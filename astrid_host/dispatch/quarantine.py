"""Quarantine: a capsule that traps too often for one principal is not called for it for a while.

Five traps within 10 s begin one of 2 s; each that follows is twice as long, 120 s at most. It is forgotten after
as much time without another one. Other principals are served meanwhile. The lock is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

TRAPS = 5
WINDOW_S = 10.0
FIRST_S = 2.0
LONGEST_S = 120.0


class _Record:
    __slots__ = ("lasts", "traps", "until")

    def __init__(self) -> None:
        self.traps: deque[float] = deque(maxlen=TRAPS)
        self.lasts = 0.0
        self.until = 0.0


class Quarantine:
    """The quarantines of one capsule, by principal. Times are in seconds of `time.monotonic`."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: dict[str, _Record] = {}  # of those whose calls trapped lately

    def trapped(self, principal: str, now: float) -> float | None:
        """A call of that principal trapped. Returns how long the quarantine that begins with it lasts, if one does."""
        record = self.records.get(principal)
        if record is None:
            record = self.records[principal] = _Record()
        if now < record.until:  # calls that were under way when it began
            return None
        if record.lasts and now - record.until > LONGEST_S:
            record.lasts = 0.0
        record.traps.append(now)
        if len(record.traps) < TRAPS or now - record.traps[0] > WINDOW_S:
            return None
        record.traps.clear()
        record.lasts = min(record.lasts * 2, LONGEST_S) or FIRST_S
        record.until = now + record.lasts
        return record.lasts

    def left(self, principal: str | None, now: float) -> float:
        """For how many more seconds it is not called for that principal; 0 when it is."""
        record = self.records.get(principal) if principal is not None else None
        return max(record.until - now, 0.0) if record is not None else 0.0

    def running(self, now: float) -> Iterator[tuple[str, float]]:
        """The principals for which it is not called, and for how many more seconds."""
        return ((principal, record.until - now) for principal, record in self.records.items() if record.until > now)

    def sweep(self, now: float) -> None:
        """Forget what is long over."""
        for principal, record in list(self.records.items()):
            last = max(record.until + LONGEST_S if record.lasts else 0.0, max(record.traps, default=0.0) + WINDOW_S)
            if now > last:
                del self.records[principal]
