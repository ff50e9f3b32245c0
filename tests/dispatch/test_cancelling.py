"""A cancel request ends what its principal's calls of these ids are doing, and each of them gets exactly one result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from guests_in_wat import RECV, RETURNED, SUBSCRIBE, Guest, capsule, hosted, next_of, spin

from astrid_host import BUNDLED, Host, ToolCallResult, open_host

EXECUTE, RESULT, CANCEL = "tool.v1.execute.", "tool.v1.execute.result", "tool.v1.request.cancel"
ROUTER, DEAD_LETTER, WORDS = (Path(BUNDLED) / name for name in ("router", "dead-letter", "word-tools"))
BODIES = {
    "computes": spin(),
    "waits": f"(call $recv (local.get $j) (i64.const 60000) (i32.const {RETURNED + 96}))",
}


def stuck(place: Path, how: str) -> None:
    """The tool `stuck` says that it began, and never answers."""
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(f"""
      (call $subscribe {guest.text("never.said")} (i32.const {RETURNED}))
      (local.set $j (i32.load (i32.const {RETURNED + 4})))
      {guest.say("stuck.began")}
      {BODIES[how]}""")
    rows: dict[str, Any] = {f"{EXECUTE}stuck": "act", "never.said": {}}
    capsule(place, "stuck", guest, rows, ["stuck.began", f"{EXECUTE}*.result"])


async def call(host: Host, found: list[ToolCallResult], call_id: str, **more: Any) -> None:
    found.append(await host.tools.execute("stuck", {}, call_id=call_id, **more))


@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("answerers", [[], [DEAD_LETTER]], ids=["the host answers", "dead-letter answers"])
async def test_a_call_that_runs_is_stopped_and_answered_at_once(
    how: str, answerers: list[Path], tmp_path: Path
) -> None:
    stuck(tmp_path, how)
    found: list[ToolCallResult] = []
    async with (
        open_host([ROUTER, *answerers, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host,
        host.subscribe("stuck.began") as began,
        host.subscribe(RESULT) as results,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, host, found, "one")
            await next_of(began)
            await host.tools.cancel(["one"])
        assert [(answer.call_id, answer.is_error, "cancelled" in answer.content) for answer in found] == [
            ("one", True, True)
        ]
        assert host.stats().capsules["stuck"].failures == {"cancelled": 1}
        assert (await host.tools.execute("none", {}, call_id="two")).is_error
        if answerers:
            assert [(await next_of(results)).payload["call_id"] for _ in range(2)] == ["one", "two"]


async def test_calls_that_wait_in_queues_or_for_room_are_answered_too(tmp_path: Path) -> None:
    stuck(tmp_path, "waits")
    found: list[ToolCallResult] = []
    async with (
        open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host,
        host.subscribe("stuck.began") as began,
    ):
        async with trio.open_nursery() as nursery:
            for n in range(150):
                nursery.start_soon(call, host, found, f"{n}")
            await next_of(began)
            await trio.testing.wait_all_tasks_blocked()
            await host.tools.cancel([f"{n}" for n in range(150)])
        assert sorted(int(answer.call_id) for answer in found) == list(range(150))
        assert all("cancelled" in answer.content for answer in found)
        assert host.stats().queued == 0


async def test_only_the_named_calls_of_the_same_principal_are_touched(tmp_path: Path) -> None:
    stuck(tmp_path, "waits")
    found: list[ToolCallResult] = []
    async with (
        open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host,
        host.subscribe("stuck.began") as began,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call(host, found, "same", principal="ann"))
            nursery.start_soon(lambda: call(host, found, "same", principal="bob"))
            for _ in range(2):
                await next_of(began)
            await host.tools.cancel(["other"], principal="bob")
            await host.tools.cancel([], principal="bob")
            await host.tools.cancel(["same"], principal="eve")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            host.publish(CANCEL, {"type": "tool_cancel_request", "call_ids": ["same"]}, principal="bob")
            await trio.testing.wait_all_tasks_blocked()
            assert len(found) == 1
            assert host.stats().principals["bob"].failures == {"cancelled": 1}
            await host.tools.cancel(["same"], principal="ann")
    assert len(found) == 2


async def test_a_call_whose_time_is_over_is_stopped(tmp_path: Path) -> None:
    """A later call may have the same id, and never gets the answer of the earlier one."""
    stuck(tmp_path, "waits")
    async with open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        answer = await host.tools.execute("stuck", {}, call_id="same", timeout=0.05)
        assert "did not answer within 0.05 s" in answer.content
        assert host.stats().waiting == 0
        assert host.stats().capsules["stuck"].failures == {"cancelled": 1}


async def test_a_call_whose_caller_is_cancelled_is_stopped(tmp_path: Path) -> None:
    stuck(tmp_path, "waits")
    async with (
        open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host,
        host.subscribe("stuck.began") as began,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, host, [], "one")
            await next_of(began)
            nursery.cancel_scope.cancel()
        assert host.stats().waiting == 0
        assert host.stats().capsules["stuck"].failures == {"cancelled": 1}


async def test_what_is_not_under_way_is_ignored(tmp_path: Path) -> None:
    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        await host.tools.cancel(["never", "was"])
        answer = await host.tools.execute("word_count", {"text": "a b"}, call_id="never")
        assert not answer.is_error


async def test_ids_are_a_list_of_texts(tmp_path: Path) -> None:
    async with hosted(tmp_path) as host:
        for wrong in ("abc", [1], [None]):
            with pytest.raises(TypeError, match="list of texts"):
                await host.tools.cancel(wrong)  # type: ignore[arg-type]
