"""The loop of an agent: whatever its parties do, each prompt ends in exactly one final answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import FAILED, Guest, capsule
from react_parties import PROVIDER, REACT, STREAM, Parties, agent, call, said

from astrid_host import open_host

EXECUTE = "tool.v1.request.execute"
CANCEL_TOOLS = "tool.v1.request.cancel"
CANCEL_PROVIDER = "llm.v1.request.cancel.scripted"
ASSEMBLE = "prompt_builder.v1.assemble"
BUILD = "spark.v1.request.build"
GET = "session.v1.request.get_messages"
ALL_TIMEOUTS = ("identity_timeout_secs", "streaming_timeout_secs", "tool_timeout_secs")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def result(call_id: str, content: str, is_error: bool = False) -> dict[str, Any]:
    return {"role": "tool", "content": {"call_id": call_id, "content": content, "is_error": is_error}}


def called(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    return assistant([{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls])


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
    assert request == {"type": "tool_execute_request", "call_id": "c1", "tool_name": "look", "arguments": {"at": 1}}
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
    assert ids[0] == "x"
    assert len(set(ids)) == 4
    assert all(ids)
    results = parties.payloads(PROVIDER)[1]["messages"][2:]
    assert [r["content"]["content"] for r in results] == ["a done", "b done", "c done", "d done"]
    assert [r["content"]["call_id"] for r in results] == ids


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


# Cancelling.


@pytest.mark.parametrize("topic", [BUILD, ASSEMBLE, PROVIDER, "look"])
async def test_a_turn_can_be_cancelled_in_each_phase(tmp_path: Path, topic: str) -> None:
    async with agent(tmp_path, [*call("look"), "Done"], silent=[topic]) as parties:
        parties.say("hi")
        await parties.asked(EXECUTE if topic == "look" else topic)
        parties.cancel()
        assert await parties.final() == "Cancelled."
        if topic == PROVIDER:
            request_id = parties.payloads(PROVIDER)[0]["request_id"]
            assert await parties.asked(CANCEL_PROVIDER) == {"request_id": request_id}
        if topic == "look":
            assert await parties.asked(CANCEL_TOOLS) == {"type": "tool_cancel_request", "call_ids": ["c1"]}


async def test_a_cancelled_stream_is_kept_so_far_and_what_follows_is_ignored(tmp_path: Path) -> None:
    async with agent(tmp_path, [{"TextDelta": "One, "}, {"TextDelta": "two"}]) as parties:
        parties.say("count")
        await parties.until(lambda: parties.deltas() == "One, two")
        parties.cancel()
        assert await parties.final() == "Cancelled."
        await parties.asked("session.v1.append")
        request_id = parties.payloads(PROVIDER)[0]["request_id"]
        await parties.stream(request_id, [{"TextDelta": ", three"}, "Done"])
        await parties.tick()
        await parties.until(lambda: parties.deltas() == "One, two")
        assert parties.history["default", "s"] == [user("count"), assistant("One, two")]


async def test_tools_that_were_cancelled_leave_a_whole_history(tmp_path: Path) -> None:
    first = [*call("look"), *call("see", call_id="c2"), "Done"]
    async with agent(tmp_path, first, said("Again."), silent=["look"]) as parties:
        parties.say("go")
        await parties.asked(EXECUTE, 2)
        await parties.tick()
        parties.cancel()
        assert await parties.final() == "Cancelled."
        assert (await parties.asked(CANCEL_TOOLS))["call_ids"] == ["c1"]
        parties.answer_call("c1", "late")
        await parties.asked("session.v1.append")
        assert await parties.ask("again") == "Again."
    messages = parties.payloads(PROVIDER)[1]["messages"]
    calls = called(("c1", "look", {}), ("c2", "see", {}))
    given_up = result("c1", "The call was given up before it had a result.", True)
    assert messages == [user("go"), calls, given_up, result("c2", "see done"), user("again")]


async def test_a_late_result_is_not_taken_for_that_of_a_later_call_with_the_same_id(tmp_path: Path) -> None:
    async with agent(
        tmp_path, [*call("look"), "Done"], [*call("look"), "Done"], said("Seen."), silent=["look"]
    ) as parties:
        parties.say("go")
        await parties.asked(EXECUTE)
        parties.cancel()
        await parties.final()
        parties.say("again")
        second = await parties.asked(EXECUTE, 2)
        assert second["call_id"] != "c1"
        parties.answer_call("c1", "late")
        parties.answer_call(second["call_id"], "right")
        assert await parties.final() == "Seen."
    assert parties.payloads(PROVIDER)[2]["messages"][-1] == result(second["call_id"], "right")


async def test_to_cancel_where_nothing_runs_does_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path) as parties:
        parties.cancel()
        await parties.tick()
        assert parties.finals() == []


# Several at once.


async def test_a_second_prompt_in_a_session_waits_for_the_first(tmp_path: Path) -> None:
    async with agent(tmp_path, said("One."), said("Two."), said("Three."), silent=[BUILD]) as parties:
        for text in ("a", "b", "c"):
            parties.say(text)
        await parties.asked(BUILD)
        parties.silent.clear()
        parties.host.publish("spark.v1.response.ready", {"prompt": "", "session_id": "s"})
        assert [await parties.final() for _ in range(3)] == ["One.", "Two.", "Three."]
    texts = [message["content"] for message in parties.history["default", "s"]]
    assert texts == ["a", "One.", "b", "Two.", "c", "Three."]


async def test_prompts_beyond_those_that_may_wait_are_refused(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[BUILD], config={"max_queued_prompts": 1}) as parties:
        for text in ("a", "b", "c"):
            parties.say(text)
        assert "1 prompts wait already" in await parties.final()
        parties.cancel()
        assert await parties.final() == "Cancelled."
        await parties.asked(BUILD, 2)
        parties.cancel()
        assert await parties.final() == "Cancelled."


async def test_prompts_that_wait_are_answered_also_when_the_session_is_silent(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[BUILD], config={"session_timeout_ms": 20}) as parties:
        for text in ("a", "b", "c"):
            parties.say(text)
        await parties.asked(BUILD)
        parties.silent.add(GET)
        parties.cancel()
        assert await parties.final() == "Cancelled."
        assert all("did not answer" in text for text in [await parties.final(), await parties.final()])


async def test_sessions_and_principals_do_not_meet(tmp_path: Path) -> None:
    def echo(request: Any) -> str:
        return f"seen by {request['arguments']['who']}"

    wheres = [(who, session) for who in ("alice", "bob") for session in ("s1", "s2", "s3")]
    answered: dict[tuple[str, str], list[str]] = {}

    async def talk(parties: Parties, who: str, session: str) -> None:
        answered[who, session] = [await parties.ask(f"{n}", session, who) for n in range(3)]

    async with agent(tmp_path, [*call("look", '{"who": "x"}'), "Done"], said("unused")) as parties:
        parties.tool = echo
        parties.script = [said("Hello.")]
        async with trio.open_nursery() as nursery:
            for where in wheres:
                nursery.start_soon(talk, parties, *where)
        for who, session in wheres:
            turns = [entry for n in range(3) for entry in (user(f"{n}"), assistant("Hello."))]
            assert parties.history[who, session] == turns
    assert answered == {where: ["Hello."] * 3 for where in wheres}


async def test_foreign_and_late_events_are_ignored(tmp_path: Path) -> None:
    async with agent(tmp_path, [*call("look"), "Done"], said("Seen."), silent=["look"]) as parties:
        parties.say("hi")
        await parties.asked(EXECUTE)
        first = parties.payloads(PROVIDER)[0]["request_id"]
        foreign = "00000000-0000-4000-8000-000000000000"
        for request_id in (first, foreign, "x" * 500):
            await parties.stream(request_id, [{"TextDelta": "?"}, {"Error": "late"}, "Done"])
        parties.host.publish("spark.v1.response.ready", {"prompt": "?", "session_id": "s"})
        parties.host.publish("prompt_builder.v1.response.assemble", {"request_id": first, "session_id": "s"})
        parties.answer_call("c9", "foreign")
        parties.answer_call("c1", "of another principal", who="bob")
        parties.answer_call("c1", "right")
        parties.answer_call("c1", "again")
        assert await parties.final() == "Seen."
        parties.answer_call("c1", "late")
        await parties.until(lambda: parties.deltas() == "Seen.")
    assert parties.payloads(PROVIDER)[1]["messages"][-1] == result("c1", "right")


async def test_an_answer_to_a_request_of_another_turn_is_not_taken(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[BUILD]) as parties:
        parties.say("a")
        asked = await parties.asked(BUILD)
        foreign = {"prompt": "?", "session_id": "s", "request_id": "00000000-0000-4000-8000-000000000000"}
        parties.host.publish("spark.v1.response.ready", foreign)
        parties.host.publish("spark.v1.response.ready", {**foreign, "prompt": "P.", "request_id": asked["request_id"]})
        assert await parties.final() == "Hello."
    assert parties.payloads(PROVIDER)[0]["system"] == "P. Be brief."


# Which model.


@pytest.mark.parametrize(
    ("selected", "wanted", "model"),
    [
        ({"id": "scripted:a", "request_topic": PROVIDER}, None, "a"),
        ({"id": "a:70b", "request_topic": PROVIDER}, None, "a:70b"),
        ({"id": "a", "request_topic": PROVIDER}, "b", "b"),
        ({"request_topic": PROVIDER}, "scripted:b", "b"),
    ],
)
async def test_the_prompts_model_goes_before_the_registrys(
    tmp_path: Path, selected: Any, wanted: str | None, model: str
) -> None:
    async with agent(tmp_path) as parties:
        parties.selected = selected
        for _ in range(2):
            await parties.ask("hi", **({"model": wanted} if wanted else {}))
        assert len(parties.seen["registry.v1.get_active_model"]) == 1
    assert [request["model"] for request in parties.payloads(PROVIDER)] == [model] * 2


@pytest.mark.parametrize("selected", [None, {"id": "m"}, {"id": "m", "request_topic": "user.v1.prompt"}, "m"])
async def test_without_a_model_the_answer_says_what_to_do(tmp_path: Path, selected: Any) -> None:
    async with agent(tmp_path) as parties:
        parties.selected = selected
        assert "No model is selected" in await parties.ask("hi")


async def test_the_operators_provider_needs_no_registry(tmp_path: Path) -> None:
    config = {"llm_provider_topic": PROVIDER, "llm_provider_model": "mine"}
    async with agent(tmp_path, config=config) as parties:
        assert await parties.ask("hi") == "Hello."
        assert await parties.ask("hi", model="other") == "Hello."
        assert not parties.seen["registry.v1.get_active_model"]
    assert [request["model"] for request in parties.payloads(PROVIDER)] == ["mine", "other"]


async def test_a_change_of_the_selection_counts_from_the_next_prompt_on(tmp_path: Path) -> None:
    changed = "registry.v1.active_model_changed"
    async with agent(tmp_path) as parties:
        await parties.ask("hi")
        parties.host.publish(changed, {"id": "other", "request_topic": PROVIDER})
        await parties.ask("hi")
        parties.host.publish(changed, None)
        parties.selected = None
        assert "No model is selected" in await parties.ask("hi")
    assert [request["model"] for request in parties.payloads(PROVIDER)] == ["m", "other"]


# The rest.


async def test_the_prefix_of_the_prompt_builder_reaches_the_model_and_not_the_history(tmp_path: Path) -> None:
    async with agent(tmp_path, [*call("look"), "Done"], said("Seen.")) as parties:
        parties.prefix = "It is Monday."
        assert await parties.ask("look") == "Seen."
    assert [r["messages"][0] for r in parties.payloads(PROVIDER)] == [user("It is Monday.\nlook")] * 2
    assert parties.history["default", "s"][0] == user("look")


async def test_the_time_of_tools_begins_again_when_somebody_answers_a_question(tmp_path: Path) -> None:
    tool = [*call("look"), "Done"]
    async with agent(tmp_path, tool, said("Seen."), silent=["look"], config={"tool_timeout_secs": 1}) as parties:
        parties.say("look")
        await parties.asked(EXECUTE)
        for _ in range(3):
            with trio.move_on_after(0.6):
                await parties.until(lambda: bool(parties.finals()))
            answer = {"type": "approval_response", "request_id": "r", "decision": "approve"}
            parties.host.publish("astrid.v1.approval.response.r", answer)
            await parties.tick()
        assert parties.finals() == []
        parties.answer_call("c1", "right")
        assert await parties.final() == "Seen."


async def test_questions_for_approval_are_not_received_by_the_loop(tmp_path: Path) -> None:
    """A question that nobody receives is denied at once, and the loop is nobody who could answer."""
    async with agent(tmp_path) as parties, parties.host.subscribe(f"{FAILED}astrid.v1.approval") as reports:
        parties.host.publish("astrid.v1.approval", {"type": "approval_required"})
        assert (await reports.__anext__()).payload["reason"] == "no-handler"


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_prompt_is_answered(tmp_path: Path, text: str) -> None:
    async with agent(tmp_path) as parties:
        assert await parties.ask(text) == "The prompt is empty."


async def test_a_session_whose_name_cannot_be_kept_is_answered(tmp_path: Path) -> None:
    async with agent(tmp_path) as parties:
        assert "could not be kept" in await parties.ask("hi", session="x" * 300)


async def test_clearing_a_session_ends_its_turn_and_tells_the_new_session(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[BUILD]) as parties, parties.host.subscribe("session.v1.request.clear") as asked:
        parties.say("a")
        parties.say("b")
        await parties.asked(BUILD)
        parties.host.publish("session.v1.clear", {"session_id": "s"})
        question = (await asked.__anext__()).payload
        answer = {"correlation_id": question["correlation_id"], "old_session_id": "s", "new_session_id": "s2"}
        parties.host.publish(f"session.v1.response.clear.{question['correlation_id']}", answer)
        told = await parties.asked("agent.v1.session_changed")
        assert told == {"old_session_id": "s", "new_session_id": "s2"}
        assert [await parties.final(), await parties.final()][0] == "Cancelled."


async def test_a_turn_goes_on_after_the_loop_was_replaced(tmp_path: Path) -> None:
    async with agent(tmp_path, [*call("look"), "Done"], said("Seen."), silent=["look"]) as parties:
        parties.say("look")
        await parties.asked(EXECUTE)
        await parties.host.reload("react")
        parties.answer_call("c1", "right")
        assert await parties.final() == "Seen."


async def test_lost_events_end_what_may_have_needed_them(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[PROVIDER]) as parties:
        parties.say("hi")
        await parties.asked(PROVIDER)
        parties.host.publish("astrid.v1.event_bus.lagged", {"lagged_count": 3})
        assert "interrupted" in await parties.final()


COMPACT = "context_engine.v1.compact"


async def compacting(parties: Parties, shorten: Callable[[Any], Any]) -> None:
    async with parties.host.subscribe(COMPACT) as asked:
        parties.say("x" * 1000)
        question = (await asked.__anext__()).payload
        answers = shorten(question)
        for answer in answers:
            parties.host.publish("context_engine.v1.response.compact", answer)
        assert await parties.final() == "Hello."


async def test_a_long_conversation_is_shortened_by_a_context_engine(tmp_path: Path) -> None:
    def shorten(question: Any) -> Any:
        assert (question["session_id"], question["max_tokens"], question["target_tokens"]) == ("s", 100, 90)
        other = {"messages": [user("of another question")], "compacted": True, "messages_removed": 1}
        return [other, {"messages": question["messages"][-1:], "compacted": True, "messages_removed": 2}]

    async with agent(tmp_path) as parties:
        parties.selected = {"id": "m", "request_topic": PROVIDER, "context_window": 150, "max_output_tokens": 50}
        parties.history["default", "s"] = [user("old"), assistant("older")]
        await compacting(parties, shorten)
    assert parties.payloads(PROVIDER)[0]["messages"] == [user("x" * 1000)]


async def test_without_a_context_engine_a_long_conversation_goes_on_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path) as parties:
        parties.selected = {"id": "m", "request_topic": PROVIDER, "context_window": 100}
        with trio.fail_after(2):
            assert await parties.ask("x" * 1000) == "Hello."


async def test_a_stream_that_loses_events_ends_the_turn(tmp_path: Path) -> None:
    """What enters from outside has room for 64 events; further ones are lost, and reported."""
    async with agent(tmp_path, silent=[PROVIDER], config={"session_timeout_ms": 500}) as parties:
        parties.say("hi")
        request_id = (await parties.asked(PROVIDER))["request_id"]
        parties.silent.add(GET)
        parties.say("busy", "s2")  # the loop waits for the session, and its queue fills
        await parties.until(lambda: any(e["session_id"] == "s2" for e in parties.payloads(GET)))
        event = {"type": "llm_stream_event", "request_id": request_id, "event": {"TextDelta": "x"}}
        for _ in range(100):
            parties.host.publish(STREAM, event)
        assert "a part of it was lost" in await parties.final()
        assert "did not answer" in await parties.final("s2")
