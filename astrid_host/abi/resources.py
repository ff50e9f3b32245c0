"""Handles: the numbers by which a guest names resources of the host.

A table belongs to one instance. Every index that a guest gives is checked: that it is there, and is of the resource that
the function declares. What a handle holds is closed when the guest drops it, and when the table is cleared.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, TypeVar

from astrid_host.abi.runtime import discard
from astrid_host.errors import GuestFault
from astrid_host.wit.types import Resource

HANDLES = 65_536
Held = TypeVar("Held")


class HandleTable:
    """The handles of one instance, numbered from 1; the lowest free number is used next."""

    __slots__ = ("_free", "_held", "_next")

    def __init__(self) -> None:
        self._held: dict[int, tuple[Resource, Any]] = {}
        self._free: list[int] = []
        self._next = 1

    def __len__(self) -> int:
        return len(self._held)

    def add(self, resource: Resource, rep: Any) -> int:
        """A new handle for `rep`.

        Raises:
            GuestFault: the guest holds 65,536 already.
        """
        if len(self._held) >= HANDLES:
            raise GuestFault(f"the guest holds {HANDLES} handles: it has to drop some")
        if self._free:
            index = heapq.heappop(self._free)
        else:
            index, self._next = self._next, self._next + 1
        self._held[index] = (resource, rep)
        return index

    def get(self, resource: Resource, index: int) -> Any:
        """What a handle holds.

        Raises:
            GuestFault: there is no such handle, or it is of another resource.
        """
        found = self._held.get(index)
        if found is None:
            raise GuestFault(f"{index} is no handle: expected one of {resource.name}")
        held, rep = found
        if held is not resource and held != resource:
            raise GuestFault(f"the handle {index} is of {held.name}: expected one of {resource.name}")
        return rep

    def take(self, resource: Resource, index: int) -> Any:
        """What a handle holds; the handle is gone, what it held lives on.

        Raises:
            GuestFault: as `get`.
        """
        rep = self.get(resource, index)
        del self._held[index]
        heapq.heappush(self._free, index)
        return rep

    def drop(self, resource: Resource, index: int) -> None:
        """End a handle and close what it held.

        Raises:
            GuestFault: as `get`.
            Exception: what its `close` raises.
        """
        discard([self.take(resource, index)])

    def count(self, kind: type) -> int:
        """How many handles hold an object of exactly that class."""
        return sum(type(rep) is kind for _, rep in self._held.values())

    def of(self, kind: type[Held]) -> Iterator[Held]:
        """The objects of exactly that class that handles hold."""
        return (rep for _, rep in self._held.values() if type(rep) is kind)

    def clear(self) -> None:
        """End all handles and close what they held.

        Raises:
            Exception: what the first `close` that failed raised; the others were closed all the same.
        """
        if not self._held:
            return
        held, self._held = self._held, {}
        self._free, self._next = [], 1
        discard(rep for _, rep in held.values())
