"""A host with everything at once, at random, against a model: no event is lost in silence, handled twice or out of order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_machine import Ask, HostMachine
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from running_host import RunningHost


@pytest.fixture
def running(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningHost]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    logging.disable(logging.WARNING)  # every failure is a line, and here are thousands
    try:
        with RunningHost(tmp_path) as host:
            yield host
    finally:
        logging.disable(logging.NOTSET)


def test_every_event_is_handled_in_order_or_reported_once(running: RunningHost) -> None:
    run_state_machine_as_test(
        lambda: HostMachine(running),  # type: ignore[arg-type]  # whatever makes machines will do
        settings=settings(max_examples=200, stateful_step_count=10),
    )


def test_an_event_that_puts_a_member_of_its_chain_in_quarantine_goes_on_before_those_that_wait(
    running: RunningHost,
) -> None:
    """The row of `maybe` lets the chain go on; its fifth trap is the last, and what waits for it goes on without it."""
    machine = HostMachine(running)
    events = [("ann", Ask("w.ask.chain", maybe="trap"))] * 8
    machine.publish_several(events=events, how="while the loop stands still")
    machine.settle_down()
