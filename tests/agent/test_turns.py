"""Whole turns against a provider that does whatever providers do: each prompt has one final answer, each call one result."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import next_of
from openai_server import (
    Script,
    by_results,
    calls,
    drops,
    empty,
    endless,
    fails_within,
    in_turn,
    paced,
    refuses,
    says,
    sends,
    silent,
    when,
)
from turn_parties import ALL, REACHED, Answering, conversation, crashing_tool, hanging_tool

ASKED, ANSWERS = "astrid.v1.approval", "astrid.v1.approval.response."
COUNT = ("word_count", {"text": "a b c"})
WRITE = ("write_file", {"file_path": "a.txt", "content": "hi"})


async def test_a_text_is_streamed_and_then_given_as_the_final_answer(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("Hello ", "wor", "ld.")) as talk:
        assert await talk.ask("hi") == "Hello world."
    assert talk.text["default", "s"] == "Hello world."
    [asked] = talk.server.asked
    assert asked.messages[0]["role"] == "system"
    assert asked.last == {"role": "user", "content": "hi"}
    assert {"word_count", "list_directory", "run_shell_command", "list_threads", "save_identity"} <= set(asked.tools)


async def test_the_system_prompt_tells_the_working_directory_without_configuration(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("Hi.")) as talk:
        assert await talk.ask("hi") == "Hi."
    assert f"- Current working directory: {tmp_path.resolve()}" in str(talk.server.asked[0].messages[0]["content"])
    config = {"react": {"workspace_root": "/elsewhere"}}
    async with conversation(tmp_path, says("Hi."), config=config) as talk:
        assert await talk.ask("hi") == "Hi."
    assert "- Current working directory: /elsewhere" in str(talk.server.asked[0].messages[0]["content"])


async def test_a_tool_is_called_and_its_result_goes_back_to_the_model(tmp_path: Path) -> None:
    async with conversation(tmp_path, by_results(calls(COUNT, before=["I ", "count."]), says("Three."))) as talk:
        assert await talk.ask("count") == "Three."
    assert talk.text["default", "s"] == "I count.Three."
    [result] = talk.server.asked[1].results
    assert json.loads(result)["words"] == 3
    assert len(talk.calls) == 1


async def test_five_tools_at_once_each_have_their_result_in_the_order_of_the_calls(tmp_path: Path) -> None:
    called = [("word_count", {"text": "a " * n}) for n in range(1, 6)]
    async with conversation(tmp_path, by_results(calls(*called), says("Done."))) as talk:
        assert await talk.ask("count") == "Done."
    assert [json.loads(result)["words"] for result in talk.server.asked[1].results] == [1, 2, 3, 4, 5]
    assert len(talk.calls) == 5


async def test_tools_whose_calls_fail_are_told_to_the_model_beside_those_that_work(tmp_path: Path) -> None:
    crashing_tool(tmp_path / "capsules")
    called = calls(
        ("word_count", '{"text": '),  # no JSON
        ("word_count", {"words": 1}),  # not what the tool takes
        ("nobody_has_this", {}),
        ("crash", {}),
        ("not a name!", {}),
        ("read_file", {"file_path": "absent"}),
        COUNT,
    )
    capsules, config = [*ALL, tmp_path / "capsules"], {"gatekeeper": {"approval": "never"}}
    async with conversation(tmp_path, by_results(called, says("Sorry.")), capsules=capsules, config=config) as talk:
        assert await talk.ask("go") == "Sorry."
    results = talk.server.asked[1].results
    words = ["cannot be read", "missing field", "No capsule provides", "crashed", "Invalid", "absent", '"words":3']
    assert len(results) == 7
    for result, word in zip(results, words, strict=True):
        assert word in result
    on_bus = [result["is_error"] for results in talk.results.values() for result in results]
    assert sorted(on_bus) == [False, *[True] * 5]  # the first was never made


# What providers do.

LONG = "x" * 20
PROVIDERS: list[tuple[str, Script, str]] = [
    ("nothing at all", empty(), "empty answer"),
    ("the connection breaks off before anything is said", drops(), "LLM error"),
    ("the connection breaks off within a text", drops("Well, ", "I"), "LLM error"),
    ("an error within the stream", fails_within("Well", message="overloaded"), "overloaded"),
    ("no JSON", sends(b"data: {nonsense\n\n"), "LLM error"),
    ("no stream", sends(b"<html>hello</html>", kind="text/html"), "no chat completion stream: check the URL"),
    ("silence after the headers", silent(), "LLM error"),
    ("text without end", endless(LONG), "max_response_bytes"),
    ("text without end, slowly", endless("x", per_second=100), "LLM error"),
    ("too many requests", refuses(429, "slow down"), "slow down"),
    ("a server error", refuses(500, "on fire"), "on fire"),
    ("a key that is refused", refuses(401, "bad key"), "bad key"),
    ("a conversation that is refused", refuses(400, "too long"), "too long"),
]
LIMITS = {
    "openai-compat": {"silence_timeout_secs": 1, "total_timeout_secs": 1},
    "react": {"max_response_bytes": 10_000},
}


@pytest.mark.parametrize(("script", "words"), [row[1:] for row in PROVIDERS], ids=[row[0] for row in PROVIDERS])
async def test_a_provider_that_fails_is_answered_for_and_the_next_prompt_is_answered(
    tmp_path: Path, script: Script, words: str
) -> None:
    async with conversation(tmp_path, script, config=LIMITS) as talk:
        assert words in await talk.ask("hi", seconds=3)
        await talk.rest()
        before = talk.text["default", "s"]
        talk.script(says("Here again."))
        assert await talk.ask("still there?") == "Here again."
    assert talk.text["default", "s"] == before + "Here again."
    kept = [message["content"] for message in talk.server.asked[-1].messages[1:]]
    assert kept == (["hi", before, "still there?"] if before else ["hi\n\nstill there?"])


async def test_a_server_that_is_overloaded_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    async with conversation(tmp_path, in_turn(refuses(429), refuses(503), says("Now."))) as talk:
        assert await talk.ask("hi") == "Now."


NO_MODEL = {"openai-compat": {"model": ""}}


async def test_where_no_model_is_listed_it_is_said_why_and_one_that_is_named_is_asked(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("Hello."), config=NO_MODEL) as talk:
        talk.server.models = None
        told = await talk.ask("hi")
        assert told.startswith(f"No model is selected. {talk.server.url} does not list its models. ")
        assert "astrid-host config set openai-compat.base_url URL" in told
        assert await talk.ask("hi", model="named") == "Hello."
        assert [asked.body["model"] for asked in talk.server.asked] == ["named"]


async def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    config = {"openai-compat": {"model": "", "base_url": "http://127.0.0.1:9/v1"}}
    async with conversation(tmp_path, says("Never."), config=config, allow_local=["127.0.0.1:9"]) as talk:
        problem = "The model provider at http://127.0.0.1:9/v1 cannot be reached"
        assert problem in await talk.ask("hi")
        assert problem in await talk.ask("hi", model="named")


async def test_a_model_that_was_given_for_one_run_is_not_that_of_the_next(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    models = []
    for given in ("given", ""):
        config = {"openai-compat": {"model": given}}
        async with conversation(work, says("Hello."), config=config, state_dir=state) as talk:
            for who in ("default", "alice"):
                assert await talk.ask("hi", who=who) == "Hello."
        models += [asked.body["model"] for asked in talk.server.asked]
    assert models == ["given", "given", "test", "test"]


async def test_slow_tokens_are_waited_for(tmp_path: Path) -> None:
    """Each comes within the time of silence, and all of them within a multiple of it."""
    config = {"openai-compat": {"silence_timeout_secs": 1}, "react": {"streaming_timeout_secs": 1}}
    async with conversation(tmp_path, paced("abc", per_second=1.7), config=config) as talk:
        talk.say("hi")
        for length in (1, 2, 3):
            await talk.until(partial(talk.has_said, length))
            await talk.tick()
        assert await talk.final() == "abc"


async def test_two_thousand_tokens_a_second_are_all_there(tmp_path: Path) -> None:
    tokens = [f"{n} " for n in range(2000)]
    async with conversation(tmp_path, paced(tokens, per_second=2000)) as talk:
        assert await talk.ask("count") == "".join(tokens)
    assert talk.text["default", "s"] == "".join(tokens)


@pytest.mark.parametrize("limit", [3, 25])
async def test_a_model_that_calls_tools_for_ever_is_stopped(tmp_path: Path, limit: int) -> None:
    async with conversation(tmp_path, calls(COUNT), config={"react": {"max_iterations": limit}}) as talk:
        assert f"maximum of {limit} iterations" in await talk.ask("go")
    assert len(talk.calls) == len(talk.server.asked) == limit


# Tools that change something.


async def test_a_tool_that_changes_something_runs_when_it_is_approved(tmp_path: Path) -> None:
    policy = Answering(approves=True)
    async with conversation(tmp_path, by_results(calls(WRITE, COUNT), says("Done.")), approvals=policy) as talk:
        assert await talk.ask("write") == "Done."
    assert policy.asked == ["write_file"]
    assert (tmp_path / "a.txt").read_text() == "hi"


@pytest.mark.parametrize("policy", [Answering(approves=False), None], ids=["denied", "nobody to ask"])
async def test_a_tool_that_is_not_approved_does_nothing_and_the_model_is_told_who_denied(
    tmp_path: Path, policy: Answering | None
) -> None:
    async with conversation(tmp_path, by_results(calls(WRITE, COUNT), says("Sorry.")), approvals=policy) as talk:
        assert await talk.ask("write") == "Sorry."
    denied, counted = talk.server.asked[1].results
    assert denied.startswith("Denied: ")
    assert "gatekeeper" in denied
    assert '"words":3' in counted
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_person_decides_while_the_turn_waits(tmp_path: Path, decision: str) -> None:
    async with conversation(tmp_path, by_results(calls(WRITE), says("Done."))) as talk:
        async with talk.host.subscribe(ASKED) as questions:
            talk.say("write")
            question = (await next_of(questions)).payload
            answer = {"type": "approval_response", "request_id": question["request_id"], "decision": decision}
            talk.host.publish(ANSWERS + question["request_id"], answer)
            assert await talk.final() == "Done."
    [result] = talk.server.asked[1].results
    assert (tmp_path / "a.txt").exists() == (decision == "approve")
    assert result.startswith("Denied: ") == (decision == "deny")


# Cancelling.


async def test_cancelling_stops_the_providers_stream_and_keeps_what_was_said(tmp_path: Path) -> None:
    async with conversation(tmp_path, endless("and ", per_second=500)) as talk:
        talk.say("talk")
        await talk.until(lambda: len(talk.text["default", "s"]) > 20)
        talk.cancel()
        assert await talk.final(seconds=1) == "Cancelled."
        with trio.fail_after(1):
            await talk.until(lambda: not talk.answering)
        talk.script(says("Again."))
        assert await talk.ask("again") == "Again."
    kept = talk.server.asked[-1].messages[2]
    assert kept["role"] == "assistant"
    assert talk.text["default", "s"] == kept["content"] + "Again."


async def test_cancelling_stops_a_tool_that_runs(tmp_path: Path) -> None:
    hang = hanging_tool(tmp_path / "capsules")
    script = by_results(calls(COUNT, ("hang", {})), says("Never said."))
    config = {"gatekeeper": {"approval": "never"}}
    async with conversation(tmp_path, script, capsules=[*ALL, hang], config=config) as talk:
        async with talk.host.subscribe(REACHED) as reached:
            talk.say("go")
            await next_of(reached)
        await talk.until(lambda: len(talk.results) == 1)
        await talk.tick()
        talk.cancel()
        assert await talk.final(seconds=1) == "Cancelled."
        await talk.until(lambda: len(talk.results) == 2)
        assert talk.host.stats().capsules["hang"].failures == {"cancelled": 1}
        talk.script(says("Again."))
        assert await talk.ask("again") == "Again."
    counted, given_up = (m["content"] for m in talk.server.asked[-1].messages if m["role"] == "tool")
    assert '"words":3' in counted
    assert "given up" in given_up
    cancelled = [call_id for (_, call_id), [made] in talk.calls.items() if made["tool_name"] == "hang"]
    assert talk.cancelled == cancelled


async def test_a_tool_that_never_answers_costs_its_time_and_the_next_prompt_is_answered(tmp_path: Path) -> None:
    hang = hanging_tool(tmp_path / "capsules")
    config: dict[str, dict[str, Any]] = {"gatekeeper": {"approval": "never"}, "react": {"tool_timeout_secs": 0}}
    async with conversation(tmp_path, calls(("hang", {})), capsules=[*ALL, hang], config=config) as talk:
        async with talk.host.subscribe(REACHED) as reached:
            talk.say("go")
            await next_of(reached)
        await talk.tick()
        assert "1 of 1 tools did not answer" in await talk.final(seconds=1)
        await talk.until(lambda: len(talk.results) == 1)
        talk.script(says("Again."))
        assert await talk.ask("again") == "Again."


# Several at once.


async def test_sessions_and_principals_do_not_meet(tmp_path: Path) -> None:
    wheres = [(who, session) for who in ("alice", "bob") for session in ("s1", "s2")]
    answered: dict[tuple[str, str], list[str]] = {}

    async def script(asked: Any, reply: Any) -> None:
        """It counts in the user's words, and answers with what the tool counted."""
        user = [m["content"] for m in asked.messages if m["role"] == "user"][-1]
        if asked.results:
            await reply.text(f"{user}: ", str(json.loads(asked.results[0])["words"]))
        else:
            await reply.call("word_count", {"text": user}, "call_0")  # the same id everywhere
        await reply.finish()

    async def talks(who: str, session: str, words: str) -> None:
        answered[who, session] = [await talk.ask(words * n, session, who) for n in (1, 2)]

    async with conversation(tmp_path, script) as talk:
        async with trio.open_nursery() as nursery:
            for n, (who, session) in enumerate(wheres):
                nursery.start_soon(talks, who, session, f"{session} {who} " * (n + 1))
    for n, (who, session) in enumerate(wheres):
        words = f"{session} {who} " * (n + 1)
        expected = [f"{words * m}: {2 * m * (n + 1)}" for m in (1, 2)]
        assert answered[who, session] == expected
        assert talk.text[who, session] == "".join(expected)
    assert sum(map(len, talk.calls.values())) == 8


async def test_a_second_prompt_waits_for_the_turn_that_runs(tmp_path: Path) -> None:
    opened = trio.Event()
    script = in_turn(when(opened, says(" One."), before=["First:"]), says("Two."), says("Three."))
    async with conversation(tmp_path, script) as talk:
        talk.say("a")
        await talk.until(lambda: talk.text["default", "s"] == "First:")
        talk.say("b")
        talk.say("c")
        await talk.tick()
        assert len(talk.server.asked) == 1
        opened.set()
        assert [await talk.final() for _ in range(3)] == ["First: One.", "Two.", "Three."]
    texts = [message["content"] for message in talk.server.asked[-1].messages[1:]]
    assert texts == ["a", "First: One.", "b", "Two.", "c"]


async def test_a_stored_conversation_is_sent_again_by_the_next_host(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    async with conversation(work, by_results(calls(COUNT), says("Three.")), state_dir=state) as talk:
        assert await talk.ask("count") == "Three."
    async with conversation(work, says("As I said."), state_dir=state) as talk:
        assert await talk.ask("how many?") == "As I said."
    [asked] = talk.server.asked
    roles = [message["role"] for message in asked.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert asked.messages[-2]["content"] == "Three."
