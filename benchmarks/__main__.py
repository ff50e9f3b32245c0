"""Run the benchmarks, print the table, write `benchmarks/results.json`. Goals that are not met do not fail the run."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

from rich.console import Console

from benchmarks import report

PARTS = ("call", "roundtrip", "start", "throughput", "events", "lookup", "mixed", "instances")
PEERS = ("extism", "extism_sys", "mcp", "mcp_types", "anyio")


def main() -> int:
    """Returns the exit code: 0, or 2 when a peer is not installed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the host beside its peers.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them by default")
    wanted = parser.parse_args().parts or PARTS
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}: expected {', '.join(PARTS)}")
    # Hosts that stop end the guests which compute, and say so.
    logging.getLogger("astrid_host").setLevel(logging.ERROR)
    console, results = Console(), {}
    for part in PARTS:
        if part in wanted:
            console.print(f"measuring {part} ...", style="dim")
            try:
                results[part] = _part(part)()
            except ImportError as error:
                if (error.name or "").partition(".")[0] not in PEERS:
                    raise
                console.print(f"{error}; the peers are in a dependency group: pip install --group bench", style="red")
                return 2
    report.show(results, console)
    report.write(results)
    return 0


def _part(name: str) -> Callable[[], dict[str, Any]]:
    from benchmarks import calls, events, instances, lookup, mixed, roundtrips, starts, throughput

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "call": calls.run,
        "roundtrip": roundtrips.run,
        "start": starts.run,
        "throughput": throughput.run,
        "events": events.run,
        "lookup": lookup.run,
        "mixed": mixed.run,
        "instances": instances.run,
    }
    return parts[name]


if __name__ == "__main__":
    raise SystemExit(main())
