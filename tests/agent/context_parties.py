"""Conversations that grow beyond the model's context, and servers that mind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openai_server import Asked, Reply, Script, says
from turn_parties import ALL, Conversation, conversation

WINDOW = 16_384
NAMES = ("react", "session", "identity", "prompt-builder", "registry", "openai-compat", "router", "dead-letter")
TALKERS = [path for path in ALL if path.name in NAMES]  # a conversation without the tools of others
SUMMARY = "You sum up"
HIDDEN = "Out of what follows nothing is to be told to the person. "


def limits(window: int, **more: Any) -> dict[str, dict[str, Any]]:
    return {"openai-compat": {"context_window": window, **more}}


def is_summary(asked: Asked) -> bool:
    first = asked.messages[0]
    return bool(first["role"] == "system" and first["content"].startswith(SUMMARY))


def tokens(body: Any) -> int:
    """A count that is no estimate of ours: four characters each, which is what English and JSON have at least."""
    return len(json.dumps({"messages": body["messages"], "tools": body.get("tools", [])}, ensure_ascii=False)) // 4


def text_of(asked: Asked) -> str:
    return json.dumps(asked.messages, ensure_ascii=False)


def answers(turn: Script, summary: Script) -> Script:
    """One script for turns, another for summaries."""

    async def script(asked: Asked, reply: Reply) -> None:
        await (summary if is_summary(asked) else turn)(asked, reply)

    return script


def turns(server_asked: list[Asked]) -> list[Asked]:
    return [asked for asked in server_asked if not is_summary(asked)]


def strict(window: int, script: Script) -> Script:
    """A server that refuses whatever has more tokens than its window, the room for the answer counted too."""

    async def checked(asked: Asked, reply: Reply) -> None:
        sent, room = tokens(asked.body), asked.body.get("max_tokens", 0)
        if sent + room > window:
            text = (
                f"This model's maximum context length is {window} tokens. However, you requested {sent + room} tokens"
            )
            await reply.json(400, {"error": {"message": text, "code": "context_length_exceeded"}})
        else:
            await script(asked, reply)

    return checked


PARAGRAPH = "The ship left the harbour before dawn, and nobody on the pier could say who had paid for the cargo. "


async def fill(talk: Conversation, times: int = 24) -> None:
    for n in range(times):
        await talk.ask(f"{n}: " + PARAGRAPH * 20)


async def talk_of_many_turns(workspace: Path, turns_said: int, length: int = 1) -> dict[str, int]:
    """So many turns with a window of 16k, of so many paragraphs each; returns the figures of what was sent."""
    said = says("It is noted. " + PARAGRAPH * 2)
    script = strict(WINDOW, answers(said, says("Number of notes so far: many. " + PARAGRAPH)))
    async with conversation(workspace, script, capsules=TALKERS, config=limits(WINDOW)) as talk:
        for n in range(turns_said):
            assert (await talk.ask(f"Note {n}: {PARAGRAPH * length}")).startswith("It is noted.")
        thread = await talk.host.tools.execute("get_thread", {"session_id": "s", "limit": 10_000})
    kept = json.loads(thread.content)
    assert kept["messages"][-2]["content"].startswith(f"Note {turns_said - 1}")
    assert len(kept["messages"]) + kept["omitted"] == 2 * turns_said
    asked = talk.server.asked
    assert len(turns(asked)) == turns_said
    for n, request in enumerate(turns(asked)):
        assert f"Note {n}:" in request.last["content"]
        assert request.messages[0]["role"] == "system"
        assert request.messages[1]["role"] == "user"
    assert "many" in turns(asked)[-1].messages[1]["content"]
    sent = [tokens(request.body) for request in asked]
    size = [len(json.dumps(request.body)) for request in asked]
    return {
        "requests": len(asked),
        "summaries": len(asked) - turns_said,
        "most tokens": max(sent),
        "mean tokens": sum(sent) // len(sent),
        "most bytes": max(size),
        "mean bytes": sum(size) // len(size),
    }
