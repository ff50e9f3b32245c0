"""How long a process takes to open the host with all bundled capsules: the whole process, from fork to exit.

`cold` has an empty cache of compiled modules and a new state folder, `warm` has both filled, `imports` only imports the
third-party packages that the host needs. What the host adds at a second start is `warm` less `imports`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 11
COLD_ROUNDS = 5
LIMIT_S = 60.0


def run() -> dict[str, dict[str, float]]:
    """Measure all three.

    Returns:
        `p50_ms` of `cold`, `warm` and `imports`.

    Raises:
        RuntimeError: a process failed, or a warm start compiled something.
        subprocess.TimeoutExpired: a process took more than a minute.
    """
    taken: dict[str, list[float]] = {"imports": [], "warm": [], "cold": []}
    with tempfile.TemporaryDirectory(prefix="astrid-host-bench-") as name:
        folders = (Path(name) / str(number) for number in range(ROUNDS + 1))
        kept = next(folders)
        _open(kept)  # fills the cache and the state; and Python's own cache of compiled sources
        _time(kept, "imports")
        for number in range(ROUNDS):
            taken["imports"].append(_time(kept, "imports")[0])
            taken["warm"].append(_warm(kept))
            if number < COLD_ROUNDS:
                taken["cold"].append(_cold(folders))
    return {name: {"p50_ms": round(statistics.median(each) * 1e3, 3)} for name, each in taken.items()}


def _warm(folder: Path) -> float:
    seconds, told = _open(folder)
    if told["compiled"]:
        raise RuntimeError(f"a warm start compiled {told['compiled']} modules, expected none")
    return seconds


def _cold(folders: Iterator[Path]) -> float:
    seconds, told = _open(next(folders))
    if told["compiled"] < len(told["capsules"]):
        raise RuntimeError(f"a cold start compiled {told['compiled']} modules of {len(told['capsules'])} capsules")
    return seconds


def _open(folder: Path) -> tuple[float, dict[str, Any]]:
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True)
    seconds, output = _time(folder, "host", str(state))
    return seconds, json.loads(output)


def _time(folder: Path, *arguments: str) -> tuple[float, str]:
    environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"), PYTHONPYCACHEPREFIX=str(folder.parent / "pyc"))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its sources compiled
    if sys.platform == "darwin":
        environment["HOME"] = str(folder)  # the cache is below it there
    command = [sys.executable, "-m", "benchmarks.start_process", *arguments]
    begin = time.perf_counter()
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    seconds = time.perf_counter() - begin
    if ended.returncode:
        raise RuntimeError(f"`{' '.join(command[1:])}` failed with {ended.returncode}:\n{ended.stderr}")
    return seconds, ended.stdout
