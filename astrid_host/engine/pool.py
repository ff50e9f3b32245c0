"""Idle instances, kept for the next call of the same capsule and principal.

An instance serves one principal until it is discarded, so nothing of one caller's memory meets another. All pools of a host
share one cap, because each instance costs about six memory maps and Linux allows 65,530: at the cap the least recently used
idle ones go, and when none is idle the call ends with `NoInstance`. Instances whose guests wait do not count, up to as many
again: what they wait for may need an instance itself. Leasing and returning are for one thread at a
time per lock holder; the caller's lock is held.
"""

from __future__ import annotations

import heapq
import threading

from astrid_host.engine.instance import Instance
from astrid_host.engine.module import Prelinked
from astrid_host.errors import NoInstance

CAP = 4096
IDLE_S = 60.0
EVICTED_SHARE = 64  # at the cap, one in so many goes


class Instances:
    """The count of all live instances of a host, and where its idle ones are.

    Attributes:
        live: instances that count against the cap.
        waiting: those besides whose guests wait for something.
    """

    def __init__(self, cap: int = CAP) -> None:
        self.cap = cap
        self.live = 0
        self.waiting = 0
        self._pools: set[Pool] = set()
        self._lock = threading.Lock()

    def set_aside(self) -> bool:
        """The guest of an instance begins to wait; whether it stops counting against the cap, until `resume`."""
        with self._lock:
            if self.waiting >= self.cap:
                return False
            self.waiting += 1
            self.live -= 1
            return True

    def resume(self) -> None:
        """A guest that was set aside goes on, above the cap if need be: its instance is there already."""
        with self._lock:
            self.waiting -= 1
            self.live += 1

    def take_idle(self, now: float) -> list[Instance]:
        """What has been idle for a minute: to be closed, some at a time, because closing one takes a while."""
        with self._lock:
            return [
                pool._forget_oldest(principal)
                for pool in self._pools
                for principal, kept in list(pool.idle.items())
                for _ in range(sum(now - instance.idle_since >= IDLE_S for instance in kept))
            ]

    def _evict(self) -> list[Instance]:
        """Take out the instances that were used least recently: several at once, because finding them costs a look at all."""
        oldest = (
            (kept[0].idle_since, id(kept), pool, principal)
            for pool in self._pools
            for principal, kept in pool.idle.items()
        )
        count = max(self.cap // EVICTED_SHARE, 1)
        return [pool._forget_oldest(principal) for _, _, pool, principal in heapq.nsmallest(count, oldest)]


class Pool:
    """The idle instances of one loaded module, by principal.

    Args:
        module: what to instantiate.
        memory_bytes: the most memory of each instance.
        instances: the host's count.
    """

    def __init__(self, module: Prelinked, memory_bytes: int, instances: Instances) -> None:
        self.module = module
        self.memory_bytes = memory_bytes
        self.instances = instances
        self.idle: dict[str | None, list[Instance]] = {}  # none of the lists is empty; the last is used next
        self.closed = False
        with instances._lock:
            instances._pools.add(self)

    def lease(self, principal: str | None) -> Instance:
        """An idle instance of that principal, else a new one.

        Raises:
            NoInstance: the cap is reached and none is idle.
        """
        shared = self.instances
        evicted: list[Instance] = []
        with shared._lock:
            kept = self.idle.get(principal)
            if kept:
                instance = kept.pop()
                if not kept:
                    del self.idle[principal]
                return instance
            if shared.live >= shared.cap:
                evicted = shared._evict()
                if not evicted:
                    raise NoInstance(f"{shared.cap} instances are at work and none is idle: try again later")
            shared.live += 1
        for old in evicted:
            old.close()
        try:
            instance = self.module.new(self.memory_bytes)
        except BaseException:
            with shared._lock:
                shared.live -= 1
            raise
        instance.principal = principal
        return instance

    def give_back(self, instance: Instance, now: float) -> None:
        """Keep an instance whose call ended well; after `close` it is closed instead."""
        instance.handles.clear()
        if self.closed:
            self.discard(instance)
            return
        instance.idle_since = now
        with self.instances._lock:
            kept = self.idle.get(instance.principal)
            if kept is None:
                self.idle[instance.principal] = [instance]
            else:
                kept.append(instance)

    def discard(self, instance: Instance) -> None:
        """Close an instance whose call failed."""
        with self.instances._lock:
            self.instances.live -= 1
        instance.close()

    def close(self) -> None:
        """Close the idle instances; those at work are closed when they are given back."""
        self.closed = True
        with self.instances._lock:
            self.instances._pools.discard(self)
            old = [self._forget_oldest(principal) for principal, kept in list(self.idle.items()) for _ in list(kept)]
        for instance in old:
            instance.close()

    def _forget_oldest(self, principal: str | None) -> Instance:
        kept = self.idle[principal]
        instance = kept.pop(0)
        if not kept:
            del self.idle[principal]
        self.instances.live -= 1
        return instance

    def held_bytes(self) -> int:
        """The memory of its idle instances, in bytes."""
        with self.instances._lock:
            return sum(instance.size for kept in self.idle.values() for instance in kept)
