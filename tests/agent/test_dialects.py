"""Ten servers of chat completions, each in its own way of streaming: made by hand from their public documentation, one file of
`dialects/` each. Whatever their way, the agent says and does the same.

All of them talk in one host, each in a session of its own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai_server import Asked, Reply, Script, by_results, says, sends
from turn_parties import Conversation, conversation

DIALECTS = sorted((Path(__file__).parent / "dialects").glob("*.txt"))
CUT = {"azure": "content_filter", "deepseek": "error"}
OWN_IDS = {
    "gemini": "function-call-0123456",
    "mistral": "D681PevKs",
    "lmstudio": "365174485",
    "ollama": "call_0ffhx3k1",
}
WORDS, TURNED = '{"words":2,"characters":7,"lines":1}', "eerht"


def recorded(place: Path, situation: str) -> bytes:
    """What a server streams in a situation."""
    for part in place.read_text().split("=== ")[1:]:
        name, _, body = part.partition("\n")
        if name == situation:
            return body.encode()
    raise LookupError(f"{place} has no {situation!r}")


def torn(body: bytes) -> Script:
    """The body in pieces of 61 bytes, which end wherever they do."""
    return sends(*(body[at : at + 61] for at in range(0, len(body), 61)))


@asynccontextmanager
async def talking(tmp_path: Path) -> AsyncIterator[Conversation]:
    async with conversation(tmp_path, says("?"), config={"gatekeeper": {"approval": "never"}}, floods=True) as talk:
        yield talk


def test_there_are_ten() -> None:
    assert len(DIALECTS) == 10


async def test_what_they_say_is_said(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for place in DIALECTS:
            talk.script(torn(recorded(place, "text")))
            assert await talk.ask("hi", place.stem, seconds=20) == "Hello 🙂", place.stem
            assert talk.text["default", place.stem] == "Hello 🙂", place.stem


@pytest.mark.parametrize("situation", ["one call", "parallel calls"])
async def test_the_tools_that_they_call_are_run_and_they_get_back_what_they_need(
    tmp_path: Path, situation: str
) -> None:
    async with talking(tmp_path) as talk:
        for place in DIALECTS:
            talk.script(by_results(torn(recorded(place, situation)), says("Done.")))
            assert await talk.ask("go", place.stem, seconds=20) == "Done.", place.stem
            asked = talk.server.asked[-1]
            assert asked.results == [WORDS, TURNED][: 1 if situation == "one call" else 2], place.stem
            called = asked.messages[-len(asked.results) - 1]
            first = called["tool_calls"][0]
            assert first["id"] == OWN_IDS.get(place.stem, first["id"])
            assert not first["id"].startswith("call_0000"), place.stem
            assert_given_back(place.stem, called, first)
    assert len(talk.calls) == 10 * (1 if situation == "one call" else 2)


def assert_given_back(server: str, called: dict[str, Any], first: dict[str, Any]) -> None:
    signature = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    assert first.get("extra_content") == (signature if server == "gemini" else None), server
    reasoning = "The user wants this." if server == "deepseek" else None
    assert called.get("reasoning_content") == reasoning, server
    assert called.get("reasoning") == ("hm" if server in ("ollama", "openrouter") else None), server
    assert ("reasoning_details" in called) == (server == "openrouter")


async def test_their_errors_end_the_turn_and_the_next_prompt_is_answered(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for place in DIALECTS:
            talk.script(torn(recorded(place, "error")))
            assert "The server had an error" in await talk.ask("hi", place.stem, seconds=20), place.stem
            talk.script(says("Here again."))
            assert await talk.ask("still there?", place.stem, seconds=20) == "Here again.", place.stem
            assert [message["content"] for message in talk.server.asked[-1].messages[1:]] == [
                "hi",
                "Hel",
                "still there?",
            ]


async def test_what_came_together_with_an_error_is_said_before_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for place in DIALECTS:
            talk.script(sends(recorded(place, "error")))
            assert "The server had an error" in await talk.ask("hi", place.stem, seconds=20), place.stem
            assert talk.text["default", place.stem] == "Hel", place.stem


async def test_an_answer_that_they_cut_off_is_told_as_that_and_kept(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk, talk.host.subscribe("agent.v1.event.turn_cut", observe=True) as cuts:
        for place in DIALECTS:
            talk.script(torn(recorded(place, "cut")))
            assert await talk.ask("hi", place.stem, seconds=20) == "Hel", place.stem
            told = await cuts.__anext__()
            assert told.payload == {"session_id": place.stem, "cut": CUT.get(place.stem, "length")}, place.stem
            thread = await talk.host.tools.execute("get_thread", {"session_id": place.stem}, principal="default")
            assert json.loads(thread.content)["messages"][-1]["cut"] == CUT.get(place.stem, "length"), thread.content


async def test_what_one_model_sent_goes_back_to_no_other(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for name in ("gemini", "deepseek"):
            place = next(place for place in DIALECTS if place.stem == name)
            talk.script(by_results(torn(recorded(place, "one call")), says("Done.")))
            await talk.ask("go", name, seconds=20)
            sent: list[Asked] = []

            async def keep(asked: Asked, reply: Reply, sent: list[Asked] = sent) -> None:
                sent.append(asked)
                await says("Other.")(asked, reply)

            talk.script(keep)
            assert await talk.ask("and you?", name, seconds=20, model="another") == "Other."
            text = json.dumps(sent[0].messages)
            assert "thought_signature" not in text
            assert "reasoning_content" not in text
