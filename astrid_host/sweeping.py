"""What nobody has used for a minute goes: instances, queues, and what the C library keeps of their memory.

Some at a time, so that the loop goes on meanwhile. Cancelled, what was not closed yet stays with its owner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

import trio

from astrid_host.bus import Bus
from astrid_host.capsules import Registry
from astrid_host.engine import Instances, reap_compilers, trim

SWEEP_S = 10.0
SWEPT_AT_ONCE = 64
TRIMMED_FROM = 32  # so many instances that go are worth to have their memory given back to the system
T = TypeVar("T")


def _batches(things: list[T]) -> Iterator[list[T]]:
    return (things[at : at + SWEPT_AT_ONCE] for at in range(0, len(things), SWEPT_AT_ONCE))


async def sweep(instances: Instances, bus: Bus, registry: Registry) -> None:
    """Close instances that have been idle for a minute, and forget queues that were not used for as long; some at a time.
    Compilers that ended for want of work are reaped."""
    while True:
        await trio.sleep(SWEEP_S)
        reap_compilers()
        now = time.monotonic()
        idle = instances.take_idle(now)
        for batch in _batches(idle):
            for instance in batch:
                instance.close()
            await trio.lowlevel.checkpoint()
        if len(idle) >= TRIMMED_FROM:
            idle.clear()
            await trio.to_thread.run_sync(trim)
        for capsule in list(registry.capsules.values()):
            for principals in _batches(list(capsule.queues.by_principal)):
                with bus.lock:
                    capsule.queues.sweep(principals)
                await trio.lowlevel.checkpoint()
            with bus.lock:
                capsule.queues.sweep_shared()
                capsule.quarantine.sweep(now)
