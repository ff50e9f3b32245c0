"""Idle instances, kept for the next call of the same capsule and principal.

An instance serves one principal until it is discarded, so nothing of one caller's memory meets another. All pools of a host
share one cap, because each instance costs about six memory maps and Linux allows 65,530: at the cap the least recently used
idle ones go, and when none is idle the call ends with `NoInstance`. They share one ceiling of memory likewise. Instances whose
guests wait do not count against the cap, up to as many again: what they wait for may need an instance itself. Leasing and
returning are for one thread at a time per lock holder; the caller's lock is held.
"""

from __future__ import annotations

import heapq
import threading

from astrid_host.engine.instance import Instance
from astrid_host.engine.memory import UNBOUNDED, Memory
from astrid_host.engine.module import Prelinked
from astrid_host.errors import NoInstance

CAP = 4096
IDLE_S = 60.0
EVICTED_SHARE = 64  # at the cap, one in so many goes
EVICTED_FOR_MEMORY = 16


class Instances:
    """The count of all live instances of a host, and where its idle ones are.

    Args:
        cap: the most instances at work, and again the most whose guests wait.
        memory_bytes: what all of them may have together.
        threads: on which guests may run at once.

    Attributes:
        live: instances that count against the cap.
        waiting: those besides whose guests wait for something.
        memory: the account of their memory.
    """

    def __init__(self, cap: int = CAP, memory_bytes: int = UNBOUNDED, threads: int = 1) -> None:
        self.cap = cap
        self.memory = Memory(self, memory_bytes, threads)
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

    def take_oldest(self, count: int) -> list[Instance]:
        """Take out the idle instances that were used least recently, to be closed. The lock is held. Take several at once where
        you can, because finding them costs a look at all."""
        oldest = (
            (kept[0].idle_since, id(kept), pool, principal)
            for pool in self._pools
            for principal, kept in pool.idle.items()
        )
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
        self.memory_used = 0  # by all of its instances
        self.memory_bytes = memory_bytes
        self.instances = instances
        self.idle: dict[str | None, list[Instance]] = {}  # none of the lists is empty; the last is used next
        self.closed = False
        with instances._lock:
            instances._pools.add(self)
            instances.memory.meet(memory_bytes)

    def lease(self, principal: str | None) -> Instance:
        """An idle instance of that principal, else a new one.

        Raises:
            NoInstance: the cap, or the ceiling of memory, is reached and none is idle.
        """
        shared = self.instances
        with shared._lock:
            kept = self.idle.get(principal)
            if kept:
                instance = kept.pop()
                if not kept:
                    del self.idle[principal]
                return instance
            evicted, refused = self._make_room(principal)
            if refused is None:
                instance = self.module.new(self.memory_bytes, self)
                instance.principal = principal
                shared.live += 1
                shared.memory.begin(instance)
        for old in evicted:
            old.close()
        if refused is not None:
            raise NoInstance(refused)
        return instance

    def _make_room(self, principal: str | None) -> tuple[list[Instance], str | None]:
        """For one more instance: the idle ones that have to go, and why there is no room nevertheless."""
        shared, evicted = self.instances, list[Instance]()
        if shared.live >= shared.cap:
            evicted = shared.take_oldest(max(shared.cap // EVICTED_SHARE, 1))
            if not evicted:
                return evicted, f"{shared.cap} instances are at work and none is idle: try again later"
        while (why := shared.memory.lacks(self, principal)) is not None:
            more = shared.take_oldest(EVICTED_FOR_MEMORY)
            if not more:
                return evicted, why
            evicted += more
        return evicted, None

    def give_back(self, instance: Instance, now: float, passing: bool = False) -> None:
        """Keep an instance whose call ended well; after `close` it is closed instead.

        Args:
            instance: with nothing under way.
            now: from when on it is idle.
            passing: what it did was no use of it: it is idle since it was used before, and closed if that is too long ago.
        """
        instance.handles.clear()
        if self.closed or (passing and now - instance.idle_since >= IDLE_S):
            self.discard(instance)
            return
        if not passing:
            instance.idle_since = now
        with self.instances._lock:
            kept = self.idle.get(instance.principal)
            if kept is None:
                self.idle[instance.principal] = [instance]
            elif passing:
                kept.insert(0, instance)
            else:
                kept.append(instance)

    def discard(self, instance: Instance) -> None:
        """Close an instance whose call failed."""
        with self.instances._lock:
            self.instances.live -= 1
            self.instances.memory.end(instance)
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
        self.instances.memory.end(instance)
        return instance

    def held_bytes(self) -> int:
        """The memory of its idle instances, in bytes."""
        with self.instances._lock:
            return sum(instance.size for kept in self.idle.values() for instance in kept)
