"""A conversation that grows beyond the model's context: what is sent fits, what is kept is whole, and each turn ends well."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from context_parties import (
    HIDDEN,
    PARAGRAPH,
    TALKERS,
    WINDOW,
    answers,
    fill,
    is_summary,
    limits,
    strict,
    talk_of_many_turns,
    text_of,
    turns,
)
from openai_server import Asked, Reply, Script, calls, in_turn, refuses, says, silent
from turn_parties import conversation


async def test_many_turns_fit_into_a_context_of_16k(tmp_path: Path) -> None:
    """`make soak` has 500 of them."""
    figures = await talk_of_many_turns(tmp_path, 60, length=8)
    assert figures["most tokens"] < WINDOW, figures
    assert 1 <= figures["summaries"] <= 12, figures


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
    assert last.messages[-1]["role"] == "tool"
    assert PARAGRAPH in last.messages[-1]["content"]


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
    assert "bytes are left out here" in results[0]
    assert "call the tool again for a part" in results[0]
    assert PARAGRAPH[:50] in results[0]
    assert len(results[0]) < 1000
    assert results[-1].count(PARAGRAPH) == 60


async def test_a_result_of_a_mebibyte_never_goes_to_the_model_whole(tmp_path: Path) -> None:
    (tmp_path / "huge.txt").write_text("BEGIN " + PARAGRAPH * 9000 + " END")
    script = in_turn(calls(("read_file", {"file_path": "huge.txt"})), says("Read."))
    async with conversation(tmp_path, strict(WINDOW, script), config=limits(WINDOW)) as talk:
        assert await talk.ask("Read it.") == "Read."
    content = talk.server.asked[1].last["content"]
    assert "BEGIN" in content[:10]
    assert "END" in content[-10:]
    assert len(content) < 4 * WINDOW
    assert "bytes are left out here" in content
    assert "a range of lines, a search, or a limit" in content


@pytest.mark.parametrize("summary", [refuses(400), refuses(500), says(), says(" \n"), calls(("no_tool", {}))])
async def test_a_summary_that_fails_never_fails_the_turn(tmp_path: Path, summary: Script) -> None:
    async with conversation(
        tmp_path, strict(WINDOW, answers(says("Yes."), summary)), config=limits(WINDOW), capsules=TALKERS
    ) as talk:
        await fill(talk)
        assert await talk.ask("And now?") == "Yes."
    assert any(is_summary(asked) for asked in talk.server.asked)
    first = talk.server.asked[-1].messages[1]["content"]
    assert "earlier messages of this conversation are left out here" in first


async def test_a_summary_is_asked_for_without_tools_and_not_shown(tmp_path: Path) -> None:
    async with conversation(
        tmp_path, answers(says("Yes."), says(HIDDEN)), config=limits(WINDOW), capsules=TALKERS
    ) as talk:
        await fill(talk)
        thread = await talk.host.tools.execute("get_thread", {"session_id": "s", "limit": 10_000})
    summaries = [asked for asked in talk.server.asked if is_summary(asked)]
    assert summaries
    assert all(not asked.tools and len(asked.messages) == 2 for asked in summaries)
    assert HIDDEN not in talk.text["default", "s"]
    assert HIDDEN not in thread.content
    assert HIDDEN.strip() in talk.server.asked[-1].messages[1]["content"]


async def test_without_summaries_the_beginning_is_left_out(tmp_path: Path) -> None:
    config = {**limits(WINDOW), "react": {"summaries": 0}}
    async with conversation(tmp_path, strict(WINDOW, says("Yes.")), config=config, capsules=TALKERS) as talk:
        await fill(talk)
    assert not any(is_summary(asked) for asked in talk.server.asked)
    assert "earlier messages of this conversation are left out" in talk.server.asked[-1].messages[1]["content"]


async def test_a_silent_summary_is_given_up_and_the_turn_goes_on(tmp_path: Path) -> None:
    script = answers(says("Yes."), silent())
    config = {**limits(WINDOW), "react": {"streaming_timeout_secs": 1}}
    async with conversation(tmp_path, script, config=config, capsules=TALKERS) as talk:
        talk.say("first")
        await talk.final()
        for n in range(14):
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

    async with conversation(tmp_path, answers(says("Yes."), slow), config=limits(WINDOW), capsules=TALKERS) as talk:
        with trio.fail_after(20):
            n = 0
            while not opened.is_set():
                talk.say(f"{n}: " + PARAGRAPH * 60)
                await talk.until(lambda: talk.is_answered() or any(is_summary(asked) for asked in talk.server.asked))
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
    async with conversation(workspace, script, config=limits(WINDOW), state_dir=state, capsules=TALKERS) as talk:
        await fill(talk)
    async with conversation(
        workspace, says("Still."), config=limits(WINDOW), state_dir=state, capsules=TALKERS
    ) as talk:
        assert await talk.ask("Its name?") == "Still."
    assert "AURORA" in talk.server.asked[0].messages[1]["content"]


async def test_a_conversation_that_was_deleted_has_no_summary(tmp_path: Path) -> None:
    script = answers(says("Yes."), says("The ship is called AURORA."))
    async with conversation(tmp_path, script, config=limits(WINDOW), capsules=TALKERS) as talk:
        await fill(talk)
        assert "AURORA" in text_of(talk.server.asked[-1])
        reply = "session.v1.response.delete.c"
        async with talk.host.subscribe(reply) as replies:
            talk.host.publish("session.v1.request.delete", {"session_id": "s", "correlation_id": "c"})
            assert (await anext(aiter(replies))).payload["deleted"]
        await talk.ask("Hello, who are you?")
    assert "AURORA" not in text_of(talk.server.asked[-1])
    assert len(talk.server.asked[-1].messages) == 2
