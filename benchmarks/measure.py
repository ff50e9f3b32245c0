"""Timing calls: samples in nanoseconds, their percentiles, and the medians of those over rounds."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable

Spread = dict[str, float]


def sample(call: Callable[[], object], seconds: float, least: int) -> list[int]:
    """Time a call again and again.

    Args:
        seconds: for how long.
        least: calls to make even when that takes longer.

    Returns:
        The nanoseconds of each call.
    """
    gc.collect()
    clock = time.perf_counter_ns
    taken: list[int] = []
    until = clock() + int(seconds * 1e9)
    end = 0
    while end < until or len(taken) < least:
        begin = clock()
        call()
        end = clock()
        taken.append(end - begin)
    return taken


async def sample_async(call: Callable[[], Awaitable[object]], seconds: float, least: int) -> list[int]:
    """The same for a coroutine function; cancelled, the samples are dropped."""
    gc.collect()
    clock = time.perf_counter_ns
    taken: list[int] = []
    until = clock() + int(seconds * 1e9)
    end = 0
    while end < until or len(taken) < least:
        begin = clock()
        await call()
        end = clock()
        taken.append(end - begin)
    return taken


def spread(taken: list[int]) -> Spread:
    """The middle and the 99th percentile of samples in nanoseconds, as microseconds."""
    ordered = sorted(taken)
    return {
        "p50_us": statistics.median(ordered) / 1e3,
        "p99_us": ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] / 1e3,
    }


def over_rounds(rounds: list[Spread]) -> Spread:
    """The median of each figure over all rounds."""
    return {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}
