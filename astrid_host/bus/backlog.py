"""What waits in all queues and subscriptions of a host, in bytes: one ceiling for all, and one for the events of a principal.

A principal may have up to twice what is free, so one that floods leaves room for others. Small events always have room here:
the number of events that a queue takes bounds them, and reports and cancellations must come through. Holders account in steps
of 16 KiB, so most events cost nothing. The bus's lock is held.
"""

from __future__ import annotations

STEP_BITS = 14
SMALL_BYTES = 1 << 10
SHARE = 2


class Backlog:
    """The account of what waits.

    Args:
        most: bytes for all.
        most_of_principal: bytes for the events of one principal.

    Attributes:
        held: bytes that wait, as far as they were accounted for.
        pressed: whoever adds to it has to ask `refuses` first.
    """

    __slots__ = ("_by_principal", "held", "most", "most_of_principal", "pressed")

    def __init__(self, most: int = 256 << 20, most_of_principal: int = 64 << 20) -> None:
        self.most = most
        self.most_of_principal = min(most_of_principal, most)
        self.held = 0
        self.pressed = False
        self._by_principal: dict[str | None, int] = {}

    def change(self, principal: str | None, steps: int) -> None:
        """A holder of events of that principal holds so many steps of 16 KiB more, or less."""
        size = steps << STEP_BITS
        self.held += size
        of_principal = self._by_principal.get(principal, 0) + size
        if of_principal:
            self._by_principal[principal] = of_principal
        else:
            self._by_principal.pop(principal, None)
        # Nobody can be above a quarter of its bound, or above half of all, before this is set.
        self.pressed = 4 * self.held > min(self.most, self.most_of_principal)

    def refuses(self, principal: str | None, size: int) -> str | None:
        """Why so many bytes more may not wait on behalf of a principal, or None."""
        if size <= SMALL_BYTES:
            return None
        held = self._by_principal.get(principal, 0) + size
        if held > self.most_of_principal:
            return (
                f"{held - size} bytes of events of {principal} wait already, of {self.most_of_principal}: "
                "waiting_of_principal in the [host] table of host.toml"
            )
        free = self.most - self.held - size
        if held > SHARE * free:
            return (
                f"{self.held} bytes of events wait already, of {self.most}, and {held - size} of {principal}, which may have "
                f"{SHARE} times what is free: waiting in the [host] table of host.toml"
            )
        return None
