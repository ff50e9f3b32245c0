"""Idle instances, kept for the next call of the same capsule and principal.

An instance serves one principal until it is discarded, so nothing of one caller's memory meets another. All pools of a host
share one cap, because each instance costs about six memory maps and Linux allows 65,530: at the cap the least recently used
idle instance goes, and when none is idle the call ends with `NoInstance`. Leasing and returning are for one thread at a
time per lock holder; the caller's lock is held.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from astrid_host.engine.instance import Instance
from astrid_host.engine.module import Prelinked
from astrid_host.errors import NoInstance

CAP = 4096
IDLE_S = 60.0


class Instances:
    """The count of all live instances of a host, and the idle ones in the order they fell idle."""

    def __init__(self, cap: int = CAP) -> None:
        self.cap = cap
        self.live = 0
        self._idle: OrderedDict[Instance, Pool] = OrderedDict()
        self._lock = threading.Lock()

    def sweep(self, now: float) -> None:
        """Close what has been idle for a minute."""
        with self._lock:
            old = []
            for instance, pool in self._idle.items():
                if now - instance.idle_since < IDLE_S:
                    break
                old.append((instance, pool))
            for instance, pool in old:
                self._forget(instance, pool)
        for instance, _pool in old:
            instance.close()

    def _forget(self, instance: Instance, pool: Pool) -> None:
        del self._idle[instance]
        kept = pool.idle[instance.principal]
        kept.remove(instance)
        if not kept:
            del pool.idle[instance.principal]
        self.live -= 1


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
        self.idle: dict[str | None, list[Instance]] = {}
        self.closed = False

    def lease(self, principal: str | None) -> Instance:
        """An idle instance of that principal, else a new one.

        Raises:
            NoInstance: the cap is reached and none is idle.
        """
        shared = self.instances
        evicted = None
        with shared._lock:
            kept = self.idle.get(principal)
            if kept:
                instance = kept.pop()
                if not kept:
                    del self.idle[principal]
                del shared._idle[instance]
                return instance
            if shared.live >= shared.cap:
                if not shared._idle:
                    raise NoInstance(f"{shared.cap} instances are at work and none is idle: try again later")
                evicted, pool = next(iter(shared._idle.items()))
                shared._forget(evicted, pool)
            shared.live += 1
        if evicted is not None:
            evicted.close()
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
            self.idle.setdefault(instance.principal, []).append(instance)
            self.instances._idle[instance] = self

    def discard(self, instance: Instance) -> None:
        """Close an instance whose call failed."""
        with self.instances._lock:
            self.instances.live -= 1
        instance.close()

    def close(self) -> None:
        """Close the idle instances; those at work are closed when they are given back."""
        self.closed = True
        with self.instances._lock:
            old = [instance for kept in self.idle.values() for instance in kept]
            for instance in old:
                self.instances._forget(instance, self)
        for instance in old:
            instance.close()

    def held_bytes(self) -> int:
        """The memory of its idle instances, in bytes."""
        with self.instances._lock:
            return sum(instance.memory_bytes for kept in self.idle.values() for instance in kept)
