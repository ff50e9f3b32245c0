"""`make demo`: real tool calls through the router, with every hop and its time."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from pathlib import Path

import trio
import trio.testing
from rich.console import Console

from astrid_host import Host, HostEvent, HostSubscription, open_host
from astrid_host.cli import logs
from astrid_host.cli.run import show

SHOWN = 400  # characters of a result
PROJECT = Path(__file__).resolve().parents[2]
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("word_count", {"text": "The quick brown fox\njumps over the lazy dog"}),
    ("reverse_text", {"text": "stressed desserts"}),
    ("list_directory", {"dir_path": "."}),
    ("read_file", {"file_path": "README.md", "start_line": 1, "end_line": 3}),
    ("note_save", {"key": "demo", "text": "capsules keep their notes apart"}),
    ("note_read", {"key": "demo"}),
    ("no_such_tool", {}),
)


async def demo() -> None:
    """Boot the bundled capsules on this project's own folder and call their tools."""
    console = Console(highlight=False)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        async with open_host(workspace=PROJECT, state_dir=state) as host:
            console.print(f"[bold]booted in {(time.perf_counter() - begun) * 1e3:.0f} ms[/bold]\n")
            show(host)
            await host.tools.execute("word_count", {"text": "warm up"})
            for name, arguments in CALLS:
                await _call(host, console, name, arguments)


async def _call(host: Host, console: Console, name: str, arguments: dict[str, object]) -> None:
    console.print(f"\n[bold]{name}[/bold] {json.dumps(arguments)}")
    hops: list[HostEvent] = []

    async def watch(events: HostSubscription) -> None:
        async for event in events:
            hops.append(event)

    async with host.subscribe("tool.v1.*", observe=True) as events, trio.open_nursery() as nursery:
        nursery.start_soon(watch, events)
        await trio.testing.wait_all_tasks_blocked()
        begun_at, begun = time.time(), time.perf_counter()
        result = await host.tools.execute(name, arguments)
        took = time.perf_counter() - begun
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    for hop in hops:
        console.print(f"  {(hop.timestamp.timestamp() - begun_at) * 1e6:7.0f} us  {hop.topic}", style="dim")
    content = result.content if len(result.content) <= SHOWN else f"{result.content[:SHOWN]}…"
    console.print(f"  {took * 1e6:7.0f} us  {'[red]error[/red] ' if result.is_error else ''}", end="")
    console.print(content, markup=False)


def main() -> None:
    logs.set_up("pretty", logging.ERROR)
    trio.run(demo)


if __name__ == "__main__":
    main()
