"""The threads on which host functions do what takes long, shared fairly.

There are few, because they share the disk and the interpreter. One principal has three of them at most, and one capsule six;
whoever waits is served by principal in turn, whatever number of calls another one has waiting. What takes very long is done in
pieces, and between two of them a thread goes to whoever waits for one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from astrid_host.hostcalls.interface import Running

THREADS, OF_PRINCIPAL, OF_CAPSULE = 8, 3, 6

Found = TypeVar("Found")


class Threads:
    """Places of threads. Used on the trio thread.

    Args:
        most: of all guests together.
        of_principal: of one principal.
        of_capsule: of one capsule.
    """

    def __init__(self, most: int = THREADS, of_principal: int = OF_PRINCIPAL, of_capsule: int = OF_CAPSULE) -> None:
        self._most, self._of_principal, self._of_capsule = most, of_principal, of_capsule
        self._taken = 0
        self._of = Counter[tuple[str, str]]()  # by kind and name
        self._waiting: dict[str, deque[Place]] = {}  # by principal, whose turn is next first

    async def run(self, call: Running, work: Callable[[], Found], abandon: bool = False) -> Found:
        """Do something on a thread.

        Args:
            call: on whose behalf.
            work: what is not short calls `between_pieces` of its place, or looks out for a cancellation itself.
            abandon: when cancelled, do not wait for the thread: for what changes nothing and holds its own descriptors.
        """
        return await self.run_in(self.place(call), work, abandon)

    async def run_in(self, place: Place, work: Callable[[], Found], abandon: bool = False) -> Found:
        """The same with a place that `work` knows."""
        limiter: Any = place
        return await trio.to_thread.run_sync(work, abandon_on_cancel=abandon, limiter=limiter)

    def place(self, call: Running) -> Place:
        """A place for one piece of work of a call."""
        return Place(self, call.principal, call.capsule.id)

    @property
    def contended(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    def fits(self, place: Place) -> bool:
        return (
            self._taken < self._most
            and self._of["principal", place.principal] < self._of_principal
            and self._of["capsule", place.capsule] < self._of_capsule
        )

    async def take(self, place: Place) -> None:
        """Wait until it is this one's turn. Cancelled, it has no place."""
        line = self._waiting.get(place.principal)
        if not line and self.fits(place):
            await trio.lowlevel.checkpoint_if_cancelled()
            self._count(place, 1)
            return
        place.turn = trio.Event()
        self._waiting.setdefault(place.principal, deque()).append(place)
        try:
            await place.turn.wait()
        except BaseException:
            if place.turn.is_set():
                self.give_back(place)
            else:
                self._leave(place)
            raise

    def give_back(self, place: Place) -> None:
        """It is free; whoever is next has it."""
        self._count(place, -1)
        self._serve()

    def _count(self, place: Place, by: int) -> None:
        self._taken += by
        for kind in (("principal", place.principal), ("capsule", place.capsule)):
            self._of[kind] += by
            if not self._of[kind]:
                del self._of[kind]

    def _leave(self, place: Place) -> None:
        line = self._waiting[place.principal]
        line.remove(place)
        if not line:
            del self._waiting[place.principal]

    def _serve(self) -> None:
        """Give what is free to those who wait, a principal at a time."""
        while self._taken < self._most:
            chosen = next(
                (place for line in self._waiting.values() if (place := self._first_that_fits(line)) is not None), None
            )
            if chosen is None:
                return
            self._leave(chosen)
            line = self._waiting.pop(chosen.principal, None)
            if line is not None:  # it goes behind the other principals
                self._waiting[chosen.principal] = line
            self._count(chosen, 1)
            chosen.turn.set()

    def _first_that_fits(self, line: deque[Place]) -> Place | None:
        return next((place for place in line if self.fits(place)), None)


class Place:
    """A place of one thread: what trio calls a limiter."""

    __slots__ = ("_threads", "capsule", "principal", "turn")

    def __init__(self, threads: Threads, principal: str, capsule: str) -> None:
        self._threads = threads
        self.principal = principal
        self.capsule = capsule
        self.turn: trio.Event

    async def acquire_on_behalf_of(self, _borrower: object) -> None:
        await self._threads.take(self)

    def release_on_behalf_of(self, _borrower: object) -> None:
        self._threads.give_back(self)

    def between_pieces(self) -> None:
        """Called on the thread: let somebody else have it who waits, and go on afterwards. Raises trio.Cancelled."""
        trio.from_thread.check_cancelled()
        if self._threads.contended:
            trio.from_thread.run(self._pass_on)

    async def _pass_on(self) -> None:
        self._threads.give_back(self)
        with trio.CancelScope(shield=True):  # trio gives back what it took, however the work ends
            await self._threads.take(self)
