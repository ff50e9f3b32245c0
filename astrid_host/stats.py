"""What a host tells of its work: counts since it started, by capsule and by principal.

Everything here is a copy: it does not change once it was handed out. Counting is part of the call path and never waits;
counts of different things may be a few calls apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from astrid_host.scheduler import Account

NO_FAILURES: Mapping[str, int] = MappingProxyType({})


class Usage(msgspec.Struct, frozen=True):
    """What one capsule did, or what was done for one principal.

    Attributes:
        calls: calls of guests that have ended, well or not.
        failures: how many of them did not end well, by the reason that failure reports use (`trap`, `timeout`, ...).
        cpu_seconds: seconds that guests computed, host functions included.
        events: events that they published.
        bytes: of the payloads of these events.
        peak_memory_bytes: the most memory that one instance had.
    """

    calls: int
    failures: Mapping[str, int]
    cpu_seconds: float
    events: int
    bytes: int
    peak_memory_bytes: int

    @property
    def traps(self) -> int:
        """How many calls trapped."""
        return self.failures.get("trap", 0)


class Quarantined(msgspec.Struct, frozen=True):
    """A capsule that is not called for one principal, because it trapped too often.

    Attributes:
        seconds: how long it still lasts.
    """

    capsule: str
    principal: str
    seconds: float


class HostStats(msgspec.Struct, frozen=True):
    """The counts of one host.

    Attributes:
        events: events published, the kernel's own included.
        bytes: of their payloads.
        failures: events that were not handled well, by reason; whether anybody listened to the reports or not.
        dropped: events that subscriptions gave up for newer ones, by pattern.
        lagged: events that broadcast receivers missed, by the receiver's name.
        kernel_refused: kernel events that a full queue refused.
        queues: queues that exist, over all capsules and principals.
        queued: events that wait in them.
        instances: instances that exist, those of waiting guests included.
        waiting: guests that wait for something, on no thread.
        quarantined: what is in quarantine now.
        capsules: by id.
        principals: by name. Above 10,000 the rest is counted together as `*`.
        memory_bytes: linear memory of all instances.
    """

    events: int
    bytes: int
    failures: Mapping[str, int]
    dropped: Mapping[str, int]
    lagged: Mapping[str, int]
    kernel_refused: int
    queues: int
    queued: int
    instances: int
    waiting: int
    quarantined: tuple[Quarantined, ...]
    capsules: Mapping[str, Usage]
    principals: Mapping[str, Usage]
    memory_bytes: int = 0


def usage_of(account: Account) -> Usage:
    """What an account says now."""
    return Usage(
        calls=account.calls,
        failures=dict(account.failures) if account.failures else NO_FAILURES,
        cpu_seconds=account.cpu_s,
        events=account.events,
        bytes=account.bytes,
        peak_memory_bytes=account.peak_bytes,
    )
