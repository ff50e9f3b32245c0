"""What `fuzz.py` runs of delivery: the machines of `tests/delivery`, on a subscription, on a ring, and on a whole host."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from broadcast_machine import BroadcastMachine
from host_machine import HostMachine
from hypothesis.stateful import RuleBasedStateMachine
from running_host import RunningHost
from subscription_machine import SubscriptionMachine


class Machine(NamedTuple):
    """A machine to run.

    Attributes:
        name: of it, for people.
        opened: what makes the machines of one round.
        steps: the most that one of them takes.
        cases: how many of them there are in a round.
        share: how much of the time it gets, where a property of `fuzz_topics` gets 1.
    """

    name: str
    opened: Callable[[], Iterator[Callable[[], RuleBasedStateMachine]]]
    steps: int
    cases: int
    share: int


def subscriptions() -> Iterator[Callable[[], RuleBasedStateMachine]]:
    yield SubscriptionMachine


def receivers() -> Iterator[Callable[[], RuleBasedStateMachine]]:
    yield BroadcastMachine


def hosts() -> Iterator[Callable[[], RuleBasedStateMachine]]:
    """Each round has a host of its own, so what one leaves behind does not grow with the time."""
    with tempfile.TemporaryDirectory() as place, RunningHost(Path(place)) as running:
        yield lambda: HostMachine(running)


MACHINES: Sequence[Machine] = (
    Machine("subscriptions", subscriptions, 60, 100, 2),
    Machine("receivers", receivers, 30, 100, 2),
    Machine("hosts", hosts, 15, 40, 6),
)
