"""Fuzzes the host for a number of seconds: `python tests/fuzz/fuzz.py SECONDS`.

Runs the properties of `fuzz_topics` and the machines of `fuzz_delivery` in turn, each for its share of the time and at least
once. Prints how many cases of each it ran, and last `N passed, 0 failed`; at a failure the smallest case that shows it, and
then it exits with 1.
"""

from __future__ import annotations

import abc
import logging
import re
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / folder) for folder in ("support", "delivery")]

import fuzz_delivery  # noqa: E402 - the folders that it needs are on the path now
import fuzz_topics  # noqa: E402

ROUND = 200  # cases of a property between two looks at the clock


def limits(cases: int, steps: int = 1) -> settings:
    """Settings of one round: new cases each time, and nothing kept."""
    return settings(
        max_examples=cases,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


class Target(abc.ABC):
    """Something to fuzz.

    Attributes:
        share: how much of the time it gets.
        cases: how many were run.
        seconds: how long they took.
    """

    def __init__(self, name: str, share: int) -> None:
        self.name = name
        self.share = share
        self.cases = 0
        self.seconds = 0.0

    @abc.abstractmethod
    def run(self) -> None:
        """One round. Raises what the smallest failing case raises."""


class PropertyTarget(Target):
    """A function that hypothesis calls with cases."""

    def __init__(self, function: fuzz_topics.Property) -> None:
        super().__init__(function.__name__, 1)
        inner = function.hypothesis.inner_test  # type: ignore[attr-defined]

        def counted(**case: object) -> None:
            self.cases += 1
            inner(**case)

        function.hypothesis.inner_test = counted  # type: ignore[attr-defined]
        self._function = limits(ROUND)(function)

    def run(self) -> None:
        self._function()


class MachineTarget(Target):
    """A machine, whose cases are programs of steps."""

    def __init__(self, machine: fuzz_delivery.Machine) -> None:
        super().__init__(machine.name, machine.share)
        self._machine = machine

    def run(self) -> None:
        machine = self._machine
        with contextmanager(machine.opened)() as make:

            def counted() -> RuleBasedStateMachine:
                self.cases += 1
                return make()

            run_state_machine_as_test(
                counted,  # type: ignore[arg-type]  # whatever makes machines will do
                settings=limits(machine.cases, machine.steps),
            )


def run_all(targets: Sequence[Target], seconds: float) -> int:
    """Run the target that is furthest behind its share, until the time is over or one failed.

    Returns:
        How many failed.
    """
    end = time.monotonic() + seconds
    while True:
        target = min(targets, key=lambda target: target.seconds / target.share)
        if target.seconds and time.monotonic() >= end:
            return 0
        begun = time.monotonic()
        try:
            target.run()
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
            sys.stderr.write(f"{target.name} failed: its smallest case is shown above\n")
            return 1
        finally:
            target.seconds += time.monotonic() - begun


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if len(arguments) != 1 or not re.fullmatch(r"\d+", arguments[0]):
        sys.stderr.write("usage: fuzz.py SECONDS, a whole number\n")
        return 2
    logging.disable(logging.WARNING)  # every failure that a guest is told to make is a line
    targets = [*map(PropertyTarget, fuzz_topics.PROPERTIES), *map(MachineTarget, fuzz_delivery.MACHINES)]
    failures = run_all(targets, int(arguments[0]))
    for target in targets:
        sys.stdout.write(f"{target.name}: {target.cases} cases in {target.seconds:.1f} s\n")
    sys.stdout.write(f"{sum(target.cases for target in targets) - failures} passed, {failures} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
