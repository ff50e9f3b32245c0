"""What a run found: the table with the goals beside it, and `results.json`."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results.json"

COMPONENT_RATIOS = {"64": 10.0, "1024": 60.0, "16384": 750.0}
EXTISM_RATIO = 1.5
MCP_RATIO = 10.0
START_MS = 50.0
PER_SECOND = 10_000.0
SINGLE_RATIO = 0.8
LOOKUP_RATIO = 3.0
BUSY_RATIO = 5.0

CAPTION = "ours: times faster, what it adds or holds, or the ratio to the first row"

Row = tuple[str, str, str, str, str]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {"python": platform.python_version(), "wasmtime": version("wasmtime"), "cpus": os.cpu_count()}


def write(results: Mapping[str, Any]) -> None:
    """Keep the results of one run, whichever parts it had."""
    RESULTS.write_text(json.dumps({**results, "machine": machine()}, indent=2) + "\n", encoding="utf-8")


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the table: what each took, by how much ours is faster, and whether that is what it should be."""
    about = machine()
    title = f"Python {about['python']}, wasmtime {about['wasmtime']}, {about['cpus']} CPUs; medians over rounds"
    table = Table(title=title, box=SIMPLE_HEAD, caption=CAPTION, pad_edge=False, collapse_padding=True)
    for heading in ("what", "p50", "p99", "ours", "goal"):
        table.add_column(heading, justify="left" if heading in ("what", "goal") else "right", no_wrap=True)
    for part, rows in ROWS.items():
        if part in results:
            for row in rows(results[part]):
                table.add_row(*row)
            table.add_section()
    console.print(table)


def _calls(call: Mapping[str, Any]) -> Iterator[Row]:
    for size, component_ratio in COMPONENT_RATIOS.items():
        ours = call["ours"][size]
        yield (f"call {size} B, ours", *_both(ours), "", "")
        yield _peer(f"call {size} B, component", ours, call["component"][size], component_ratio)
        yield _peer(f"call {size} B, Extism", ours, call["extism"][size], EXTISM_RATIO)


def _roundtrips(roundtrip: Mapping[str, Any]) -> Iterator[Row]:
    ours = roundtrip["ours"]
    yield ("round trip, ours", *_both(ours), "", "")
    yield ("round trip, ours with agent", *_both(roundtrip["ours_with_agent"]), "", "")
    yield _peer("round trip, MCP stdio", ours, roundtrip["mcp"], MCP_RATIO)


def _starts(start: Mapping[str, Any]) -> Iterator[Row]:
    imports = start["imports"]["p50_ms"]
    yield ("start, imports alone", _time(imports * 1e3), "", "", "")
    for name, goal in (("warm", START_MS), ("cold", None)):
        added = start[name]["p50_ms"] - imports
        said = "" if goal is None else _goal(f"+{goal:g} ms", added <= goal)
        yield (f"start, {name} cache", _time(start[name]["p50_ms"] * 1e3), "", f"{added:+.0f} ms", said)


def _throughput(throughput: Mapping[str, Any]) -> Iterator[Row]:
    single = throughput["single"]["per_second"]
    yield ("tool calls, 1 caller", "", "", _rate(single), "")
    for name, principals in (("one", "1 principal"), ("many", "64 principals")):
        found = throughput[name]["per_second"]
        goal = _goal(f">={PER_SECOND / 1e3:g}k/s", found >= PER_SECOND)
        yield (f"64 callers, {principals}", "", "", _rate(found), goal)
        ratio = found / single
        yield ("  beside 1 caller", "", "", f"{ratio:.2f} x", _goal(f">={SINGLE_RATIO:g} x", ratio >= SINGLE_RATIO))


def _events(events: Mapping[str, Any]) -> Iterator[Row]:
    for count, found in events.items():
        what = "events, 1 principal" if count == "1" else f"events, {int(count):,} principals"
        yield (what, "", "", _rate(found["per_second"]), "")


def _lookups(lookup: Mapping[str, Any]) -> Iterator[Row]:
    first, *_, last = lookup
    for size, found in lookup.items():
        ratio = found["p50_us"] / lookup[first]["p50_us"]
        ours = "" if size == first else f"{ratio:.2f} x"
        goal = _goal(f"<={LOOKUP_RATIO:g} x", ratio <= LOOKUP_RATIO) if size == last else ""
        yield (f"look-up, {int(size):,} patterns", _time(found["p50_us"]), "", ours, goal)


def _mixed(mixed: Mapping[str, Any]) -> Iterator[Row]:
    idle = mixed["idle"]
    yield ("tool call, all idle", *_both(idle), "", "")
    for name, count in (("busy1", 1), ("busy2", 2), ("busy4", 4)):
        ratio = mixed[name]["p99_us"] / idle["p99_us"]
        goal = _goal(f"p99 <={BUSY_RATIO:g} x", ratio <= BUSY_RATIO)
        yield (f"tool call, {count} computing", *_both(mixed[name]), f"{ratio:.2f} x", goal)


def _instances(instances: Mapping[str, Any]) -> Iterator[Row]:
    yield ("instance, first call", _time(instances["p50_us"]), "", f"{instances['bytes'] / 1024:.1f} KiB", "")


ROWS: dict[str, Callable[[Mapping[str, Any]], Iterator[Row]]] = {
    "call": _calls,
    "roundtrip": _roundtrips,
    "start": _starts,
    "throughput": _throughput,
    "events": _events,
    "lookup": _lookups,
    "mixed": _mixed,
    "instances": _instances,
}


def _peer(what: str, ours: Mapping[str, float], peer: Mapping[str, float], goal: float) -> Row:
    ratio = peer["p50_us"] / ours["p50_us"]
    return (what, *_both(peer), f"{ratio:,.1f} x", _goal(f">={goal:g} x", ratio >= goal))


def _both(spread: Mapping[str, float]) -> tuple[str, str]:
    return _time(spread["p50_us"]), _time(spread["p99_us"])


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s"


def _time(micros: float) -> str:
    if micros < 1000:
        return f"{micros:.1f} us"
    return f"{micros / 1e3:.2f} ms" if micros < 100_000 else f"{micros / 1e3:.0f} ms"


def _goal(said: str, met: bool) -> str:
    return f"{said}: [green]met[/green]" if met else f"{said}: [red]not met[/red]"
