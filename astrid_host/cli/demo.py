"""`make demo`: real tool calls through the router, with every hop and its time, and a conversation.

The conversation is that of `astrid-host chat`, with a scripted server in the place of a model. That server is part of the tests,
so the demo runs in a checkout only.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
import trio.testing
from rich.console import Console

from astrid_host import Host, HostEvent, HostSubscription, open_host
from astrid_host.cli import logs
from astrid_host.cli.conversation import Conversation, Decided
from astrid_host.cli.run import show
from astrid_host.cli.screens import TextScreen
from astrid_host.cli.served import Booted
from astrid_host.control.policies import CallPolicies
from astrid_host.tools.topics import TOOL_TOPICS

if TYPE_CHECKING:
    from astrid_host.hostcalls.approval import Asked
    from astrid_host.payloads.kinds import ApprovalRequired

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


class Approving:
    """Approves whatever is asked for."""

    def decide(self, asked: Asked) -> bool:
        return True


async def demo() -> None:
    """Call tools, then converse."""
    console = Console(highlight=False)
    await call_tools(console)
    await converse(console)


async def call_tools(console: Console) -> None:
    """Boot the bundled capsules on this project's own folder and call their tools."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        async with open_host(workspace=PROJECT, state_dir=state, approvals=Approving()) as host:
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

    async with host.subscribe(f"{TOOL_TOPICS}*", observe=True) as events, trio.open_nursery() as nursery:
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


async def converse(console: Console) -> None:
    """A turn in which the model lists a folder, writes a file once that is approved, and answers."""
    server = _scripted()
    script = server.by_results(
        server.calls(("list_directory", {"dir_path": "."}), before=["Let me see what is there. "]),
        server.calls(("write_file", {"file_path": "haiku.txt", "content": "tools in a small box\n"})),
        server.says("There was one file; ", "now there are two, ", "and haiku.txt has a line."),
    )
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place, "work")
        workspace.mkdir()
        (workspace / "notes.txt").write_text("remember the milk\n")
        async with (
            server.openai_server(script) as provider,
            open_host(
                workspace=workspace,
                state_dir=Path(place, "state"),
                config={"openai-compat": {"base_url": provider.url, "model": "scripted"}},
                allow_local=[provider.address],
            ) as host,
        ):
            prompt = "Write a haiku into a new file."
            console.print(f"\n[bold]a conversation[/bold]\n> {prompt}")
            sys.stdout.flush()
            screen = TextScreen(everything=sys.stdout)
            served = Booted(host, CallPolicies(), host.principal)
            await Conversation(served, screen, _approve, "demo", None, 60.0).turn(prompt)
        written = ", ".join(f"{file.name}: {file.read_text().strip()}" for file in sorted(workspace.iterdir()))
        console.print(f"  {written}", style="dim", markup=False)


async def _approve(request: ApprovalRequired) -> Decided:
    return Decided("approve")


def _scripted() -> Any:
    sys.path.insert(0, str(PROJECT / "tests" / "agent"))
    import openai_server

    return openai_server


def main() -> None:
    logs.set_up("pretty", logging.ERROR)
    trio.run(demo)


if __name__ == "__main__":
    main()
