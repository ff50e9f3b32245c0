"""Tools that list return a part of a long list, say that there is more, and go on where they are told to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from astrid_host import BUNDLED, Host, open_host

ROUTER, NOTES, SESSION = (Path(BUNDLED) / name for name in ("router", "kv-notes", "session"))


@asynccontextmanager
async def host_with_notes(keys: list[str]) -> AsyncIterator[Host]:
    async with open_host([ROUTER, NOTES], trust=True, state_dir=":memory:") as host:
        for key in keys:
            assert not (await host.tools.execute("note_save", {"key": key, "text": "x"})).is_error
        yield host


async def told(host: Host, tool: str, **arguments: Any) -> Any:
    answer = await host.tools.execute(tool, arguments)
    assert not answer.is_error, answer.content
    return json.loads(answer.content)


async def test_notes_that_fit_are_a_list_as_ever() -> None:
    async with host_with_notes(["b", "a", "ä"]) as host:
        assert await told(host, "note_list") == ["a", "b", "ä"]
        assert await told(host, "note_list", limit=3) == ["a", "b", "ä"]
        assert await told(host, "note_list", limit=None, after=None) == ["a", "b", "ä"]
        assert await told(host, "note_list", after="b") == ["ä"]
        assert await told(host, "note_list", after="ä") == []


@pytest.mark.parametrize("limit", [1, 4, 7.0, "9"])
async def test_notes_page_by_page_are_all_notes_once(limit: Any) -> None:
    keys = sorted(f"key {number:02}" for number in range(20))
    async with host_with_notes(keys) as host:
        found: list[str] = []
        page: Any = {"more": True, "keys": []}
        while isinstance(page, dict):
            assert page["more"] is True
            page = await told(host, "note_list", limit=limit, **({"after": found[-1]} if found else {}))
            keys_of_page = page["keys"] if isinstance(page, dict) else page
            assert 0 < len(keys_of_page) <= int(limit)
            found += keys_of_page
        assert found == keys


async def test_a_thousand_notes_are_listed_when_nobody_says_how_many() -> None:
    keys = [f"{number:05}" for number in range(1001)]
    async with host_with_notes(keys) as host:
        assert await told(host, "note_list") == {"keys": keys[:1000], "more": True}
        assert await told(host, "note_list", limit=5000) == keys
        assert await told(host, "note_list", limit=0) == {"keys": keys[:1], "more": True}
        assert await told(host, "note_list", limit=1 << 60, after=keys[999]) == keys[1000:]


async def test_a_list_of_long_keys_is_cut_by_its_bytes() -> None:
    keys = [f"{number:04}" + "\x01" * 196 for number in range(400)]  # each is 1,180 bytes of JSON
    async with host_with_notes(keys) as host:
        page = await told(host, "note_list")
        assert page["more"] is True
        assert 200 < len(page["keys"]) < 256
        assert len(json.dumps(page)) < 300 << 10


async def test_lists_of_conversations_go_on_where_they_ended() -> None:
    async with open_host([ROUTER, SESSION], trust=True, state_dir=":memory:") as host:
        for number in range(7):
            message = {"role": "user", "content": f"a needle {number}"}
            host.publish("session.v1.append", {"session_id": f"s{number}", "messages": [message]})
        lists: tuple[tuple[str, dict[str, str], str], ...] = (
            ("list_threads", {}, "sessions"), ("search_conversations", {"query": "needle"}, "results"))
        for tool, given, name in lists:
            whole = await told(host, tool, **given)
            assert (len(whole[name]), whole["next_cursor"]) == (7, None)
            first = await told(host, tool, limit=4, **given)
            second = await told(host, tool, limit=4, cursor=first["next_cursor"], **given)
            assert [len(first[name]), len(second[name]), second["next_cursor"]] == [4, 3, None]
            assert first[name] + second[name] == whole[name]


async def test_a_conversation_is_read_backwards_in_parts() -> None:
    said = [{"role": "user", "content": str(number)} for number in range(5)]
    async with open_host([ROUTER, SESSION], trust=True, state_dir=":memory:") as host:
        host.publish("session.v1.append", {"session_id": "s", "messages": said})
        part = await told(host, "get_thread", session_id="s", limit=2)
        assert ([m["content"] for m in part["messages"]], part["omitted"]) == (["3", "4"], 3)
        part = await told(host, "get_thread", session_id="s", limit=2, offset=2)
        assert ([m["content"] for m in part["messages"]], part["omitted"]) == (["1", "2"], 1)
        part = await told(host, "get_thread", session_id="s", offset=4)
        assert ([m["content"] for m in part["messages"]], part["omitted"]) == (["0"], 0)


async def test_models_are_told_of_limits() -> None:
    async with open_host([ROUTER, NOTES, SESSION], trust=True, state_dir=":memory:") as host:
        tools = {tool.name: tool for tool in await host.tools.describe()}
    for name in ("note_list", "list_threads", "search_conversations", "get_thread"):
        assert "limit" in tools[name].input_schema["properties"], name
        assert "limit" not in tools[name].input_schema.get("required", []), name
    for name, way in (("note_list", "after"), ("list_threads", "cursor"), ("search_conversations", "cursor")):
        assert way in tools[name].input_schema["properties"]
        assert way in tools[name].description
