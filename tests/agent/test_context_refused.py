"""A server that refuses a conversation as too long, in its own words, or says beforehand how long it may be."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from context_parties import PARAGRAPH, TALKERS, answers, is_summary, strict, text_of, tokens, turns
from openai_server import Asked, Reply, Script, says
from turn_parties import conversation

REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text())


def once(refusal: Script, then: Script) -> Script:
    """Refuses the first request for a turn after the signal word, and answers all others."""
    left = [refusal]

    async def script(asked: Asked, reply: Reply) -> None:
        now = left.pop() if left and "NOW" in text_of(asked) and not is_summary(asked) else then
        await now(asked, reply)

    return script


def answering(status: int, body: Any) -> Script:
    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.json(status, body)

    return script


@pytest.mark.parametrize("server", REFUSALS)
async def test_a_refusal_leads_to_one_shorter_request(tmp_path: Path, server: str) -> None:
    status, body = REFUSALS[server].values()
    script = once(answering(status, body), answers(says("Yes."), says("In short.")))
    async with conversation(tmp_path, script, capsules=TALKERS) as talk:
        for n in range(4):
            await talk.ask(f"{n}: " + PARAGRAPH * 60)
        before = len(talk.server.asked)
        assert await talk.ask("NOW") == "Yes."
    refused, *between, last = talk.server.asked[before:]
    assert len(turns([refused, *between, last])) == 2
    assert tokens(last.body) < tokens(refused.body)
    assert last.last["content"].endswith("NOW")


async def test_a_refusal_within_the_stream_counts_as_well(tmp_path: Path) -> None:
    async def within(_asked: Asked, reply: Reply) -> None:
        await reply.data({"error": {"message": "This endpoint's maximum context length is 8192 tokens.", "code": 400}})
        await reply.end()

    async with conversation(tmp_path, once(within, answers(says("Yes."), says("In short."))), capsules=TALKERS) as talk:
        for n in range(4):
            await talk.ask(f"{n}: " + PARAGRAPH * 60)
        assert await talk.ask("NOW") == "Yes."


async def test_a_second_refusal_is_the_final_answer_and_says_what_to_do(tmp_path: Path) -> None:
    status, body = REFUSALS["vllm"].values()
    async with conversation(tmp_path, answering(status, body), capsules=TALKERS) as talk:
        text = await talk.ask("hi")
        assert len(turns(talk.server.asked)) == 2
        talk.script(says("Yes."))
        assert await talk.ask("and now?") == "Yes."
    for part in ("does not fit", "maximum context length is 8192", "new session", "openai-compat.context_window"):
        assert part in text, text


async def test_what_a_server_says_of_its_window_is_kept_to_afterwards(tmp_path: Path) -> None:
    """The operator says nothing, so 128,000 is assumed, and the server has 8,192: it refuses once, and never again."""
    refused = []

    def counting(script: Script) -> Callable[[Asked, Reply], Awaitable[None]]:
        async def counted(asked: Asked, reply: Reply) -> None:
            if tokens(asked.body) + asked.body.get("max_tokens", 0) > 8192:
                refused.append(asked.number)
            await script(asked, reply)

        return counted

    script = counting(strict(8192, answers(says("Yes."), says("In short."))))
    async with conversation(tmp_path, script, capsules=TALKERS) as talk:
        for n in range(20):
            assert await talk.ask(f"{n}: " + PARAGRAPH * 15) == "Yes."
    assert len(refused) == 1


def lists(**entry: Any) -> Any:
    return {"object": "list", "data": [{"id": "test", "object": "model", **entry}]}


@pytest.mark.parametrize(
    "entry",
    [
        {"max_model_len": 8192},
        {"context_length": 8192, "top_provider": {"max_completion_tokens": 2048}},
        {"context_window": 8192},
        {"max_context_length": 131072, "loaded_context_length": 8192},
        {"meta": {"n_ctx_train": 131072, "n_ctx": 8192}},
    ],
)
async def test_the_window_is_that_of_the_servers_list(tmp_path: Path, entry: Any) -> None:
    """Nothing is refused: the room for the answer is what the conversation leaves of the window."""
    script = strict(8192, answers(says("Yes."), says("In short.")))
    config = {"openai-compat": {"max_output_tokens": 8192}}
    async with conversation(tmp_path, script, config=config, listing=lists(**entry), capsules=TALKERS) as talk:
        for n in range(12):
            assert await talk.ask(f"{n}: " + PARAGRAPH * 15) == "Yes."
    assert all(tokens(asked.body) + asked.body["max_tokens"] <= 8192 for asked in talk.server.asked)
