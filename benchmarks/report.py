"""What a run found: the table with the goals beside it, and `results.json`."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results.json"

COMPONENT_RATIOS = {"64": 10.0, "1024": 60.0, "16384": 750.0}
EXTISM_RATIO = 1.5
MCP_RATIO = 10.0
START_MS = 50.0

Row = tuple[str, str, str, str, str]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {"python": platform.python_version(), "wasmtime": version("wasmtime"), "cpus": os.cpu_count()}


def write(results: Mapping[str, Any]) -> None:
    """Keep the results of one run, whichever parts it had."""
    RESULTS.write_text(json.dumps({**results, "machine": machine()}, indent=2) + "\n", encoding="utf-8")


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the table: a line for each figure, ours beside its peers' with ratio and goal."""
    about = machine()
    table = Table(
        title=f"Python {about['python']}, wasmtime {about['wasmtime']}, {about['cpus']} CPUs: medians over rounds"
    )
    for heading in ("what", "p50", "p99", "ours against it", "goal"):
        table.add_column(heading, justify="left" if heading in ("what", "goal") else "right", no_wrap=True)
    for part, rows in (("call", _calls), ("roundtrip", _roundtrips), ("start", _starts)):
        if part in results:
            for row in rows(results[part]):
                table.add_row(*row)
            table.add_section()
    console.print(table)


def _calls(call: Mapping[str, Any]) -> Iterator[Row]:
    for size, component_ratio in COMPONENT_RATIOS.items():
        ours = call["ours"][size]
        yield (f"call, {size} B: ours", *_micros(ours), "", "")
        yield _peer(f"call, {size} B: wasmtime.component", ours, call["component"][size], component_ratio)
        yield _peer(f"call, {size} B: Extism", ours, call["extism"][size], EXTISM_RATIO)


def _roundtrips(roundtrip: Mapping[str, Any]) -> Iterator[Row]:
    ours = roundtrip["ours"]
    yield ("tool round trip: ours", *_micros(ours), "", "")
    yield _peer("tool round trip: MCP over stdio", ours, roundtrip["mcp"], MCP_RATIO)


def _starts(start: Mapping[str, Any]) -> Iterator[Row]:
    imports = start["imports"]["p50_ms"]
    yield ("start: third-party imports alone", f"{imports:.0f} ms", "", "", "")
    for name, goal in (("warm", START_MS), ("cold", None)):
        taken = start[name]["p50_ms"]
        added = taken - imports
        said = "" if goal is None else f"at most {goal:.0f} ms more: {_met(added <= goal)}"
        yield (f"start: {name} cache", f"{taken:.0f} ms", "", f"{added:+.0f} ms", said)


def _peer(what: str, ours: Mapping[str, float], peer: Mapping[str, float], goal: float) -> Row:
    ratio = peer["p50_us"] / ours["p50_us"]
    return (what, *_micros(peer), f"{ratio:,.1f} times faster", f"at least {goal:g} times: {_met(ratio >= goal)}")


def _micros(spread: Mapping[str, float]) -> tuple[str, str]:
    return f"{spread['p50_us']:,.1f} us", f"{spread['p99_us']:,.1f} us"


def _met(yes: bool) -> str:
    return "[green]met[/green]" if yes else "[red]not met[/red]"
