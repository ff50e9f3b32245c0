"""What an instance costs: 1,000 principals call one tool capsule once each, so that each has an instance of its own.

A process of its own measures it, because memory that other parts gave back would be taken again. The bytes are all that came
with a principal: instance, queue, and what the allocator added. The time is of a principal's first call, from publish to
answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.measure import Spread, over_rounds, spread
from benchmarks.starts import ROOT

PRINCIPALS = 1000
ROUNDS = 5
LIMIT_S = 60.0


def run() -> Spread:
    """Measure in several processes.

    Returns:
        `bytes` for each instance, `p50_us` of a principal's first call.

    Raises:
        RuntimeError: a process failed.
        subprocess.TimeoutExpired: a process took more than a minute.
    """
    rounds: list[Spread] = []
    for _ in range(ROUNDS):
        told = _process()
        rounds.append({"bytes": told["bytes"], "p50_us": spread(told["taken"])["p50_us"]})
    return over_rounds(rounds)


def _process() -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.instance_process", str(PRINCIPALS)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"`{' '.join(command[1:])}` failed with {ended.returncode}:\n{ended.stderr}")
    told: dict[str, Any] = json.loads(ended.stdout)
    return told
