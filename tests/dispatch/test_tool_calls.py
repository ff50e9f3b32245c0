"""Tool calls under load, and which capsule provides a tool when several could."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule, good, good_still_answers, hosted

from astrid_host import BUNDLED, open_host

CALLS = "tool.v1.execute."


def with_tool(place: Path, name: str, tool: str, **more: Any) -> None:
    """A capsule whose guest says who it is for each call of that tool."""
    guest = Guest()
    rows = {f"{CALLS}{tool}": "act"}
    capsule(place, name, guest.handles(guest.say(f"said.{name}")), rows, ["said.*", f"{CALLS}*.result"], **more)


ROUTER, WORDS = Path(BUNDLED) / "router", Path(BUNDLED) / "word-tools"


async def test_200_calls_at_once_of_one_principal_are_all_answered(tmp_path: Path) -> None:
    """64 enter, the others wait for room; each gets its own answer."""
    wrong: list[object] = []

    async def call(n: int) -> None:
        text = "x " * n + "x"
        answer = await host.tools.execute("word_count", {"text": text}, call_id=f"call {n}", timeout=50)
        if answer.is_error or f'"words":{n + 1},' not in answer.content or answer.call_id != f"call {n}":
            wrong.append(answer)

    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for n in range(200):
                nursery.start_soon(call, n)
    assert wrong == []


async def test_calls_of_many_principals_get_their_own_answers(tmp_path: Path) -> None:
    """They may even use the same call id."""
    wrong: list[object] = []

    async def call(who: int) -> None:
        for n in range(10):
            text = "x" * (100 * who + n)
            answer = await host.tools.execute("word_count", {"text": text}, principal=f"{who}", call_id="same")
            if f'"characters":{len(text)},' not in answer.content:
                wrong.append((who, n, answer))

    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for who in range(20):
                nursery.start_soon(call, who)
    assert wrong == []


async def test_a_call_that_is_cancelled_before_there_was_room_is_not_made(tmp_path: Path) -> None:
    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        with trio.CancelScope() as scope:
            scope.cancel()
            await host.tools.execute("word_count", {"text": "a"})
        assert scope.cancelled_caught
        assert not (await host.tools.execute("word_count", {"text": "a"})).is_error


async def test_a_loop_of_calls_can_be_cancelled_by_time(tmp_path: Path) -> None:
    """Calls that are answered at once notice a cancellation all the same."""
    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        with trio.move_on_after(0.1) as scope:
            while True:
                await host.tools.execute("word_count", {"text": "a"})
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("body", "told"),
    [("(unreachable)", "x crashed"), ("(loop $on (br $on))", "x computed for too long"), ("", "did not answer within")],
    ids=["traps", "computes", "says nothing"],
)
async def test_a_tool_that_fails_is_an_error_result(body: str, told: str, tmp_path: Path) -> None:
    rows = {f"{CALLS}x": "act"}
    capsule(tmp_path, "bad", Guest().handles(body), rows, [f"{CALLS}*.result"], limits={"timeout_secs": 0.05})
    async with open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        for _ in range(2):
            answer = await host.tools.execute("x", {}, timeout=10 if body else 0.2)
            assert answer.is_error
            assert told in answer.content


async def test_a_tool_that_nobody_provides_is_an_error_result_at_once(tmp_path: Path) -> None:
    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        with trio.fail_after(5):
            answer = await host.tools.execute("no_such_tool", {})
        assert (answer.is_error, answer.content) == (True, "No capsule provides a tool named no_such_tool.")


async def test_without_a_router_every_call_is_an_error_result(tmp_path: Path) -> None:
    async with open_host([WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        answer = await host.tools.execute("word_count", {"text": ""})
        assert answer.is_error
        assert "No router" in answer.content


# Who provides a tool.


async def test_of_two_capsules_that_bind_a_tool_the_first_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other's row is inactive, and both are named."""
    with_tool(tmp_path, "aa", "x")
    with_tool(tmp_path, "bb", "x")
    with caplog.at_level(logging.WARNING):
        async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
            host.publish(f"{CALLS}x", 1)
            host.publish(f"{CALLS}x", 2)
            assert [(await anext(said)).topic for _ in range(2)] == ["said.aa", "said.aa"]
            assert (host.capsules["aa"].tools, host.capsules["bb"].tools) == (["x"], [])
            assert host.capsules["bb"].inactive == [f"{CALLS}x"]
            assert host.capsules["bb"].state == "ready"
    assert "aa and bb both bind" in caplog.text


async def test_a_bundled_capsule_steps_aside_for_one_that_binds_its_tool(tmp_path: Path) -> None:
    with_tool(tmp_path, "mine", "word_count")
    async with open_host([WORDS.parent, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        assert host.capsules["word-tools"].state == "shadowed"
        assert "mine" in (host.capsules["word-tools"].error or "")
        assert host.capsules["mine"].tools == ["word_count"]
        assert host.capsules["router"].state == "ready"


async def test_a_bundled_capsule_steps_aside_for_one_that_it_names_or_that_exports_its_interface(
    tmp_path: Path,
) -> None:
    capsule(tmp_path, "aos-router", Guest().handles(""))
    async with open_host([ROUTER.parent, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        assert host.capsules["router"].state == "shadowed"
    capsule(tmp_path / "more", "theirs", Guest().handles(""), exports={"astrid": {"tool": "1.0.0"}})
    async with open_host(
        [ROUTER.parent, tmp_path / "more"], trust=True, state_dir=":memory:", workspace=tmp_path
    ) as host:
        assert host.capsules["router"].state == "shadowed"
        assert "astrid:tool" in (host.capsules["router"].error or "")


async def test_of_two_capsules_with_one_name_the_first_is_used(tmp_path: Path) -> None:
    for place in ("one", "two"):
        guest = Guest()
        capsule(tmp_path / place, "same", guest.handles(guest.say(f"said.{place}")), {"a.ask": "act"}, ["said.*"])
    places = [tmp_path / "two", tmp_path / "one"]
    async with (
        open_host(places, trust=True, state_dir=":memory:", workspace=tmp_path) as host,
        host.subscribe("said.*") as said,
    ):
        host.publish("a.ask", 1)
        assert (await anext(said)).topic == "said.two"
        assert host.capsules["same"].folder == tmp_path / "two" / "same"


async def test_strict_raises_what_a_capsule_failed_with(tmp_path: Path) -> None:
    good(tmp_path)
    capsule(tmp_path, "bad", b"no wasm")
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        await good_still_answers(host)
    with pytest.raises(Exception, match="no WebAssembly"):
        async with hosted(tmp_path, strict=True):
            pass


async def test_what_the_body_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    good(tmp_path)
    error = KeyError("mine")
    with pytest.raises(KeyError) as told:
        async with hosted(tmp_path):
            raise error
    assert told.value is error


async def test_an_answer_that_comes_on_another_thread_before_its_caller_waits_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for an answer and the wait for one, a worker may have brought it."""
    silent = Guest()
    capsule(tmp_path, "silent", silent.handles(""), {"tool.v1.request.execute": "act"}, ["said.*"])
    async with hosted(tmp_path) as host:
        wait = host.tools._wait

        async def answered_meanwhile(pending: Any) -> None:
            result = {"call_id": "c", "content": "hi", "is_error": False}
            payload = {"type": "tool_execute_result", "call_id": "c", "result": result}
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(host.publish, f"{CALLS}result", payload)
            await wait(pending)

        monkeypatch.setattr(host.tools, "_wait", answered_meanwhile)
        with trio.fail_after(10):
            answer = await host.tools.execute("x", {}, call_id="c", timeout=5)
    assert (answer.content, answer.is_error) == ("hi", False)


async def test_the_refusal_of_something_else_does_not_answer_the_call(tmp_path: Path) -> None:
    """A listener on results tries a topic that it may not publish on, before the router has passed the result on."""
    listener = Guest()
    rows = {f"{CALLS}*.result": "act"}
    capsule(tmp_path, "a-listener", listener.handles(listener.say(f"{CALLS}zzz")), rows, ["log.x"])
    async with open_host([ROUTER, WORDS, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        answer = await host.tools.execute("word_count", {"text": "a b"}, timeout=10)
    assert (answer.content, answer.is_error) == ('{"words":2,"characters":3,"lines":1}', False)


async def test_a_listener_whose_publish_is_refused_does_not_answer_for_the_tool(tmp_path: Path) -> None:
    """It handles the very same event and tries the very topic of the result; the tool answers all the same, once."""
    listener = Guest()
    rows = {f"{CALLS}*": "act"}
    capsule(tmp_path, "a-listener", listener.handles(listener.say(f"{CALLS}word_count.result")), rows, ["log.x"])
    results = []
    async with open_host([BUNDLED, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        async with host.subscribe(f"{CALLS}result", observe=True) as events:
            answer = await host.tools.execute("word_count", {"text": "a b"}, timeout=10)
            with trio.move_on_after(0.5):
                async for event in events:
                    results.append(event.payload["result"]["is_error"])
    assert (answer.content, answer.is_error) == ('{"words":2,"characters":3,"lines":1}', False)
    assert results == [False]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": nested(200)},
        {"text": "\ud800"},
        {"text": float("nan")},
        {"text": object()},
        {"text": {1, 2}, 3: object},
    ],
    ids=["nested too deep", "a lone surrogate", "no number", "no JSON value", "a key that is no text"],
)
async def test_arguments_that_cannot_be_passed_on_are_an_error_result(arguments: Any, tmp_path: Path) -> None:
    async with open_host([ROUTER, WORDS], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        answer = await host.tools.execute("word_count", arguments, call_id="c")
        assert (answer.is_error, answer.call_id) == (True, "c")
        assert answer.content.startswith("The arguments for word_count cannot be passed on: ")
        assert not (await host.tools.execute("word_count", {"text": "a"}, call_id="c")).is_error


async def test_a_tool_that_is_not_described_as_one_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "astrid_host")
    guest = Guest()
    answer = '{"tools":[{"name":"one"},{"name":5},"two",{"name":"three","input_schema":{"mutable":true}}]}'
    guest.handles(guest.say("tool.v1.response.describe.self", answer))
    capsule(tmp_path, "odd", guest, {"tool.v1.request.describe": "act"}, ["tool.v1.response.describe.*"])
    async with hosted(tmp_path) as host:
        assert [(tool.name, tool.mutable) for tool in await host.tools.describe()] == [("one", False), ("three", True)]
    assert sum("describes a tool that cannot be used" in record.message for record in caplog.records) == 2


async def test_a_tool_in_quarantine_answers_at_once_and_says_so(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles("(unreachable)")
    capsule(tmp_path, "bad", guest, {f"{CALLS}bad": "act"}, [f"{CALLS}*.result"])
    async with open_host([ROUTER, tmp_path], trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        answers = [await host.tools.execute("bad", {}, timeout=30) for _ in range(7)]
        assert all(answer.is_error for answer in answers)
        assert ["crashed" in answer.content for answer in answers] == [True] * 5 + [False] * 2
        assert all("not called for a while" in answer.content for answer in answers[5:])
