"""A whole tool call: ours through the router and a tool guest, beside an echo tool of MCP's Python SDK over stdio.

Ours is two guests and four events in one process. MCP's client is in this process too, on the same trio loop; its server is
a process of its own, as its clients start them. Both are used as the SDK's documentation shows: its low-level server with
the older handshake takes about a quarter less, a client on asyncio about as long.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

import astrid_host
from benchmarks.measure import Spread, over_rounds, sample_async, spread

TEXT = "a b\nc"
COUNTED = '{"words":3,"characters":5,"lines":2}'
# What a tool call needs, and what MCP's server is: tools alone.
TOOLS = [astrid_host.BUNDLED / name for name in ("router", "dead-letter", "word-tools")]
ROUNDS = 11
TURN_S = 0.4
LEAST_CALLS = 50
LIMIT_S = 60.0


def run() -> dict[str, Spread]:
    """Measure both.

    Returns:
        `p50_us` and `p99_us` of `ours`, `mcp`, and `ours_with_agent`: beside all capsules that come with the host, of which the
        gatekeeper looks at each call and the agent's loop at each result.

    Raises:
        RuntimeError: one of them gave a wrong answer.
        trio.TooSlowError: it took more than a minute.
        ImportError: MCP's SDK is not installed.
    """
    return trio.run(_measure)


async def _measure() -> dict[str, Spread]:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "benchmarks.echo_server"], cwd=Path(__file__).resolve().parent.parent
    )
    with trio.fail_after(LIMIT_S):
        async with (
            astrid_host.open_host(TOOLS, state_dir=":memory:") as host,
            astrid_host.open_host(state_dir=":memory:") as whole,
            Client(stdio_client(server)) as mcp,
        ):

            async def ours() -> None:
                await count(host)

            async def ours_with_agent() -> None:
                await count(whole)

            async def echo() -> None:
                result = await mcp.call_tool("echo", {"text": TEXT})
                if result.content[0].text != TEXT:
                    raise RuntimeError(f"echo answered {result.content[0].text!r}, expected {TEXT!r}")

            return await _take_turns({"ours": ours, "ours_with_agent": ours_with_agent, "mcp": echo})


async def count(host: astrid_host.Host) -> None:
    """One call.

    Raises:
        RuntimeError: it gave a wrong answer.
    """
    result = await host.tools.execute("word_count", {"text": TEXT})
    if result.is_error or result.content != COUNTED:
        raise RuntimeError(f"word_count answered {result.content!r}, expected {COUNTED!r}")


async def _take_turns(peers: dict[str, Callable[[], Awaitable[None]]]) -> dict[str, Spread]:
    rounds: dict[str, list[Spread]] = {name: [] for name in peers}
    for call in peers.values():
        await sample_async(call, 0.0, LEAST_CALLS)
    for _ in range(ROUNDS):
        for name, call in peers.items():
            rounds[name].append(spread(await sample_async(call, TURN_S, LEAST_CALLS)))
    return {name: over_rounds(each) for name, each in rounds.items()}
