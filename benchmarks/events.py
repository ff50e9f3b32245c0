"""Events a second from publish to publish: into the host, through one interceptor, out to a subscription.

What is counted is events that went all the way: each is published by the program, handled by a guest that publishes it
again, and received by the program. Principals take turns, in batches that fit their queues; every event must come back, and
those of one principal in order.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from astrid_host import Host, HostEvent, HostSubscription, open_host
from benchmarks.guests import ASKED, RELAYED, relay
from benchmarks.measure import Spread, over_rounds

PRINCIPALS = (1, 64, 1000)
BATCH = 1024  # events under way at once over all principals, and at most
BATCH_OF_ONE = 32  # of one principal; its queue would hold 64
TEXT = "x" * 48  # makes 64 bytes of payload, or a few less
ROUNDS = 7
TURN_S = 0.4
LIMIT_S = 60.0


def run() -> dict[str, Spread]:
    """Measure with each number of principals.

    Returns:
        By that number, `per_second`.

    Raises:
        RuntimeError: an event was lost, or overtook another of its principal.
        trio.TooSlowError: it took more than a minute: most likely an event did not come back.
    """
    return trio.run(_measure)


async def _measure() -> dict[str, Spread]:
    names = [f"bench-{number}" for number in range(max(PRINCIPALS))]
    rounds: dict[int, list[Spread]] = {count: [] for count in PRINCIPALS}
    with tempfile.TemporaryDirectory(prefix="astrid-host-bench-") as folder, trio.fail_after(LIMIT_S):
        relay(Path(folder))
        async with (
            open_host([folder], trust=True, state_dir=":memory:", workspace=folder, strict=True) as host,
            host.subscribe(RELAYED) as relayed,
        ):
            await _turn(host, relayed, names, 0.0)  # makes an instance for each
            for _ in range(ROUNDS):
                for count in PRINCIPALS:
                    rounds[count].append({"per_second": await _turn(host, relayed, names[:count], TURN_S)})
    return {str(count): over_rounds(each) for count, each in rounds.items()}


async def _turn(host: Host, relayed: HostSubscription, names: Sequence[str], seconds: float) -> float:
    """Events a second; one batch at least. What checking takes is not counted."""
    gc.collect()
    each = min(BATCH // len(names), BATCH_OF_ONE)
    clock = time.perf_counter
    count, taken = 0, 0.0
    while not count or taken < seconds:
        begin = clock()
        for number in range(each):
            for name in names:
                host.publish(ASKED, {"n": number, "text": TEXT}, principal=name)
        heard = [await anext(relayed) for _ in range(each * len(names))]
        taken += clock() - begin
        count += len(heard)
        _check(heard, names, each)
    if relayed.dropped:
        raise RuntimeError(f"{relayed.dropped} events were dropped, expected none")
    return count / taken


def _check(heard: Sequence[HostEvent], names: Sequence[str], each: int) -> None:
    came: dict[str | None, list[int]] = {name: [] for name in names}
    for event in heard:
        came[event.principal].append(event.payload["n"])
    for name, numbers in came.items():
        if numbers != list(range(each)):
            raise RuntimeError(f"{name} published 0 to {each - 1} in order; what came back is {numbers}")
