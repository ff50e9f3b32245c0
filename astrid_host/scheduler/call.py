"""The running call: which capsule's guest runs, on whose behalf, for which event, and what it did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from astrid_host.engine import Activation, Entry, Pool
from astrid_host.scheduler.accounts import Account, Accounts

if TYPE_CHECKING:
    from astrid_host.bus.events import Event
    from astrid_host.errors import GuestFailed


class Pace:
    """How long a handler tends to compute: one that computed for long twice in a row starts in the worker pool next time."""

    __slots__ = ("last", "slow")

    def __init__(self) -> None:
        self.last = 0.0
        self.slow = False

    def took(self, seconds: float, long: float) -> None:
        self.slow = min(seconds, self.last) > long
        self.last = seconds


class Owner(Protocol):
    """Who started a call and hears of its end."""

    pace: Pace

    def ended(self, call: Call, failure: BaseException | None) -> None:
        """The call is over, its instance given back or discarded. Called once, on the thread that ran it last, no lock
        held. `failure` is None when the guest returned; `call.result` is what it returned then."""
        ...


class Refusal(NamedTuple):
    """Why a publish was refused: the word that reports use, and what to tell people."""

    reason: str
    detail: str


class Backpressure(Protocol):
    """Why a call that computes is blocked for a while. The lock is held."""

    def until(self, now: float) -> float | None:
        """When to ask again, in seconds of `time.monotonic`; None when the call may go on."""
        ...


class Capsule(Protocol):
    """A capsule, as far as running its guest goes."""

    @property
    def pool(self) -> Pool: ...
    @property
    def id(self) -> str: ...
    @property
    def account(self) -> Account:
        """Where its use is counted."""
        ...

    @property
    def accounts(self) -> Accounts:
        """Where the use of principals is counted."""
        ...


class Call(Activation):
    """One call of a guest.

    Args:
        capsule: whose guest.
        entry: the export.
        arguments: its parameters.
        principal: on whose behalf; instances are kept by it.
        message: the event that the guest handles, if any.
        owner: who hears of the end.
        limit_s: how many seconds the guest may compute.
        follows: a run loop: its principal and message follow the last message received, and its time starts anew at
            each message and each wait.
    """

    __slots__ = (
        "backpressure",
        "began",
        "cancelled",
        "capsule",
        "follows",
        "forgot_refusals",
        "gave_up",
        "host_calls",
        "is_blocked",
        "is_compute_heavy",
        "is_host_call_heavy",
        "is_uncounted",
        "limit_s",
        "marked",
        "memory_bytes",
        "message",
        "owner",
        "parked",
        "peer",
        "principal",
        "published",
        "refused",
        "slice_s",
        "worked",
    )

    def __init__(
        self,
        capsule: Any,
        entry: Entry,
        arguments: tuple[Any, ...],
        principal: str,
        message: Event | None,
        owner: Owner,
        limit_s: float,
        follows: bool = False,
    ) -> None:
        super().__init__(entry, arguments)
        self.capsule = capsule
        self.principal = principal
        self.message = message
        self.owner = owner
        self.limit_s = limit_s
        self.follows = follows
        self.worked = 0.0  # seconds of computing, host functions included
        self.slice_s = 0.0  # of these, since it waited or yielded last
        self.marked = 0  # how many host functions it had called then
        self.host_calls = 0  # how many of them it called since it yielded last
        self.is_host_call_heavy = False  # it yielded because it called many of them: it does not only compute
        self.is_compute_heavy = False  # it computed for long before it waited: a worker goes on with it
        self.parked = False  # waiting, and off its stack: to be made runnable by whoever wakes it
        self.began = False  # its guest ran
        self.is_uncounted = False  # its instance does not count against the cap while it waits
        self.cancelled: GuestFailed | None = None
        self.published: list[str] = []
        self.refused: dict[str, Refusal] = {}  # by topic
        self.forgot_refusals = False  # there were more, and that was said
        self.backpressure: Backpressure | None = None  # why it is blocked at its next epoch check
        self.is_blocked = False  # parked for that
        self.gave_up: tuple[object, ...] = ()  # queues that it waited for in vain
        self.memory_bytes = 0  # of its instance, at the end
        # Whose frame it read last from a connection; what it publishes for others is theirs.
        self.peer: str | None = None

    def take(self) -> Call:
        """As a `Source`: itself, once."""
        return self

    def charge(self) -> None:
        """Account for what a run loop has computed since it was charged last; its time starts anew. The lock is held."""
        worked, self.worked = self.worked, 0.0
        instance = self.instance
        memory_bytes = instance.size if instance is not None else 0
        for account in (self.capsule.account, self.capsule.accounts.of(self.principal)):
            account.cpu_s += worked
            account.peak_bytes = max(account.peak_bytes, memory_bytes)
