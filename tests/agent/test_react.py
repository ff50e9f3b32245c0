"""The loop of an agent: whatever its parties do, each prompt ends in exactly one final answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule
from messages import assistant, called, result, user
from react_parties import PROVIDER, REACT, agent, call, said

from astrid_host import open_host

EXECUTE = "tool.v1.request.execute"
CANCEL_TOOLS = "tool.v1.request.cancel"
CANCEL_PROVIDER = "llm.v1.request.cancel.scripted"
ASSEMBLE = "prompt_builder.v1.assemble"
BUILD = "spark.v1.request.build"
GET = "session.v1.request.get_messages"
ALL_TIMEOUTS = ("identity_timeout_secs", "streaming_timeout_secs", "tool_timeout_secs")


# What models say.


async def test_a_text_is_streamed_and_then_given_as_the_final_answer(tmp_path: Path) -> None:
    async with agent(tmp_path, said("Hello there.")) as parties:
        assert await parties.ask("hi") == "Hello there."
        await parties.until(lambda: parties.deltas() == "Hello there.")
        [request] = parties.payloads(PROVIDER)
        assert parties.history["default", "s"] == [user("hi"), assistant("Hello there.")]
    assert request | {"request_id": ""} == {
        "type": "llm_request",
        "request_id": "",
        "model": "m",
        "messages": [user("hi")],
        "tools": parties.tools,
        "system": "You are a test. Be brief.",
    }


async def test_a_tool_is_called_and_the_text_before_is_kept(tmp_path: Path) -> None:
    first = [{"TextDelta": "I look."}, *call("look", '{"at": 1}'), "Done"]
    async with agent(tmp_path, first, said("Seen.")) as parties:
        assert await parties.ask("look") == "Seen."
        await parties.until(lambda: parties.deltas() == "I look.Seen.")
        [request] = parties.payloads(EXECUTE)
    call_id = parties.on_the_bus("c1")
    assert re.fullmatch("call_[0-9a-f]{32}", call_id)
    assert request == {"type": "tool_execute_request", "call_id": call_id, "tool_name": "look", "arguments": {"at": 1}}
    before = [user("look"), assistant("I look."), called(("c1", "look", {"at": 1})), result("c1", "look done")]
    assert parties.payloads(PROVIDER)[1]["messages"] == before
    assert parties.history["default", "s"] == [*before, assistant("Seen.")]


async def test_tools_are_called_at_once_and_each_call_has_its_result(tmp_path: Path) -> None:
    names = [f"tool{n}" for n in range(5)]
    events = [event for n, name in enumerate(names) for event in call(name, call_id=f"c{n}")]
    async with agent(tmp_path, [*events, "Done"], said("All done."), silent=names) as parties:
        parties.say("go")
        await parties.asked(EXECUTE, 5)
        for n in (3, 0, 4, 1, 2):
            parties.answer_call(f"c{n}", f"r{n}", is_error=n == 3)
        assert await parties.final() == "All done."
    calls = called(*((f"c{n}", name, {}) for n, name in enumerate(names)))
    results = [result(f"c{n}", f"r{n}", n == 3) for n in range(5)]
    assert parties.payloads(PROVIDER)[1]["messages"] == [user("go"), calls, *results]


@pytest.mark.parametrize("arguments", ['{"a": ', "{'a': 1}", "[1]", '"text"', "{} trailing"])
async def test_arguments_that_are_no_object_go_back_to_the_model(tmp_path: Path, arguments: str) -> None:
    first = [*call("look", arguments), *call("see", call_id="c2"), "Done"]
    async with agent(tmp_path, first, said("Sorry.")) as parties:
        assert await parties.ask("look") == "Sorry."
        assert [request["tool_name"] for request in parties.payloads(EXECUTE)] == ["see"]
    bad, good = parties.payloads(PROVIDER)[1]["messages"][-2:]
    assert good == result("c2", "see done")
    assert bad["content"]["call_id"] == "c1"
    assert bad["content"]["is_error"]
    assert arguments.strip() in bad["content"]["content"]


async def test_when_no_call_can_be_run_the_model_is_asked_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path, [*call("look", "?"), "Done"], said("Sorry.")) as parties:
        assert await parties.ask("look") == "Sorry."
        assert not parties.seen[EXECUTE]


@pytest.mark.parametrize("arguments", ["", "null", " {} "])
async def test_no_arguments_are_an_empty_object(tmp_path: Path, arguments: str) -> None:
    async with agent(tmp_path, [*call("look", arguments), "Done"], said("Seen.")) as parties:
        assert await parties.ask("look") == "Seen."
        assert parties.payloads(EXECUTE)[0]["arguments"] == {}


async def test_a_call_that_was_cut_off_is_not_run(tmp_path: Path) -> None:
    start = {"ToolCallStart": {"id": "c1", "name": "look"}}
    async with agent(tmp_path, [start, "Done"], said("Sorry.")) as parties:
        assert await parties.ask("look") == "Sorry."
        assert not parties.seen[EXECUTE]
    assert "missing" in parties.payloads(PROVIDER)[1]["messages"][-1]["content"]["content"]


async def test_calls_with_the_same_or_no_id_get_ids_of_their_own(tmp_path: Path) -> None:
    first = [*call("a", call_id="x"), *call("b", call_id="x"), *call("c", call_id=""), *call("d", call_id=""), "Done"]
    async with agent(tmp_path, first, said("Done.")) as parties:
        assert await parties.ask("go") == "Done."
    ids = [request["call_id"] for request in parties.payloads(EXECUTE)]
    assert len(set(ids)) == 4
    assert all(re.fullmatch("call_[0-9a-f]{32}", each) for each in ids)
    results = parties.payloads(PROVIDER)[1]["messages"][2:]
    assert [r["content"]["content"] for r in results] == ["a done", "b done", "c done", "d done"]
    told = [r["content"]["call_id"] for r in results]
    assert told[0] == "x"
    assert len(set(told)) == 4
    assert not set(told) & set(ids)


async def test_two_sessions_may_use_the_same_call_id(tmp_path: Path) -> None:
    script = [[*call("look"), "Done"], [*call("look"), "Done"], said("Seen.")]
    async with agent(tmp_path, *script, silent=["look"]) as parties:
        parties.say("one", "s1")
        await parties.asked(EXECUTE)
        parties.say("two", "s2")
        await parties.asked(EXECUTE, 2)
        one, two = (request["call_id"] for request in parties.payloads(EXECUTE))
        assert one != two
        parties.answer_call(two, "for two")
        assert await parties.final("s2") == "Seen."
        parties.answer_call(one, "for one")
        assert await parties.final("s1") == "Seen."
    contents = {s: parties.history["default", s][2]["content"]["content"] for s in ("s1", "s2")}
    assert contents == {"s1": "for one", "s2": "for two"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (["Done"], "empty answer"),
        ([{"TextDelta": ""}, {"TextDelta": " \n"}, "Done"], "empty answer"),
        ([{"ReasoningDelta": "hm"}, {"Usage": {"input_tokens": 1, "output_tokens": 2}}, "Done"], "empty answer"),
        ([{"Error": "429: slow down"}], "LLM error: 429: slow down"),
        ([{"TextDelta": "Well"}, {"Error": "gone"}], "LLM error: gone"),
        ([*call("look"), {"Error": "gone"}], "LLM error: gone"),
    ],
)
async def test_a_model_that_says_nothing_or_fails_is_answered_for(tmp_path: Path, answer: Any, words: str) -> None:
    async with agent(tmp_path, answer) as parties:
        assert words in await parties.ask("hi")


async def test_what_a_model_said_before_it_failed_is_kept(tmp_path: Path) -> None:
    async with agent(tmp_path, [{"TextDelta": "Well"}, {"Error": "gone"}]) as parties:
        await parties.ask("hi")
        await parties.asked("session.v1.append")
    assert parties.history["default", "s"] == [user("hi"), assistant("Well")]


async def test_two_thousand_deltas_are_all_there(tmp_path: Path) -> None:
    tokens = [f"{n} " for n in range(2000)]
    async with agent(tmp_path, [*({"TextDelta": token} for token in tokens), "Done"]) as parties:
        assert await parties.ask("count") == "".join(tokens)
        await parties.until(lambda: parties.deltas() == "".join(tokens))


async def test_arguments_in_many_pieces_are_all_there(tmp_path: Path) -> None:
    text = "x" * 3000
    start, _, _, end = call("look")
    pieces = [{"ToolCallDelta": {"id": "c1", "args_delta": piece}} for piece in ['{"text": "', *text, '"}']]
    async with agent(tmp_path, [start, *pieces, end, "Done"], said("Seen.")) as parties:
        assert await parties.ask("look") == "Seen."
        assert parties.payloads(EXECUTE)[0]["arguments"] == {"text": text}


@pytest.mark.parametrize("limit", [2, 25])
async def test_an_endless_loop_of_calls_ends(tmp_path: Path, limit: int) -> None:
    config = {} if limit == 25 else {"max_iterations": limit}
    async with agent(tmp_path, [*call("look"), "Done"], config=config) as parties:
        assert f"maximum of {limit} iterations" in await parties.ask("go")
        assert len(parties.seen[EXECUTE]) == len(parties.seen[PROVIDER]) == limit


async def test_an_answer_without_end_is_stopped(tmp_path: Path) -> None:
    async with agent(tmp_path, [{"TextDelta": "x" * 100}] * 60, config={"max_response_bytes": 1000}) as parties:
        assert "max_response_bytes" in await parties.ask("go")
        await parties.asked(CANCEL_PROVIDER)


async def test_an_answer_that_takes_too_long_is_stopped_though_tokens_come(tmp_path: Path) -> None:
    async with agent(tmp_path, [{"TextDelta": "x"}] * 10, config={"generation_timeout_secs": 0}) as parties:
        assert "generation_timeout_secs" in await parties.ask("go")
        await parties.asked(CANCEL_PROVIDER)


async def test_an_answer_that_fits_into_no_event_is_shortened(tmp_path: Path) -> None:
    long = [{"TextDelta": "x" * 500_000}] * 3
    async with agent(tmp_path, [*long, "Done"], config={"max_response_bytes": 10_000_000}) as parties:
        assert (await parties.ask("go")).endswith("[The beginning of 1500000 bytes.]")


async def test_a_long_result_is_cut_for_the_model(tmp_path: Path) -> None:
    async with agent(tmp_path, [*call("look"), "Done"], said("Seen."), config={"max_result_bytes": 10}) as parties:
        parties.tool = lambda request: "x" * 100
        assert await parties.ask("look") == "Seen."
    content = parties.payloads(PROVIDER)[1]["messages"][-1]["content"]["content"]
    assert content == "x" * 10 + "\n[The first 10 of 100 bytes.]"


# Parties that are silent, missing, or fail.

SILENCES = [
    (GET, {"session_timeout_ms": 20}, "session capsule did not answer within 20 ms"),
    (BUILD, {}, "identity_timeout_secs"),
    (ASSEMBLE, {}, "identity_timeout_secs"),
    ("registry.v1.get_active_model", {"registry_timeout_ms": 20}, "No model is selected"),
    (PROVIDER, {}, "streaming_timeout_secs"),
    ("look", {}, "tool_timeout_secs"),
]


@pytest.mark.parametrize(("topic", "config", "words"), SILENCES)
async def test_silence_in_each_phase_ends_the_turn(
    tmp_path: Path, topic: str, config: dict[str, Any], words: str
) -> None:
    """With timeouts of 0 seconds it is overdue when the watchdog looks for the first time."""
    timeouts = dict.fromkeys(ALL_TIMEOUTS, 0)
    async with agent(tmp_path, [*call("look"), "Done"], silent=[topic], config={**timeouts, **config}) as parties:
        parties.say("hi")
        await parties.asked(EXECUTE if topic == "look" else topic)
        if not config:
            await parties.tick()
        assert words in await parties.final()
        for cancels, of in ((CANCEL_PROVIDER, PROVIDER), (CANCEL_TOOLS, "look")):
            if topic == of:
                await parties.asked(cancels)
            assert len(parties.seen[cancels]) == (topic == of)


@pytest.mark.parametrize(("topic", "config", "words"), SILENCES)
async def test_the_next_prompt_is_answered_after_silence(
    tmp_path: Path, topic: str, config: dict[str, Any], words: str
) -> None:
    timeouts = dict.fromkeys(ALL_TIMEOUTS, 0)
    script = [[*call("look"), "Done"], said("Again.")] if topic == "look" else [said("Again.")]
    async with agent(tmp_path, *script, silent=[topic], config={**timeouts, **config}) as parties:
        parties.say("hi")
        await parties.asked(EXECUTE if topic == "look" else topic)
        if not config:
            await parties.tick()
        await parties.final()
        parties.silent.clear()
        assert await parties.ask("hi again") == "Again."


async def test_without_any_other_capsule_a_prompt_is_answered_at_once(tmp_path: Path) -> None:
    async with open_host([REACT], state_dir=":memory:", workspace=tmp_path) as host:
        async with host.subscribe("agent.v1.response") as finals:
            host.publish("user.v1.prompt", {"type": "user_input", "text": "hi", "session_id": "s"})
            with trio.fail_after(1):
                final = (await finals.__anext__()).payload
    assert final["is_final"]
    assert "no session capsule is loaded" in final["text"]


async def test_a_provider_that_is_not_loaded_is_told_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path) as parties:
        parties.selected = {"id": "m", "request_topic": "llm.v1.request.generate.absent"}
        assert "no capsule handles llm.v1.request.generate.absent" in await parties.ask("hi")
        parties.selected = {"id": "m", "request_topic": PROVIDER}
        assert await parties.ask("hi") == "Hello."


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (GET, "trap"),
        (BUILD, "The system prompt did not come: broken: trap"),
        (ASSEMBLE, "The assembled prompt did not come: broken: trap"),
        (PROVIDER, "LLM error: broken: trap"),
    ],
)
async def test_a_party_that_crashes_ends_the_turn_at_once(tmp_path: Path, topic: str, words: str) -> None:
    capsule(tmp_path / "c", "broken", Guest().handles("(unreachable)"), {topic: "act"})
    async with agent(tmp_path, silent=[topic], capsules=[REACT, tmp_path / "c"]) as parties:
        assert words in await parties.ask("hi")


async def test_a_prompt_builder_may_say_what_is_wrong_without_saying_about_what(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[ASSEMBLE]) as parties:
        parties.say("hi")
        await parties.asked(ASSEMBLE)
        parties.host.publish("prompt_builder.v1.response.assemble", {"error": "bad request"})
        assert await parties.final() == "The prompt could not be assembled: bad request"


async def test_a_request_that_is_too_large_is_said(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[ASSEMBLE]) as parties:
        parties.say("x" * 600_000)
        asked = await parties.asked(ASSEMBLE)
        answer = {"request_id": asked["request_id"], "session_id": "s", "system_prompt": "y" * 600_000}
        parties.host.publish("prompt_builder.v1.response.assemble", answer)
        assert "could not be asked" in await parties.final()


async def test_a_call_that_cannot_be_published_is_answered_for(tmp_path: Path) -> None:
    pieces = [{"ToolCallDelta": {"id": "c1", "args_delta": piece}} for piece in ['{"a":"', *["x" * 400_000] * 3, '"}']]
    start, *_, end = call("look")
    config = {"max_response_bytes": 10_000_000, "session_timeout_ms": 50}
    async with agent(tmp_path, [start, *pieces, end, "Done"], said("Sorry."), config=config) as parties:
        await parties.ask("look")
        assert not parties.seen[EXECUTE]
