"""The loop of an agent: cancelled turns, prompts that meet, models that are chosen, and what changes while a turn runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import FAILED
from messages import assistant, called, result, user
from react_parties import PROVIDER, STREAM, Parties, agent, call, said

EXECUTE = "tool.v1.request.execute"
CANCEL_TOOLS = "tool.v1.request.cancel"
CANCEL_PROVIDER = "llm.v1.request.cancel.scripted"
ASSEMBLE = "prompt_builder.v1.assemble"
BUILD = "spark.v1.request.build"
GET = "session.v1.request.get_messages"
ALL_TIMEOUTS = ("identity_timeout_secs", "streaming_timeout_secs", "tool_timeout_secs")


# What models say.


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
            assert await parties.asked(CANCEL_TOOLS) == {
                "type": "tool_cancel_request",
                "call_ids": [parties.on_the_bus("c1")],
            }


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
        assert (await parties.asked(CANCEL_TOOLS))["call_ids"] == [parties.on_the_bus("c1")]
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
        first = (await parties.asked(EXECUTE))["call_id"]
        parties.cancel()
        await parties.final()
        parties.say("again")
        second = await parties.asked(EXECUTE, 2)
        assert second["call_id"] != first
        parties.answer_call(first, "late")
        parties.answer_call(second["call_id"], "right")
        assert await parties.final() == "Seen."
    assert parties.payloads(PROVIDER)[2]["messages"][-1] == result("c1", "right")


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
        for _ in range(2):
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
