"""One call of a guest, on a stack of its own.

An `Activation` carries everything about a call: its instance, its future, what its host functions raised. `advance` runs
the guest on the calling thread until it ends, until an epoch tick falls due, or until a host function waits; between two
advances any other thread may go on with it. Deleting the future unwinds the guest's stack, whatever it was doing.

What goes wrong is raised by `advance`: the exception of a host function as it was (also a `BaseException`), else what the
engine says, as a `GuestFailed`. After that the instance is not to be used again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from astrid_host.engine import native

if TYPE_CHECKING:
    from astrid_host.engine.instance import Entry, Instance

HOST_CALLS_IN_A_ROW = 32  # after so many calls of host functions a guest yields, however little time has passed
# An allocator that runs for so many ticks is taken to be endless; so is one that takes its time at each of many strings,
# because a thread stands still until the value is lowered.
NESTED_TICKS = 4
NESTED_S = 0.5
EARLY_S = 0.008  # a tick that comes so soon after another was made out of turn, and does not count here


class _Here(threading.local):
    activation: Activation | None = None


here = _Here()


class Suspend:
    """What a host function returns when it has nothing to return yet: its guest sleeps until somebody wakes it.

    Each wait has a `Suspend` of its own, so the late end of one that timed out cannot end the next.

    Args:
        activation: the call that waits.
        finish: gives the host function's result, on the guest's stack, once `ready`; may raise `HostError`.
        until: when to give up, in seconds of `time.monotonic`; None for a wait that its own host function bounds.
    """

    __slots__ = ("activation", "cancel", "finish", "ready", "until")

    def __init__(self, activation: Activation, finish: Callable[[], Any], until: float | None = None) -> None:
        self.activation = activation
        self.finish = finish
        self.until = until
        self.ready = False
        self.cancel: Callable[[], None] | None = None  # tells whoever works for this wait that nobody waits any more


class Activation:
    """One call of one exported function.

    Args:
        entry: which export.
        arguments: its parameters, as Python values.
    """

    __slots__ = (
        "arguments",
        "entry",
        "failure",
        "future",
        "instance",
        "lowering",
        "nested",
        "reached",
        "result",
        "slow_since",
        "suspend",
        "ticked_at",
        "trap_at",
    )

    def __init__(self, entry: Entry, arguments: tuple[Any, ...]) -> None:
        self.entry = entry
        self.arguments = arguments
        self.instance: Instance | None = None
        self.future: int | None = None
        self.failure: BaseException | None = None
        self.nested = 0  # in the guest's allocator or post-return: counts the ticks spent there, from 1
        self.reached = 0  # how often it called host functions
        self.ticked_at = 0.0  # when the last tick that counted fell into the allocator
        self.slow_since = 0.0  # when the allocator first met a tick while this value was lowered
        self.suspend: Suspend | None = None
        self.lowering: Callable[[Callable[[], Any]], None] | None = None
        self.trap_at = 0
        self.result: Any = None

    def advance(self) -> bool:
        """Run the guest until it ends (True: `result` is there), or until it yields or waits (False).

        Raises:
            BaseException: what a host function raised.
            GuestFailed: the guest trapped, or returned what cannot be lifted.
            RuntimeError: another thread is inside the instance's store.
        """
        instance = self.instance
        assert instance is not None, "an activation needs an instance"
        if not instance.entered.acquire(False):
            raise RuntimeError(f"two threads in one store of {instance.module.name}: a store belongs to one at a time")
        here.activation = self
        memory = instance.memory
        if memory is not None:  # `Memory.admit` and `Memory.settle`, written out for when there is plenty
            if memory.tight or instance.limit != instance.memory_bytes:
                memory.admit(instance)
            else:
                memory.running.add(instance)
        try:
            future = self.future
            if future is None:
                self.future = future = instance.next_future(self)
            while native.POLL(future):
                self.future = None
                native.DELETE_ENDED(future)
                if instance.out[0] or instance.out[1] or self.failure is not None:
                    raise instance.failed(self)
                if instance.calling:
                    instance.calling = False
                    self.result = instance.end(self)
                    return True
                self.future = future = instance.next_future(self)
            if instance.is_open:
                instance.look()
            return False
        finally:
            here.activation = None
            if memory is not None:
                if instance.size > instance.counted or instance.granted:
                    memory.settle(instance)
                else:
                    memory.running.discard(instance)
            instance.entered.release()

    def yield_soon(self) -> None:
        """Let the guest yield at its next epoch check, as if a tick fell due. Called by its host functions.

        Every other guest that computes yields too: a deadline that is moved back is not seen by a loop that keeps it in a
        register.
        """
        assert self.instance is not None, "a host function runs inside a call"
        native.TICK(self.instance.module.engine_at)

    def abandon(self) -> None:
        """Unwind the guest's stack, wherever it is; the instance is not to be used again."""
        future, self.future = self.future, None
        suspend, self.suspend = self.suspend, None
        if suspend is not None and suspend.cancel is not None:
            suspend.cancel()
        if future is not None:
            native.DELETE(future)

    def fail(self, error: BaseException) -> None:
        """In a waiting host function: end the call with this error."""
        self.failure = error
        native.VOID.from_address(self.trap_at).value = native.NEW_TRAP(b"host", 4)


@native.ON_EPOCH  # type: ignore[untyped-decorator]
def on_epoch(_context: int, _env: int, more_ticks: Any, kind: Any) -> int | None:
    """A tick fell due: yield to whoever polls. The guest's allocator may not yield, but neither may it run for ever."""
    more_ticks[0] = 1
    activation = here.activation
    if activation is None or not activation.nested:
        kind[0] = 1
        return None
    kind[0] = 0
    now = time.monotonic()
    if activation.nested > 1 and now - activation.ticked_at < EARLY_S:
        return None
    activation.nested += 1
    activation.ticked_at = now
    activation.slow_since = activation.slow_since or now
    if activation.nested > NESTED_TICKS or now - activation.slow_since > NESTED_S:
        error: int = native.NEW_ERROR(b"the guest's allocator or post-return function does not return")
        return error
    return None


@native.GO_ON  # type: ignore[untyped-decorator]
def go_on(_env: int) -> bool:
    """Polled on the stack of a guest that waits: False suspends it again."""
    activation = here.activation
    if activation is None or activation.nested:
        return True  # the import has trapped already
    suspend = activation.suspend
    if suspend is None:
        return True
    if not suspend.ready:
        return False
    activation.suspend = None
    activation.slow_since = 0.0
    lowering, activation.lowering = activation.lowering, None
    assert lowering is not None, "a wait without a way to lower its result"
    try:
        lowering(suspend.finish)
    except BaseException as error:  # noqa: BLE001 - carried to the call's owner
        activation.fail(error)
    return True


GO_ON_AT = native.address(go_on)
