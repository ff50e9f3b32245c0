"""The soak run: `python tests/soak/soak.py [CALLS]`, 100,000 calls by default, of which every tenth traps.

One host lives through five phases: plain calls, guests that wait, subscriptions that come and go, tool calls through the
router, and callers that are never seen again. Each call must end in exactly one answer or failure report. Resident memory,
threads and file descriptors are measured when half of a phase's calls have ended and when all have: memory may be 5 % more,
of threads and descriptors there may be no more. Prints a line for each phase; exits with 1, and says which line broke, when
a bound does not hold.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from guests_in_wat import Guest, capsule, compute, next_of

from astrid_host import BUNDLED, Host, open_host
from tests.soak.soak_phases import LOST_S, Newcomers, Phase, Subscriptions, Tools, Waits

CALLS = 100_000
CALLERS = 64
PRINCIPALS = 16
WORKERS = 2
MIB = 1 << 20
GROWTH = 0.05  # of the resident memory, over the second half of a phase


class Sample(NamedTuple):
    """What the process holds: bytes of resident memory, threads, open file descriptors."""

    memory: int
    threads: int
    files: int

    @classmethod
    def take(cls) -> Sample:
        """Measure, after garbage was collected and the allocator's free pages went back to the system where it can do that.

        What counts is what is still held, not what the allocator keeps for later.
        """
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)
        files = len(os.listdir("/dev/fd"))
        if sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
            memory, threads = pages * resource.getpagesize(), len(os.listdir("/proc/self/task"))
        else:  # the most memory it ever had: nothing else is told there
            memory, threads = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, threading.active_count()
        return cls(memory, threads, files)


class Line(msgspec.Struct, frozen=True):
    """One phase, as it went: seconds, answers and reports, what was held, and what was wrong with its calls.

    `due` is how many bytes more may rightly be held after the second half than after the first.
    """

    phase: str
    calls: int
    seconds: float
    answers: int
    reports: int
    before: Sample
    half: Sample
    after: Sample
    due: int
    problems: list[str]

    def __str__(self) -> str:
        samples = self.before, self.half, self.after
        memory = " ".join(f"{sample.memory / MIB:.1f}" for sample in samples)
        threads, files = (" ".join(str(sample[i]) for sample in samples) for i in (1, 2))
        grown = self.after.memory / self.half.memory - 1
        return (
            f"{self.phase:13} {self.calls:6} calls, {self.calls / self.seconds:5.0f}/s, {self.answers} answers, "
            f"{self.reports} reports; before, half, after: {memory} MiB ({grown:+.1%}), threads {threads}, files {files}"
        )

    def broken(self, slack: float) -> list[str]:
        """The bounds that did not hold, when `slack` bytes may be held above what is due."""
        found = list(self.problems)
        more = self.after.memory - self.half.memory
        if more > self.due + slack:
            found.append(f"the second half of the calls left {more / MIB:.1f} MiB behind")
        for what in ("threads", "files"):
            half, after = getattr(self.half, what), getattr(self.after, what)
            if after > half:
                found.append(f"open {what} after the second half of the calls: {after}, after the first: {half}")
        return found


async def drive(phase: Phase, numbers: range) -> float:
    """Make these calls, `CALLERS` at once, and wait until each has ended. Returns the seconds that it took."""
    rest = iter(numbers)

    async def caller(principal: str) -> None:
        for n in rest:
            over = phase.ledger.begin(n)
            await phase.call(n, principal)
            with trio.move_on_after(LOST_S) as patience:
                await over.wait()
            if patience.cancelled_caught:  # the phase has failed; it need not take hours
                return

    begun = time.monotonic()
    async with trio.open_nursery() as nursery:
        for i in range(CALLERS):
            nursery.start_soon(caller, f"principal {i % PRINCIPALS}")
    return time.monotonic() - begun


async def soak(phase: Phase, host: Host, calls: int) -> Line:
    """One phase of so many calls."""
    before = Sample.take()
    phase.begin(host)
    async with phase.heard():
        seconds = await drive(phase, range(calls // 2))
        half = Sample.take()
        seconds += await drive(phase, range(calls // 2, calls))
        after = Sample.take()
    answers, reports = phase.ledger.answers.total(), phase.ledger.reports.total()
    problems = phase.problems(calls)
    return Line(phase.name, calls, seconds, answers, reports, before, half, after, phase.due(calls), problems)


async def warm(host: Host) -> None:
    """Let every thread of the worker pool come into being: a computing guest for each, all at once."""
    async with host.subscribe("warm.said") as said:
        for i in range(WORKERS):
            host.publish("warm.ask", i, principal=f"warm {i}")
        for _ in range(WORKERS):
            await next_of(said)


def warming(place: Path) -> None:
    guest = Guest()
    capsule(
        place, "warm", guest.handles(compute(200_000_000) + guest.say("warm.said")), {"warm.ask": "act"}, ["warm.said"]
    )


@contextmanager
def unlogged() -> Iterator[None]:
    """Every trap is logged: ten thousand lines that nobody reads, and that pytest would keep."""
    log = logging.getLogger("astrid_host")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


async def soaked(place: Path, calls: int, tell: Callable[[Line], None]) -> list[str]:
    """All phases in one host, whose capsules are written below `place`.

    Args:
        place: an empty folder.
        calls: all of them.
        tell: called with each phase's line as soon as there is one.

    Returns:
        What the host still had to do when all was over, which is nothing when all is well.
    """
    run = Phase(), Waits(), Subscriptions(), Tools(), Newcomers()
    for phase in run:
        phase.place(place)
    warming(place)
    bundled = [Path(BUNDLED) / name for name in ("router", "word-tools", "dead-letter")]
    with unlogged():
        async with open_host(
            [place, *bundled], trust=True, state_dir=":memory:", workspace=place, workers=WORKERS
        ) as host:
            await warm(host)
            for phase in run:
                tell(await soak(phase, host, round(calls * phase.share)))
            stats = host.stats()
    left = {"events wait": stats.queued, "guests wait": stats.waiting, "quarantines last": len(stats.quarantined)}
    return [f"at the end {count} {what}" for what, count in left.items() if count]


def main(arguments: Sequence[str]) -> int:
    calls = int(arguments[0]) if arguments else CALLS
    broken: list[str] = []

    def tell(line: Line) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        broken.extend(f"{line.phase}: {problem}" for problem in line.broken(GROWTH * line.half.memory))

    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        os.environ["XDG_CACHE_HOME"] = f"{place}/cache"
        broken += trio.run(soaked, Path(place, "capsules"), calls, tell)
    for problem in broken:
        sys.stdout.write(f"BROKEN {problem}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
