"""The memory of all guests together: what each instance has is counted, and what it may add is granted from one ceiling.

The engine asks nobody when a guest grows its memory: it only knows a bound for each store. So a guest that begins to run is
granted what it may add until it stands still again, and what it did add is counted then. Only guests that run can grow, and
few run at once, so nothing beyond the ceiling is ever handed out. While there is plenty nothing is asked at all.

Capsules and principals share by dynamic thresholds: each may hold up to twice what is free. One that takes all it can get
leaves a third of the ceiling, two leave a fifth, so there is room for somebody who has nothing yet. A guest that traps after
it was granted less than its manifest says ends as `no-instance`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from astrid_host.errors import NoInstance

if TYPE_CHECKING:
    from astrid_host.engine.instance import Instance
    from astrid_host.engine.pool import Instances, Pool

UNBOUNDED = sys.maxsize
SHARE = 2  # each holder may have so many times what is free
EVICTED_AT_ONCE = 64
ROOM_SHARE = 8  # idle instances go until a guest that runs may add so much of the ceiling, if its manifest says so


class Memory:
    """The account of one host's guests. All but the attributes is called with the lock of its `Instances` held, unless said
    otherwise.

    Args:
        instances: whose idle ones go when there is too little.
        ceiling: bytes for all guests.
        threads: on which guests may run at once.

    Attributes:
        tight: what guests may add has to be granted.
        used: bytes that all instances have.
        running: instances whose guests run and may grow as far as their manifests say.
    """

    __slots__ = (
        "_by_principal",
        "_granted",
        "_instances",
        "_mark",
        "_most",
        "_threads",
        "ceiling",
        "running",
        "tight",
        "used",
    )

    def __init__(self, instances: Instances, ceiling: int, threads: int) -> None:
        self.ceiling = ceiling
        self.used = 0
        self.tight = False
        self._instances = instances
        self._threads = threads
        self._most = 0
        self._mark = ceiling // 2
        self._granted = 0
        self.running: set[Instance] = set()
        self._by_principal: dict[str | None, int] = {}

    def meet(self, memory_bytes: int) -> None:
        """There is a capsule whose instances may have so much."""
        if memory_bytes > self._most:
            self._most = memory_bytes
            self._mark = max(self.ceiling // 2 - memory_bytes * self._threads, 0)
            self.tight = self.used > self._mark

    # Instances that come and go.

    def lacks(self, pool: Pool, principal: str | None) -> str | None:
        """Why there is no room for one more instance, or None."""
        needed = pool.module.initial_bytes
        free = self._free() - needed
        held = max(pool.memory_used, self._by_principal.get(principal, 0)) + needed
        if free >= 0 and held <= SHARE * free:
            return None
        return self._why(f"an instance begins with {needed} bytes", pool, principal)

    def begin(self, instance: Instance) -> None:
        """An instance is about to be made, for the principal that it names."""
        self._change(instance, instance.module.initial_bytes)

    def end(self, instance: Instance) -> None:
        """An instance is gone, or about to be."""
        self.running.discard(instance)
        self._change(instance, -instance.counted)

    def _change(self, instance: Instance, added: int) -> None:
        instance.counted += added
        pool, principal = instance.pool, instance.principal
        if pool is not None:
            pool.memory_used += added
        self.used += added
        of_principal = self._by_principal.get(principal, 0) + added
        if of_principal:
            self._by_principal[principal] = of_principal
        else:
            self._by_principal.pop(principal, None)
        self.tight = self.used > self._mark

    def _free(self) -> int:
        unbounded = sum(instance.memory_bytes - instance.counted for instance in tuple(self.running))
        return self.ceiling - self.used - self._granted - unbounded

    def _why(self, what: str, pool: Pool | None, principal: str | None) -> str:
        of_capsule = f"those of {pool.module.name} {pool.memory_used}, " if pool is not None else ""
        return (
            f"{what}, and all guests have {self.used} of {self.ceiling} bytes ({of_capsule}those of {principal} "
            f"{self._by_principal.get(principal, 0)}; each may have {SHARE} times what is free): try again later, or raise "
            "memory in the [host] table of host.toml"
        )

    # Guests that run. No lock is held.

    def admit(self, instance: Instance) -> None:
        """A guest is about to run: grant what it may add."""
        if not self.tight and instance.limit == instance.memory_bytes:
            self.running.add(instance)
            return
        shared = self._instances
        old: list[Instance] = []
        with shared._lock:
            wanted = instance.memory_bytes - instance.counted
            granted = self._grant(instance, wanted)
            enough = min(wanted, self.ceiling // ROOM_SHARE)  # most guests add nothing: idle ones do not all go for it
            while granted < enough and len(old) < EVICTED_AT_ONCE and (evicted := shared.take_oldest(1)):
                old += evicted
                granted = self._grant(instance, wanted)
            instance.granted = granted
            self._granted += granted
        instance.bound(instance.counted + granted)
        for idle in old:
            idle.close()

    def _grant(self, instance: Instance, wanted: int) -> int:
        free = self._free()
        of_capsule = instance.pool.memory_used if instance.pool is not None else 0
        held = max(of_capsule, self._by_principal.get(instance.principal, 0))
        return max(min(wanted, (SHARE * free - held) // (SHARE + 1)), 0)

    def settle(self, instance: Instance) -> None:
        """A guest stands still: count what it added."""
        if instance.size <= instance.counted and not instance.granted:
            self.running.discard(instance)
            return
        with self._instances._lock:
            self.running.discard(instance)
            self._granted -= instance.granted
            instance.granted = 0
            if instance.size > instance.counted:
                self._change(instance, instance.size - instance.counted)

    def refused(self, instance: Instance, trap: str) -> NoInstance:
        """The end of a guest that trapped after it was granted less than its manifest says."""
        why = self._why(f"it could have {instance.limit} bytes", instance.pool, instance.principal)
        return NoInstance(f"{trap}; perhaps for want of memory: {why}")
