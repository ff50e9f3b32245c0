"""Real guests with requests: they sleep while they wait, nothing of a request outlives them, and the bundled tool answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import RETURNED, Guest, capsule, hosted, next_of
from http_functions import OK, Asked, answer, serving

from astrid_host import BUNDLED, open_host

HTTP = "astrid:http/host@1.0.0"
ELEVEN = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)"
REQUEST = f'(import "{HTTP}" "http-request" (func $request {ELEVEN}))'
START = f'(import "{HTTP}" "http-stream-start" (func $start {ELEVEN}))'
READ = f'(import "{HTTP}" "[method]http-stream.read-chunk" (func $read (param i32 i32)))'
READABLE = f'(import "{HTTP}" "[method]http-stream.subscribe-readable" (func $readable (param i32) (result i32)))'
BLOCK = '(import "astrid:io/poll@1.0.0" "[method]pollable.block" (func $block (param i32 i32)))'
DROP = f'(import "{HTTP}" "[resource-drop]http-stream" (func $drop_stream (param i32)))'
RESULT = f"(i32.load (i32.const {RETURNED + 4}))"
LENGTH = f"(i32.load (i32.const {RETURNED + 8}))"


def ask(guest: Guest, function: str, url: str) -> str:
    """A GET without headers and body; traps unless it goes well."""
    return f"""(call {function} {guest.text(url)} {"(i32.const 0) " * 8} (i32.const {RETURNED}))
      (if (i32.load8_u (i32.const {RETURNED})) (then unreachable))"""


def web(place: Path, guest: Guest, **options: Any) -> None:
    said = ["web.chunk", "web.end", "web.begun"]
    capsule(place, "web", guest, {"web.ask": "ask"}, said, capabilities={"net": ["127.0.0.1"]}, **options)


def streaming(place: Path, url: str, then: str = "") -> None:
    """Starts a stream, says `web.begun`, says each chunk on `web.chunk` once it is readable, and at the end `web.end`."""
    guest = Guest(START, READ, READABLE, BLOCK, DROP)
    guest.handles(f"""
      {ask(guest, "$start", url)}
      (local.set $i {RESULT})
      {guest.say("web.begun", "1")}
      {then}
      (local.set $j (call $readable (local.get $i)))
      (block $end (loop $on
        (call $block (local.get $j) (i32.const {RETURNED}))
        (call $read (local.get $i) (i32.const {RETURNED}))
        (if (i32.load8_u (i32.const {RETURNED})) (then unreachable))
        (br_if $end (i32.eqz {LENGTH}))
        (call $publish {guest.text("web.chunk")} {RESULT} {LENGTH})
        (br $on)))
      (call $drop_stream (local.get $i))
      {guest.say("web.end", "1")}""")
    web(place, guest)


async def test_a_guest_reads_chunks_as_they_come(tmp_path: Path) -> None:
    more = trio.Event()

    async def handler(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"\r\n" + b'"one"')
        await more.wait()
        await stream.send_all(b'"two"')

    async with serving(handler) as server:
        streaming(tmp_path, server.url())
        async with hosted(tmp_path, allow_local=[f"127.0.0.1:{server.port}"]) as host:
            async with host.subscribe("web.*") as events:
                host.publish("web.ask", {})
                told = [await next_of(events) for _ in range(3)]
                more.set()
                told += [await next_of(events) for _ in range(2)]
    assert [(event.topic, event.payload) for event in told] == [
        ("web.ask", {}),
        ("web.begun", 1),
        ("web.chunk", "one"),
        ("web.chunk", "two"),
        ("web.end", 1),
    ]


@pytest.mark.parametrize("function", ["$request", "$start"])
async def test_the_end_of_a_waiting_guest_closes_its_connection(tmp_path: Path, function: str) -> None:
    async def silent(stream: Any, _asked: Asked) -> None:
        asked.set()
        await server.hung_up(stream)

    asked = trio.Event()
    async with serving(silent) as server:
        guest = Guest(REQUEST, START)
        web(tmp_path, guest.handles(ask(guest, function, server.url())))
        async with hosted(tmp_path, allow_local=[f"127.0.0.1:{server.port}"]) as host:
            host.publish("web.ask", {})
            await asked.wait()
        await server.gone.wait()


@pytest.mark.parametrize("then", ["unreachable", "(return (i32.const 1024))"], ids=["trapped", "kept its handle"])
async def test_no_stream_outlives_its_guest(tmp_path: Path, then: str) -> None:
    async def endless(stream: Any, _asked: Asked) -> None:
        await stream.send_all(OK + b"\r\n")
        await server.hung_up(stream)

    async with serving(endless) as server:
        streaming(tmp_path, server.url(), then)
        async with hosted(tmp_path, allow_local=[f"127.0.0.1:{server.port}"]) as host:
            async with host.subscribe("web.begun") as begun:
                host.publish("web.ask", {})
                if then != "unreachable":
                    await next_of(begun)
                    assert not server.gone.is_set()
                else:
                    await server.gone.wait()
        await server.gone.wait()


TOOL = [Path(BUNDLED) / name for name in ("router", "http")]


async def fetch(server: Any, allowed: bool = True, **arguments: Any) -> tuple[bool, Any]:
    allow = [f"127.0.0.1:{server.port}"] if allowed else []
    async with open_host(TOOL, state_dir=":memory:", allow_local=allow) as host:
        answered = await host.tools.execute("fetch_url", {"url": server.url("/a"), **arguments})
    return answered.is_error, answered.content if answered.is_error else json.loads(answered.content)


async def test_the_tool_says_what_it_takes() -> None:
    async with open_host(TOOL, state_dir=":memory:") as host:
        (tool,) = await host.tools.describe()
    assert (tool.name, sorted(tool.input_schema["properties"])) == (
        "fetch_url",
        ["body", "format", "headers", "method", "url"],
    )
    assert tool.input_schema["required"] == ["url"]


async def test_the_tool_fetches_a_url() -> None:
    async with serving(answer("grüße".encode(), "X-One: 1")) as server:
        is_error, fetched = await fetch(server)
    assert not is_error
    assert fetched == {
        "status": 200,
        "headers": {"content-length": "7", "x-one": "1"},
        "body": "grüße",
        "truncated": False,
    }
    assert server.asked[0].target == "/a"


async def test_the_tool_sends_what_it_is_told() -> None:
    async with serving(answer(b"made", status="201 Created")) as server:
        _, fetched = await fetch(server, method="put", headers={"X-A": "b"}, body="sent")
    assert (fetched["status"], fetched["body"]) == (201, "made")
    assert (server.asked[0].method, server.asked[0].headers["x-a"], server.asked[0].body) == ("PUT", "b", b"sent")


@pytest.mark.parametrize(
    ("body", "most"), [(b"x" * 300_000, 200 << 10), (b'"' * 300_000, 200 << 10), (b"\x01" * 300_000, 147_000)]
)
async def test_the_tool_cuts_a_long_body_to_what_a_result_has_room_for(body: bytes, most: int) -> None:
    async with serving(answer(body)) as server:
        is_error, fetched = await fetch(server)
    assert not is_error
    assert fetched["truncated"]
    assert most - 1000 <= len(fetched["body"]) <= 200 << 10


async def test_the_tool_tells_what_went_wrong() -> None:
    async with serving(answer()) as server:
        is_error, told = await fetch(server, allowed=False)
        assert is_error
        assert "only public ones may be fetched" in told
        is_error, told = await fetch(server, url="file:///etc/passwd")
        assert is_error
        assert "give a http or https URL" in told
    assert server.asked == []
