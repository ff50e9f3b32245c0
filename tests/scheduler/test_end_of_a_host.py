"""The end of a host: nothing keeps it from stopping, and whoever waits for it is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from guests_in_wat import FAILED, READY, RECV, SUBSCRIBE, Guest, capsule, compute, good, hosted, next_of

from astrid_host import Host, HostSubscription, ToolCallResult
from astrid_host.errors import HostClosed


async def test_threads_that_publish_all_the_time_do_not_keep_it_from_stopping(tmp_path: Path) -> None:
    good(tmp_path)
    told: list[type[Exception]] = []

    def flood(host: Host, k: int) -> None:
        try:
            while True:
                host.publish("good.ask", {}, principal=f"p{k}")
        except HostClosed as error:
            told.append(type(error))

    async with hosted(tmp_path) as host, host.subscribe("good.said") as said:
        threads = [threading.Thread(target=flood, args=(host, k)) for k in range(3)]
        for thread in threads:
            thread.start()
        await next_of(said)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    for thread in threads:
        thread.join(5)
    assert told == [HostClosed] * 3


async def test_a_tool_call_that_is_under_way_is_answered(tmp_path: Path) -> None:
    """Its caller is a task outside of the host's body."""
    guest = Guest(SUBSCRIBE, RECV)
    body = f"""(call $subscribe {guest.text("n.n")} (i32.const 1200)) {guest.say("r.began")}
      (call $recv (i32.load (i32.const 1204)) (i64.const 60000) (i32.const 1304))"""
    rows: dict[str, str | dict[str, Any]] = {"tool.v1.request.execute": "act", "n.n": {}}
    capsule(tmp_path, "router", guest.handles(body), rows, ["r.began"])
    answers: list[ToolCallResult] = []

    async def call(host: Host) -> None:
        answers.append(await host.tools.execute("any", {}, timeout=50))

    async with trio.open_nursery() as nursery:
        async with hosted(tmp_path) as host, host.subscribe("r.began") as began:
            nursery.start_soon(call, host)
            await next_of(began)
    assert [answer.is_error for answer in answers] == [True]


async def test_what_it_kept_from_running_is_skipped_not_failed(tmp_path: Path) -> None:
    guest = Guest()
    capsule(tmp_path, "slow", guest.handles(compute(2_000_000_000) + guest.say("s.said")), {"s.ask": "act"}, ["s.said"])
    settled: list[tuple[int, int]] = []

    async def listen(events: HostSubscription) -> None:
        try:
            async for event in events:
                settled.append((event.payload["failed"], event.payload["skipped"]))
        except HostClosed:
            pass

    async with trio.open_nursery() as nursery:
        async with hosted(tmp_path) as host:
            events = host.subscribe("astrid.v1.dispatch.settled.*")
            await events.__aenter__()
            nursery.start_soon(listen, events)
            for n in range(3):
                host.publish("s.ask", n, settle=True)
    assert settled == [(1, 0), (0, 1), (0, 1)]


async def test_a_task_that_waits_in_a_subscription_ends_when_another_leaves_it(tmp_path: Path) -> None:
    good(tmp_path)
    heard: list[object] = []

    async def listen(events: HostSubscription) -> None:
        heard.extend([event.payload async for event in events])
        heard.append("the end")

    async with hosted(tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for observe in (False, True):
                async with host.subscribe("a.b", observe=observe) as events:
                    nursery.start_soon(listen, events)
                    await trio.testing.wait_all_tasks_blocked()
                    host.publish("a.b", observe)
                    await trio.testing.wait_all_tasks_blocked()
    assert heard == [False, "the end", True, "the end"]


async def test_what_was_refused_to_a_run_loop_that_returns_is_reported(tmp_path: Path) -> None:
    guest = Guest(READY, SUBSCRIBE, RECV)
    guest.add(f"""(func (export "run")
      (call $subscribe {guest.text("l.go")} (i32.const 1200))
      (call $ready)
      (call $recv (i32.load (i32.const 1204)) (i64.const 60000) (i32.const 1304))
      {guest.say("not.allowed", "{}")})""")
    capsule(tmp_path, "loop", guest, {"l.go": {}})
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failed:
        host.publish("l.go", {})
        report = (await next_of(failed)).payload
        assert (report["reason"], report["topic"], report["refused"]) == ("publish-denied", "not.allowed", True)


@pytest.mark.parametrize("principal", ["", "\ud800", "x" * 257])
async def test_a_principal_that_is_no_name_is_refused_everywhere(principal: str, tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        with pytest.raises(ValueError, match="principal"):
            host.publish("good.ask", {}, principal=principal)
        with pytest.raises(ValueError, match="principal"):
            host.subscribe("good.said", principal=principal)
        with pytest.raises(ValueError, match="principal"):
            await host.tools.execute("any", {}, principal=principal)
        with pytest.raises(ValueError, match="principal"):
            await host.tools.describe(principal=principal)
        with pytest.raises(TypeError, match="principal"):
            host.publish("good.ask", {}, principal=5)  # type: ignore[arg-type]


async def test_a_payload_of_more_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    good(tmp_path)
    text = "x" * (1 << 20)
    async with hosted(tmp_path) as host:
        with pytest.raises(ValueError, match="1048576 are allowed"):
            host.publish("good.ask", text)
        answer = await host.tools.execute("any", {"text": text})
        assert answer.is_error
        assert "1048576 are allowed" in answer.content
        for wrong in (-1.0, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                await host.tools.execute("any", {}, timeout=wrong)
