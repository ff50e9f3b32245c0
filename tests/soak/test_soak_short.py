"""The short form of the soak run: every call is answered or reported once, and what a call needs is given back."""

from __future__ import annotations

from pathlib import Path

from .soak import MIB, Line, soaked

CALLS = 6000

# So few calls cannot tell a small leak from a block or two that an allocator takes, and 5 % of a test run's memory says nothing.
# This finds what is large: an instance, or its stack, that a trap leaves behind (27 KiB for each of 120).
SLACK = 2 * MIB


async def test_calls_of_which_every_tenth_traps_leave_nothing_behind(tmp_path: Path) -> None:
    lines: list[Line] = []
    left = await soaked(tmp_path, CALLS, lines.append)
    assert [(line.phase, problem) for line in lines for problem in line.broken(SLACK)] == []
    assert left == []
    assert sum(line.calls for line in lines) == CALLS
