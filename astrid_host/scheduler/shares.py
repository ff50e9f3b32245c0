"""Who has computed little of late: their calls go before those of busy principals while many wait.

In order of arrival, one principal's call with ten steps waits ten times behind everybody else's. What each principal's guests
computed in the last one to two seconds is counted while there is a crowd. Who had less than two thirds of the mean goes first,
until he has had as much, so nobody waits for ever. The host's lock is held.
"""

from __future__ import annotations

import time

CROWD = 16  # sources that wait: below it the order of arrival does
WINDOW_S = 1.0
FEW = 1.5  # so many times what somebody had is less than the mean, if it was little


class Shares:
    """Seconds of computing, by principal."""

    __slots__ = ("_before", "_began", "_many", "_spent", "_total", "_total_before")

    def __init__(self) -> None:
        self._spent: dict[str | None, float] = {}
        self._before: dict[str | None, float] = {}
        self._total = self._total_before = self._began = 0.0
        self._many = 0  # principals who have had something

    def add(self, principal: str | None, seconds: float) -> None:
        """Guests of a principal have computed for so long."""
        self._turn_over()
        spent = self._spent.get(principal)
        if spent is None:
            spent = 0.0
            self._many += principal not in self._before
        self._spent[principal] = spent + seconds
        self._total += seconds

    def has_had_little(self, principal: str | None) -> bool:
        """Whether they have had less than two thirds of the mean."""
        self._turn_over()
        had = self._spent.get(principal, 0.0) + self._before.get(principal, 0.0)
        return FEW * had * self._many < self._total + self._total_before

    def _turn_over(self) -> None:
        now = time.monotonic()
        if now - self._began < WINDOW_S:
            return
        stale = now - self._began >= 2 * WINDOW_S
        self._before, self._total_before = ({}, 0.0) if stale else (self._spent, self._total)
        self._spent, self._total, self._began, self._many = {}, 0.0, now, len(self._before)
