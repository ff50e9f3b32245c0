"""Subscriptions and broadcast receivers at random against models: all is given in order or counted, and everybody has a share."""

from __future__ import annotations

import logging
import tracemalloc

import pytest
from broadcast_machine import BroadcastMachine
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from subscription_machine import SubscriptionMachine

from astrid_host.bus import Event, Subscription


@pytest.fixture(autouse=True)
def no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Every drop is a line in the log: here there are too many to read."""
    caplog.set_level(logging.CRITICAL)


def test_a_subscription_counts_what_it_drops_and_serves_all_principals_alike() -> None:
    run_state_machine_as_test(SubscriptionMachine, settings=settings(max_examples=200, stateful_step_count=40))


def test_a_broadcast_receiver_is_given_everything_in_order_or_counts_it_as_missed() -> None:
    run_state_machine_as_test(BroadcastMachine, settings=settings(max_examples=200, stateful_step_count=20))


def test_a_subscription_that_nobody_reads_does_not_grow() -> None:
    """What it gave up leaves nothing behind, though each principal comes and goes all the time."""
    subscription = Subscription("t", budget=1000)

    def offer(count: int) -> None:
        for seq in range(count):
            subscription.offer(Event("t", b"x" * 99, None, f"p{seq % 50}", "s", seq + 1, 0.0, True))

    tracemalloc.start()
    try:
        offer(1000)
        before, _ = tracemalloc.get_traced_memory()
        offer(10_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert subscription.waiting == 10
    assert after - before < 50_000
