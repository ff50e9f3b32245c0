"""The prompt builder: what a model is told, put together from hooks, tools and the conversation."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule, next_of, spin

from astrid_host import BUNDLED, Host, open_host

BUILDER, FS = Path(BUNDLED) / "prompt-builder", Path(BUNDLED) / "fs"
ASSEMBLE, RESPONSE = "prompt_builder.v1.assemble", "prompt_builder.v1.response.assemble"
BEFORE, AFTER = "prompt_builder.v1.hook.before_build", "prompt_builder.v1.hook.after_build"
DESCRIBE, DESCRIBED = "tool.v1.request.describe", "tool.v1.response.describe.self"
LOADED = "astrid.v1.capsules_loaded"
GET, GOT = "session.v1.request.get_messages", "session.v1.response.get_messages"
MINUTE = "60000"  # what a test would not live to see the end of: where it passes, no window was waited for
WINDOWS = ("hook_first_response_ms", "hook_idle_grace_ms", "hook_timeout_ms", "describe_timeout_ms")
PATIENT = dict.fromkeys(WINDOWS, MINUTE)


@asynccontextmanager
async def building(*capsules: Path, config: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Host]:
    options = {"state_dir": ":memory:", "config": {"prompt-builder": PATIENT if config is None else config}, **options}
    async with open_host([BUILDER, *capsules], trust=True, **options) as host:
        yield host


async def built(host: Host, principal: str = "alice", **request: Any) -> dict[str, Any]:
    """What is answered to a request."""
    request = {"request_id": "r1", "messages": [], **request}
    async with host.subscribe(RESPONSE, principal=principal) as responses:
        host.publish(ASSEMBLE, request, principal=principal)
        response: dict[str, Any] = (await next_of(responses, 30)).payload
    return response


async def describes(host: Host, *requests: dict[str, Any], principal: str = "alice") -> int:
    """How often capsules are asked for their tools while prompts are built."""
    async with host.subscribe(DESCRIBE, principal=principal, observe=True) as asked:
        for request in requests:
            await built(host, principal, **request)
        host.publish(DESCRIBE, {"last": True}, principal=principal)
        times = 0
        while (await next_of(asked)).payload != {"last": True}:
            times += 1
    return times


def hook(place: Path, name: str, says: dict[str, Any] | None, *, injects: bool = False, body: str = "") -> Path:
    """A capsule that adds something to the prompt of the request r1."""
    guest = Guest()
    topic = "prompt_builder.v1.hook_response.r1"
    guest.handles((guest.say(topic, json.dumps(says)) if says is not None else "") + body)
    tables = {"capabilities": {"allow_prompt_injection": True}} if injects else {}
    return capsule(place, name, guest, {BEFORE: "on_before"}, ["prompt_builder.v1.hook_response.*"], **tables)


def describing(place: Path, name: str, *tools: str, answers: bool = True, **manifest: Any) -> Path:
    """A capsule that describes tools: `mine` if it is named so, it provides itself."""
    guest = Guest()
    told = json.dumps(
        {"tools": [{"name": tool, "description": name, "input_schema": {"type": "object"}} for tool in tools]}
    )
    guest.handles(guest.when("d", guest.say(DESCRIBED, told) if answers else spin()))
    rows = {DESCRIBE: "describe", **{f"tool.v1.execute.{tool}": "execute" for tool in manifest.pop("provides", ())}}
    return capsule(place, name, guest, rows, [DESCRIBED, "tool.v1.execute.*.result"], **manifest)


async def test_a_prompt_has_what_was_asked_for_and_the_tools_of_all_capsules() -> None:
    message = {"role": "user", "content": "hi"}
    async with building(FS) as host:
        response = await built(
            host, system_prompt="Be kind.", session_id="s", messages=[message], model="m", provider="p"
        )
        described = await host.tools.describe(principal="alice")
    tools = response.pop("tools")
    assert response == {
        "system_prompt": "Be kind.",
        "user_context_prefix": "",
        "request_id": "r1",
        "session_id": "s",
        "messages": [message],
    }
    assert [tool["name"] for tool in tools] == [tool.name for tool in described]
    assert {tool["name"] for tool in tools if tool["input_schema"].get("mutable")} == {
        tool.name for tool in described if tool.mutable
    }


async def test_without_hooks_and_tools_nothing_is_waited_for() -> None:
    async with building() as host:
        response = await built(host)
    assert response == {
        "system_prompt": "",
        "user_context_prefix": "",
        "request_id": "r1",
        "tools": [],
        "messages": [],
    }


async def test_hooks_add_to_the_prompt_and_to_the_system_prompt_only_if_they_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    says = {"prependSystemContext": "before", "appendSystemContext": "after", "prependContext": "for you"}
    may = hook(tmp_path, "may", says, injects=True)
    may_not = hook(tmp_path, "may-not", {"systemPrompt": "mine", "prependContext": "and you"})
    silent = hook(tmp_path, "silent", None)
    async with building(may, may_not, silent) as host, host.subscribe(AFTER) as told:
        response = await built(host, system_prompt="base")
        after = (await next_of(told)).payload
    assert response["system_prompt"] == "before\nbase\nafter"
    assert sorted(response["user_context_prefix"].split("\n")) == ["and you", "for you"]
    assert after == {key: response[key] for key in ("system_prompt", "user_context_prefix", "request_id")}
    assert any("no allow_prompt_injection" in line for line in caplog.messages)


async def test_hooks_are_told_what_they_need_to_know(tmp_path: Path) -> None:
    async with building() as host, host.subscribe(BEFORE) as asked:
        await built(host, system_prompt="base", session_id="s", model="m", provider="p", messages=[1])
        payload = (await next_of(asked)).payload
    assert payload == {
        "messages": [1],
        "system_prompt": "base",
        "request_id": "r1",
        "session_id": "s",
        "model": "m",
        "provider": "p",
        "response_topic": "prompt_builder.v1.hook_response.r1",
    }


async def test_a_hook_that_hangs_costs_its_window_and_the_others_are_heard(tmp_path: Path) -> None:
    hangs = hook(tmp_path, "hangs", None, body=spin())
    adds = hook(tmp_path, "adds", {"prependContext": "hi"})
    windows = {"hook_first_response_ms": "2000", "hook_idle_grace_ms": "30", "hook_timeout_ms": "5000"}
    async with building(hangs, adds, config=windows) as host:
        assert (await built(host))["user_context_prefix"] == "hi"


async def test_tools_are_asked_for_once_until_the_set_of_capsules_changes() -> None:
    async with building(FS) as host:
        assert await describes(host, {}, {}, {}) == 1
        assert await describes(host, {}) == 0
        assert await describes(host, {}, principal="bob") == 1
        host.publish(LOADED, {"status": "ready", "capsules": []}, principal="alice")
        assert await describes(host, {}, {}) == 1


async def test_tools_of_capsules_that_are_gone_are_not_offered_after_a_restart(tmp_path: Path) -> None:
    offered = []
    for number, tool in enumerate(["one", "one", "two"]):
        capsules = describing(tmp_path / str(number), "gives", tool)
        async with building(capsules, state_dir=tmp_path / "state", workspace=tmp_path / str(number)) as host:
            offered.append(([tool["name"] for tool in (await built(host))["tools"]], await describes(host, {})))
    assert offered == [(["one"], 0), (["one"], 0), (["two"], 0)]


async def test_what_not_all_capsules_answered_is_used_but_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hangs = describing(tmp_path, "hangs", "x", answers=False, provides=["x"], limits={"timeout_secs": 0.5})
    async with building(FS, hangs, config={"describe_timeout_ms": "60"}) as host:
        assert len((await built(host))["tools"]) == 8
        assert await describes(host, {}) == 1
    assert any("hangs did not describe its tools in time" in line for line in caplog.messages)


async def test_a_capsule_that_crashes_when_it_is_asked_costs_nothing(tmp_path: Path) -> None:
    guest = Guest().handles("(unreachable)")
    crashes = capsule(tmp_path, "crashes", guest, {DESCRIBE: "describe"})
    async with building(FS, crashes) as host:
        assert len((await built(host))["tools"]) == 8


async def test_a_tool_counts_from_the_capsule_that_provides_it_and_the_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    liar = describing(tmp_path, "a-liar", "x", "free")
    provider = describing(tmp_path, "provider", "x", "free", provides=["x"])
    async with building(liar, provider) as host, host.subscribe("prompt_builder.v1.event.duplicate_tool") as told:
        tools = (await built(host))["tools"]
        events = [(await next_of(told)).payload for _ in range(2)]
    assert {tool["name"]: tool["description"] for tool in tools} == {"x": "provider", "free": "a-liar"}
    assert events == [
        {"tool": "x", "kept": "provider", "dropped": "a-liar"},
        {"tool": "free", "kept": "a-liar", "dropped": "provider"},
    ]
    assert sum("another capsule has the name" in line for line in caplog.messages) == 1


async def test_a_request_without_messages_gets_those_of_its_session() -> None:
    async with building() as host, host.subscribe(GET) as asked, trio.open_nursery() as nursery:

        async def session() -> None:
            request = (await next_of(asked)).payload
            assert request["session_id"] == "s"
            reply = {"correlation_id": request["correlation_id"], "messages": [{"role": "user", "content": "hi"}]}
            host.publish(f"{GOT}.{request['correlation_id']}", reply, principal="alice")

        nursery.start_soon(session)
        response = await built(host, session_id="s", messages=None)
    assert response["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_session_that_does_not_answer_is_an_error_within_its_time() -> None:
    async with building(config={"session_timeout_ms": "50"}) as host:
        response = await built(host, session_id="s", messages=None)
    assert "no reply" in response.pop("error")
    assert response == {"request_id": "r1", "session_id": "s"}


@pytest.mark.parametrize("wrong", [{"request_id": ""}, {"model": 1}, {"request_id": "*"}])
async def test_a_request_that_cannot_be_built_is_answered_with_its_ids(wrong: dict[str, Any]) -> None:
    async with building() as host:
        response = await built(host, **{"session_id": "s", **wrong})
    assert response.pop("error")
    assert response == {"request_id": wrong.get("request_id", "r1"), "session_id": "s"}


async def test_a_prompt_that_is_too_large_to_be_published_is_an_error() -> None:
    large = [{"role": "user", "content": "x" * ((1 << 20) - 1000)}]
    async with building(FS) as host:
        response = await built(host, session_id="s", messages=large)
    assert response.pop("error")
    assert response == {"request_id": "r1", "session_id": "s"}
