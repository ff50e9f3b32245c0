"""Tool calls a second through the router: one caller alone, 64 callers of one principal, 64 callers of as many.

Callers are tasks of the host's own trio loop, each of which calls again as soon as it has its answer. They take turns in
every round, and every answer is compared.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

import trio

from astrid_host import Host, open_host
from benchmarks.measure import Spread, over_rounds
from benchmarks.roundtrips import COUNTED, TEXT, TOOLS

CALLERS = 64
ROUNDS = 9
TURN_S = 0.4
LIMIT_S = 60.0


def run() -> dict[str, Spread]:
    """Measure all three.

    Returns:
        `per_second` of `single`, `one` (principal) and `many`.

    Raises:
        RuntimeError: a call had a wrong answer.
        trio.TooSlowError: it took more than a minute.
    """
    return trio.run(_measure)


async def _measure() -> dict[str, Spread]:
    callers = {
        "single": ["bench"],
        "one": ["bench"] * CALLERS,
        "many": [f"bench-{number}" for number in range(CALLERS)],
    }
    rounds: dict[str, list[Spread]] = {name: [] for name in callers}
    with trio.fail_after(LIMIT_S):
        async with open_host(TOOLS, state_dir=":memory:") as host:
            for principals in callers.values():
                await _turn(host, principals, 0.0)
            for _ in range(ROUNDS):
                for name, principals in callers.items():
                    rounds[name].append({"per_second": await _turn(host, principals, TURN_S)})
    return {name: over_rounds(each) for name, each in rounds.items()}


async def _turn(host: Host, principals: Sequence[str], seconds: float) -> float:
    """Calls a second, with one caller for each name; every caller makes one call at least."""
    gc.collect()
    calls = 0
    wrong: list[str] = []
    begin = time.perf_counter()
    until = begin + seconds

    async def caller(principal: str) -> None:
        nonlocal calls
        while not wrong:
            result = await host.tools.execute("word_count", {"text": TEXT}, principal=principal)
            if result.is_error or result.content != COUNTED:
                wrong.append(result.content)
            calls += 1
            if time.perf_counter() >= until:
                break

    async with trio.open_nursery() as nursery:
        for principal in principals:
            nursery.start_soon(caller, principal)
    taken = time.perf_counter() - begin
    if wrong:
        raise RuntimeError(f"word_count answered {wrong[0]!r}, expected {COUNTED!r}")
    return calls / taken
