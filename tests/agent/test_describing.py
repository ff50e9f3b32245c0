"""Describing many tools: what it costs with fifty capsules, and with one that never comes to an end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import RECV, RETURNED, SUBSCRIBE, Guest, capsule, next_of, spin

from astrid_host import BUNDLED, Host, open_host

DESCRIBE, DESCRIBED = "tool.v1.request.describe", "tool.v1.response.describe.self"
LOADED, SETTLED = "astrid.v1.capsules_loaded", "astrid.v1.dispatch.settled."
ASSEMBLE, ASSEMBLED = "prompt_builder.v1.assemble", "prompt_builder.v1.response.assemble"
BUILDER = Path(BUNDLED) / "prompt-builder"
MANY, WINDOW_S = 50, 0.5
TRIES = 30

Before = Callable[[Guest], str]
Describe = Callable[[Host], Awaitable[list[str]]]


def waits(guest: Guest) -> str:
    """Wait for what never comes."""
    return f"""
    (call $subscribe {guest.text("never.said")} (i32.const {RETURNED}))
    (call $recv (i32.load (i32.const {RETURNED + 4})) (i64.const 60000) (i32.const {RETURNED + 96}))"""


def computes(_guest: Guest) -> str:
    return spin()


def crashes(_guest: Guest) -> str:
    return "(unreachable)"


def tool(place: Path, name: str, before: Before = lambda _: "") -> Path:
    """A capsule with one tool, which it describes with a schema of some size, after it has done something else."""
    schema = {"type": "object", "properties": {f"argument_{n}": {"type": "string"} for n in range(8)}}
    described = {"name": name, "description": f"Does what {name} does.", "input_schema": schema}
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(guest.when("d", before(guest) + guest.say(DESCRIBED, json.dumps({"tools": [described]}))))
    rows: dict[str, Any] = {f"tool.v1.execute.{name}": "execute", DESCRIBE: "describe", "never.said": {}}
    return capsule(place, name, guest, rows, [DESCRIBED, "tool.v1.execute.*.result"])


def tools(place: Path, many: int) -> list[str]:
    """So many capsules; the names of their tools in load order."""
    names = [f"tool-{n:02}" for n in range(many)]
    for name in names:
        tool(place, name)
    return names


async def by_the_host(host: Host) -> list[str]:
    return [found.name for found in await host.tools.describe()]


async def by_the_prompt_builder(host: Host) -> list[str]:
    """What a model would be told of, asked for anew."""
    async with host.subscribe(SETTLED + LOADED) as dropped:
        host.publish(LOADED, {"status": "ready", "capsules": []}, settle=True)
        await next_of(dropped)
    async with host.subscribe(ASSEMBLED) as answers:
        host.publish(ASSEMBLE, {"request_id": "r", "session_id": "s", "messages": [{"role": "user", "content": "hi"}]})
        return [found["name"] for found in (await next_of(answers)).payload["tools"]]


async def quickest(describe: Describe, host: Host, names: list[str]) -> float:
    """Seconds, of the best of some tries: others use this machine, too."""
    best = float("inf")
    for _ in range(TRIES):
        begun = trio.current_time()
        assert await describe(host) == names
        best = min(best, trio.current_time() - begun)
    return best


@pytest.mark.parametrize(("describe", "times"), [(by_the_prompt_builder, MANY // 2), (by_the_host, MANY)])
async def test_fifty_capsules_take_no_fifty_times_as_long_as_one(
    describe: Describe, times: int, tmp_path: Path
) -> None:
    """What a turn waits for takes less than half of that. The host's own function has hardly anything to do but the capsules'."""
    seconds = []
    for many in (1, MANY):
        place = tmp_path / f"{many}"
        names = tools(place, many)
        async with open_host([BUILDER, place], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
            seconds.append(await quickest(describe, host, names))
    one, fifty = seconds
    assert fifty < times * one, f"one: {one * 1000:.2f} ms, {MANY}: {fifty * 1000:.2f} ms"


@pytest.mark.parametrize(
    ("how", "describe"), [(computes, by_the_host), (computes, by_the_prompt_builder), (waits, by_the_prompt_builder)]
)
async def test_one_that_hangs_costs_the_window_and_the_others_are_all_there(
    how: Before, describe: Describe, tmp_path: Path
) -> None:
    place = tmp_path / "capsules"
    names = tools(place, 10)
    tool(place, "hangs", how)
    async with open_host([BUILDER, place], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        begun = trio.current_time()
        assert await describe(host) == names
        assert WINDOW_S * 0.9 < trio.current_time() - begun < WINDOW_S * 2


@pytest.mark.parametrize("describe", [by_the_host, by_the_prompt_builder])
async def test_one_that_crashes_costs_nothing(describe: Describe, tmp_path: Path) -> None:
    place = tmp_path / "capsules"
    names = tools(place, 10)
    tool(place, "crashes", crashes)
    async with open_host([BUILDER, place], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        begun = trio.current_time()
        assert await describe(host) == names
        assert trio.current_time() - begun < WINDOW_S / 2
