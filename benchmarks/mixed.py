"""A tool call while other guests compute: none, one, two or four of them, on behalf of as many principals.

Guests that compute for long are handed over to the worker pool. A call is measured only when each of them has begun and is off
the loop's thread, so their first hand-over does not count. Each turn has a host of its own, whose end ends the guests.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from astrid_host import open_host
from benchmarks.guests import BEGUN, COMPUTE, computing
from benchmarks.measure import Spread, over_rounds, sample_async, spread
from benchmarks.roundtrips import COUNTED, TEXT, TOOLS

BUSY = {"idle": 0, "busy1": 1, "busy2": 2, "busy4": 4}
ROUNDS = 5
TURN_S = 0.5
LEAST_CALLS = 100
LIMIT_S = 60.0


def run() -> dict[str, Spread]:
    """Measure beside each number of computing guests.

    Returns:
        `p50_us` and `p99_us` of `idle`, `busy1`, `busy2` and `busy4`.

    Raises:
        RuntimeError: a call had a wrong answer.
        trio.TooSlowError: it took more than a minute.
    """
    return trio.run(_measure)


async def _measure() -> dict[str, Spread]:
    rounds: dict[str, list[Spread]] = {name: [] for name in BUSY}
    with tempfile.TemporaryDirectory(prefix="astrid-host-bench-") as folder, trio.fail_after(LIMIT_S):
        computing(Path(folder))
        for _ in range(ROUNDS):
            for name, count in BUSY.items():
                rounds[name].append(spread(await _turn(folder, count)))
    return {name: over_rounds(each) for name, each in rounds.items()}


async def _turn(folder: str, count: int) -> list[int]:
    """The nanoseconds of calls while `count` guests compute."""
    async with open_host([*TOOLS, folder], trust=True, state_dir=":memory:", workspace=folder, strict=True) as host:

        async def call() -> None:
            result = await host.tools.execute("word_count", {"text": TEXT})
            if result.is_error or result.content != COUNTED:
                raise RuntimeError(f"word_count answered {result.content!r}, expected {COUNTED!r}")

        async with host.subscribe(BEGUN) as begun:
            for number in range(count):
                host.publish(COMPUTE, {}, principal=f"computing-{number}")
                await anext(begun)  # this task goes on only when the guest has left the loop's thread
        await sample_async(call, 0.0, LEAST_CALLS)
        return await sample_async(call, TURN_S, LEAST_CALLS)
