"""What guests used: counted where a call ends and where an event is published, by capsule and by principal.

Only counts that cost nothing to keep: no lock of its own, no history. The bus's lock is held, or the count belongs to one
capsule's call that ends on one thread.
"""

from __future__ import annotations

PRINCIPALS = 10_000
OTHERS = "*"


class Account:
    """Counts of one capsule, or of one principal."""

    __slots__ = ("bytes", "calls", "cpu_s", "events", "failures", "peak_bytes")

    def __init__(self) -> None:
        self.calls = 0
        self.failures: dict[str, int] = {}
        self.cpu_s = 0.0
        self.events = 0
        self.bytes = 0
        self.peak_bytes = 0

    def ended(self, reason: str, cpu_s: float, memory_bytes: int) -> None:
        """A call is over: for no reason when it ended well."""
        self.calls += 1
        self.cpu_s += cpu_s
        if memory_bytes > self.peak_bytes:
            self.peak_bytes = memory_bytes
        if reason:
            self.failures[reason] = self.failures.get(reason, 0) + 1


class Accounts:
    """The accounts of all principals; above 10,000 the rest has one together, named `*`."""

    __slots__ = ("by_principal",)

    def __init__(self) -> None:
        self.by_principal: dict[str, Account] = {}

    def of(self, principal: str) -> Account:
        """The account of a principal."""
        account = self.by_principal.get(principal)
        if account is None:
            if len(self.by_principal) >= PRINCIPALS and OTHERS in self.by_principal:
                return self.by_principal[OTHERS]
            name = principal if len(self.by_principal) < PRINCIPALS else OTHERS
            account = self.by_principal[name] = Account()
        return account
