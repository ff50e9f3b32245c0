"""A conversation that grows beyond the model's context: what is sent fits, what is kept is whole, and each turn ends well."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from openai_server import Asked, Reply, Script, calls, in_turn, refuses, says, silent
from turn_parties import Conversation, conversation

from astrid_host import open_host

WINDOW = 16_384
SUMMARY = "You sum up"
HIDDEN = "Out of what follows nothing is to be told to the person. "


def limits(window: int, **more: Any) -> dict[str, dict[str, Any]]:
    return {"openai-compat": {"context_window": window, **more}}


def is_summary(asked: Asked) -> bool:
    return asked.messages[0]["role"] == "system" and asked.messages[0]["content"].startswith(SUMMARY)


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
            text = f"This model's maximum context length is {window} tokens. However, you requested {sent + room} tokens"
            await reply.json(400, {"error": {"message": text, "code": "context_length_exceeded"}})
        else:
            await script(asked, reply)

    return checked


PARAGRAPH = "The ship left the harbour before dawn, and nobody on the pier could say who had paid for the cargo. "


async def test_five_hundred_turns_fit_into_a_context_of_16k(tmp_path: Path, record_property: Any) -> None:
    said = says("It is noted. " + PARAGRAPH * 2)
    script = strict(WINDOW, answers(said, says("Number of notes so far: many. " + PARAGRAPH)))
    async with conversation(tmp_path, script, config=limits(WINDOW)) as talk:
        for n in range(500):
            assert (await talk.ask(f"Note {n}: {PARAGRAPH}")).startswith("It is noted.")
        thread = await talk.host.tools.execute("get_thread", {"session_id": "s", "limit": 10_000})
    kept = json.loads(thread.content)
    assert kept["messages"][-2]["content"].startswith("Note 499") and len(kept["messages"]) + kept["omitted"] == 1000
    asked = talk.server.asked
    sent = [tokens(request.body) for request in asked]
    assert len(turns(asked)) == 500 and max(sent) < WINDOW
    summaries = len(asked) - 500
    assert 5 <= summaries <= 60
    for n, request in enumerate(turns(asked)):
        assert f"Note {n}:" in request.last["content"]
        assert request.messages[0]["role"] == "system" and request.messages[1]["role"] == "user"
    assert "many" in turns(asked)[-1].messages[1]["content"]
    size = [len(json.dumps(request.body)) for request in asked]
    figures = {
        "requests": len(asked),
        "summaries": summaries,
        "most tokens": max(sent),
        "mean tokens": sum(sent) // len(sent),
        "most bytes": max(size),
        "all bytes": sum(size),
    }
    record_property("sent", figures)


async def test_a_long_turn_of_tools_fits_and_keeps_what_the_user_wants(tmp_path: Path) -> None:
    """Twenty calls whose results would fill the context several times, and the task is in each request."""
    (tmp_path / "long.txt").write_text(PARAGRAPH * 120)
    rounds = [calls(("read_file", {"file_path": "long.txt"})) for _ in range(20)]

    def script() -> Script:
        return strict(WINDOW, answers(in_rounds(*rounds, says("Read.")), says("It was read.")))

    async with conversation(tmp_path, script(), config=limits(WINDOW)) as talk:
        assert await talk.ask("Read it twenty times, and mind the word PELICAN.", seconds=20) == "Read."
    for asked in turns(talk.server.asked):
        assert "PELICAN" in text_of(asked)
    last = turns(talk.server.asked)[-1]
    assert last.messages[-1]["role"] == "tool" and PARAGRAPH in last.messages[-1]["content"]


def in_rounds(*scripts: Script) -> Script:
    """The first script for the first request that is for no summary, and so on."""
    waiting = iter(scripts)

    async def script(asked: Asked, reply: Reply) -> None:
        await next(waiting)(asked, reply)

    return script


async def test_old_results_are_shortened_before_anything_is_summed_up(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(PARAGRAPH * 60)
    turn = [calls(("read_file", {"file_path": "long.txt"})), says("Read.")]
    async with conversation(tmp_path, in_turn(*turn * 6), config=limits(WINDOW)) as talk:
        for _ in range(6):
            assert await talk.ask("Read it.") == "Read."
    assert not any(is_summary(asked) for asked in talk.server.asked)
    results = [m["content"] for m in talk.server.asked[-1].messages if m["role"] == "tool"]
    assert len(results) == 6
    assert "bytes are left out here" in results[0] and "call the tool again for a part" in results[0]
    assert results[0].startswith(PARAGRAPH[:50]) and len(results[0]) < 1000
    assert results[-1].count(PARAGRAPH) == 60


async def test_a_result_of_a_mebibyte_never_goes_to_the_model_whole(tmp_path: Path) -> None:
    (tmp_path / "huge.txt").write_text("BEGIN " + PARAGRAPH * 9000 + " END")
    script = in_turn(calls(("read_file", {"file_path": "huge.txt"})), says("Read."))
    async with conversation(tmp_path, strict(WINDOW, script), config=limits(WINDOW)) as talk:
        assert await talk.ask("Read it.") == "Read."
    content = talk.server.asked[1].last["content"]
    assert content.startswith("BEGIN") and content.endswith("END") and len(content) < 4 * WINDOW
    assert "bytes are left out here" in content and "a range of lines, a search, or a limit" in content


async def fill(talk: Conversation, times: int = 24) -> None:
    for n in range(times):
        await talk.ask(f"{n}: " + PARAGRAPH * 20)


@pytest.mark.parametrize("summary", [refuses(400), refuses(500), says(), says(" \n"), calls(("no_tool", {}))])
async def test_a_summary_that_fails_never_fails_the_turn(tmp_path: Path, summary: Script) -> None:
    async with conversation(tmp_path, strict(WINDOW, answers(says("Yes."), summary)), config=limits(WINDOW)) as talk:
        await fill(talk)
        assert await talk.ask("And now?") == "Yes."
    assert any(is_summary(asked) for asked in talk.server.asked)
    first = talk.server.asked[-1].messages[1]["content"]
    assert "earlier messages of this conversation are left out here" in first


async def test_a_summary_is_asked_for_without_tools_and_not_shown(tmp_path: Path) -> None:
    async with conversation(tmp_path, answers(says("Yes."), says(HIDDEN)), config=limits(WINDOW)) as talk:
        await fill(talk)
        thread = await talk.host.tools.execute("get_thread", {"session_id": "s", "limit": 10_000})
    summaries = [asked for asked in talk.server.asked if is_summary(asked)]
    assert summaries and all(not asked.tools and len(asked.messages) == 2 for asked in summaries)
    assert HIDDEN not in talk.text["default", "s"] and HIDDEN not in thread.content
    assert HIDDEN.strip() in talk.server.asked[-1].messages[1]["content"]


async def test_without_summaries_the_beginning_is_left_out(tmp_path: Path) -> None:
    config = {**limits(WINDOW), "react": {"summaries": 0}}
    async with conversation(tmp_path, strict(WINDOW, says("Yes.")), config=config) as talk:
        await fill(talk)
    assert not any(is_summary(asked) for asked in talk.server.asked)
    assert "earlier messages of this conversation are left out" in talk.server.asked[-1].messages[1]["content"]


async def test_a_silent_summary_is_given_up_and_the_turn_goes_on(tmp_path: Path) -> None:
    script = answers(says("Yes."), silent())
    config = {**limits(WINDOW), "react": {"streaming_timeout_secs": 1}}
    async with conversation(tmp_path, script, config=config) as talk:
        talk.say("first")
        await talk.final()
        for n in range(8):
            talk.say(f"{n}: " + PARAGRAPH * 60)
            with trio.fail_after(10):
                await talk.until(lambda: talk.is_answered() or any(is_summary(a) for a in talk.server.asked))
            while not talk.is_answered():
                await talk.tick()
                await trio.lowlevel.checkpoint()
    assert any(is_summary(asked) for asked in talk.server.asked)
    assert set(talk.finals["default", "s"]) == {"Yes."}


async def test_a_cancelled_summary_ends_the_turn_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    opened = trio.Event()

    async def slow(asked: Asked, reply: Reply) -> None:
        await reply.text(HIDDEN)
        opened.set()
        await reply.gone.wait()

    async with conversation(tmp_path, answers(says("Yes."), slow), config=limits(WINDOW)) as talk:
        with trio.fail_after(20):
            n = 0
            while not opened.is_set():
                talk.say(f"{n}: " + PARAGRAPH * 60)
                await talk.until(lambda: talk.is_answered() or is_summary(talk.server.asked[-1]))
                if not talk.is_answered():
                    await opened.wait()
                n += 1
        talk.cancel()
        with trio.fail_after(5):
            await talk.until(talk.is_answered)
        assert talk.finals["default", "s"][-1] == "Cancelled."
        thread = await talk.host.tools.execute("get_thread", {"session_id": "s"})
        assert HIDDEN not in thread.content
        talk.script(says("Yes."))
        assert (await talk.ask("again", who="default", session="t")) == "Yes."


async def test_the_summary_is_there_after_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (workspace := tmp_path / "work").mkdir()
    script = answers(says("Yes."), says("The ship is called AURORA."))
    async with conversation(workspace, script, config=limits(WINDOW), state_dir=state) as talk:
        await fill(talk)
    async with conversation(workspace, says("Still."), config=limits(WINDOW), state_dir=state) as talk:
        assert await talk.ask("Its name?") == "Still."
    assert "AURORA" in talk.server.asked[0].messages[1]["content"]


async def test_a_conversation_that_was_deleted_has_no_summary(tmp_path: Path) -> None:
    script = answers(says("Yes."), says("The ship is called AURORA."))
    async with conversation(tmp_path, script, config=limits(WINDOW)) as talk:
        await fill(talk)
        assert "AURORA" in text_of(talk.server.asked[-1])
        reply = "session.v1.response.delete.c"
        async with talk.host.subscribe(reply) as replies:
            talk.host.publish("session.v1.request.delete", {"session_id": "s", "correlation_id": "c"})
            assert (await anext(aiter(replies))).payload["deleted"]
        await talk.ask("Hello, who are you?")
    assert "AURORA" not in text_of(talk.server.asked[-1])
    assert len(talk.server.asked[-1].messages) == 2


# Refusals, as servers word them.

REFUSALS: dict[str, tuple[int, Any]] = {
    "openai": (400, {"error": {"message": "This model's maximum context length is 4097 tokens.", "code": "context_length_exceeded"}}),
    "azure": (400, {"error": {"message": "no", "innererror": {"code": "context_length_exceeded"}}}),
    "anthropic": (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8000 maximum"}}),
    "gemini": (400, [{"error": {"code": 400, "message": "The input token count (9000) exceeds the maximum number of tokens allowed (8192).", "status": "INVALID_ARGUMENT"}}]),
    "llama.cpp": (400, {"error": {"code": 400, "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}),
    "llama.cpp, older": (500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the context size", "type": "server_error"}}),
    "vllm": (400, {"object": "error", "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (808 in the messages, 8192 in the completion).", "type": "BadRequestError", "code": 400}),
    "ollama": (400, {"error": {"message": "input length exceeds the context length", "type": "api_error"}}),
    "mistral": (400, {"object": "error", "message": "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length", "type": "invalid_request_prompt"}),
    "deepseek": (400, {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens", "type": "invalid_request_error", "code": "invalid_request_error"}}),
    "openrouter": (400, {"error": {"message": "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens", "code": 400}}),
    "openrouter, passed on": (400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "{\"error\":{\"message\":\"prompt is too long\"}}"}}}),
    "lm studio": (400, {"error": "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}),
    "groq": (413, {"error": {"message": "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded"}}),
}  # fmt: skip


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
    status, body = REFUSALS[server]
    script = once(answering(status, body), answers(says("Yes."), says("In short.")))
    async with conversation(tmp_path, script) as talk:
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

    async with conversation(tmp_path, once(within, answers(says("Yes."), says("In short.")))) as talk:
        for n in range(4):
            await talk.ask(f"{n}: " + PARAGRAPH * 60)
        assert await talk.ask("NOW") == "Yes."


async def test_a_second_refusal_is_the_final_answer_and_says_what_to_do(tmp_path: Path) -> None:
    status, body = REFUSALS["vllm"]
    async with conversation(tmp_path, answering(status, body)) as talk:
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
    async with conversation(tmp_path, script) as talk:
        for n in range(20):
            assert await talk.ask(f"{n}: " + PARAGRAPH * 15) == "Yes."
    assert len(refused) == 1


def lists(**entry: Any) -> list[Any]:
    return [{"id": "test", "object": "model", **entry}]


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
    async with conversation(tmp_path, script, models=lists(**entry)) as talk:
        for n in range(12):
            assert await talk.ask(f"{n}: " + PARAGRAPH * 15) == "Yes."
    assert all(tokens(asked.body) + asked.body["max_tokens"] <= 8192 for asked in talk.server.asked)
