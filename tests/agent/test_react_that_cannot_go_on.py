"""The loop of an agent: prompts that cannot be read, turns that another host left, and how programs hear of a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import next_of
from messages import user
from react_parties import PROVIDER, agent, call, said

from astrid_host.announcer import Announcer

BUILD = "spark.v1.request.build"
EXECUTE = "tool.v1.request.execute"
LOADED = "astrid.v1.capsules_loaded"
TURN_FAILED = "agent.v1.event.turn_failed"
DEFAULT_PROVIDER = "llm.v1.request.generate.openai-compat"
QUICK = {"registry_timeout_ms": 20}


# Prompts that cannot be read.


@pytest.mark.parametrize(
    ("payload", "session", "why"),
    [
        ({"text": 7, "session_id": "s"}, "s", "its text is no string"),
        ({"text": ["hi"], "session_id": None}, "default", "its text is no string"),
        ({"text": "hi", "session_id": 7}, "default", "its session_id is no string"),
        ("hi", "default", "it is no object"),
        (["hi"], "default", "it is no object"),
        (None, "default", "it is no object"),
    ],
)
async def test_a_prompt_that_cannot_be_read_is_answered(tmp_path: Path, payload: Any, session: str, why: str) -> None:
    async with agent(tmp_path) as parties:
        parties.prompts["default", session] += 1
        parties.host.publish("user.v1.prompt", payload)
        assert await parties.final(session) == f"The prompt cannot be read: {why}."


async def test_null_in_a_prompt_is_the_same_as_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path) as parties:
        parties.prompts["default", "default"] = 2
        parties.host.publish("user.v1.prompt", {"text": "hi", "session_id": None, "context": None})
        assert await parties.final("default") == "Hello."
        parties.host.publish("user.v1.prompt", {"text": None})
        assert await parties.final("default") == "The prompt is empty."


# Another host.


@pytest.mark.parametrize("phase", [BUILD, PROVIDER, EXECUTE])
async def test_a_turn_that_another_host_left_ends_and_prompts_that_waited_go_on(
    tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(*_: Any) -> None:
        """The host says which one it is before the parties of this test are there: they say it instead."""

    monkeypatch.setattr(Announcer, "_tell_loaded", later)
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    silent = ["look" if phase == EXECUTE else phase]
    async with agent(work, [*call("look"), "Done"], silent=silent, state_dir=state) as parties:
        parties.host.publish(LOADED, {"status": "ready", "host": "one"})
        parties.say("a")
        parties.say("b")
        await parties.asked(phase)
        await parties.tick()
        parties.prompts.clear()
    async with agent(work, state_dir=state) as parties:
        parties.prompts["default", "s"] = 2
        parties.host.publish(LOADED, {"status": "ready", "host": "two"})
        assert await parties.final() == "The host stopped during this turn."
        assert await parties.final() == "Hello."
        assert user("b") in parties.history["default", "s"]


async def test_a_turn_of_the_host_that_runs_goes_on_when_that_host_says_which_it_is(tmp_path: Path) -> None:
    async with agent(tmp_path, silent=[BUILD]) as parties:
        parties.host.publish(LOADED, {"status": "ready", "host": "one"})
        parties.say("a")
        asked = await parties.asked(BUILD)
        payloads: list[Any] = [{"host": "two"}, {"host": "two"}, {"host": None}, {}, [], {"host": "three"}]
        for payload in payloads:
            parties.host.publish(LOADED, payload)
        await parties.tick()
        assert parties.finals() == []
        parties.host.publish("spark.v1.response.ready", {"prompt": "P.", "session_id": asked["session_id"]})
        assert await parties.final() == "Hello."


# How programs hear of it.


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        ([{"Error": "overloaded"}], "LLM error: overloaded"),
        (["Done"], "The model returned an empty answer. Try again, or say it differently."),
        (
            [*call("look"), "Done"],
            "Stopped: the maximum of 1 iterations was reached before the model came to an answer (react.max_iterations).",
        ),
    ],
)
async def test_a_turn_that_failed_is_told_before_its_final_answer(
    tmp_path: Path, answer: list[Any], final: str
) -> None:
    async with agent(tmp_path, answer, config={"max_iterations": 1}) as parties:
        async with parties.host.subscribe("agent.v1.*", principal="alice") as events:
            assert await parties.ask("hi", who="alice") == final
            failure, last = [await next_of(events) for _ in range(2)]
    assert (failure.topic, failure.payload) == (TURN_FAILED, {"session_id": "s", "reason": final})
    assert (last.topic, last.payload["text"]) == ("agent.v1.response", final)


async def test_answers_and_cancelled_turns_are_no_failures(tmp_path: Path) -> None:
    async with agent(tmp_path, said("Hello.")) as parties, parties.host.subscribe(TURN_FAILED) as failures:
        assert await parties.ask("hi") == "Hello."
        parties.silent.add(BUILD)
        parties.say("hi")
        await parties.asked(BUILD, 2)
        parties.cancel()
        assert await parties.final() == "Cancelled."
        assert await parties.ask("", "other") == "The prompt is empty."
        assert (await next_of(failures)).payload == {"session_id": "other", "reason": "The prompt is empty."}


# Without a model.


@pytest.mark.parametrize("selected", [None, {"id": "m"}, {"id": "m", "request_topic": "user.v1.prompt"}, "m"])
async def test_without_a_model_the_answer_says_what_to_do(tmp_path: Path, selected: Any) -> None:
    async with agent(tmp_path, config=QUICK) as parties:
        parties.selected = selected
        told = await parties.ask("hi")
    assert told.startswith("No model is selected.")
    assert "`astrid-host chat --provider-url URL --model NAME`" in told
    assert "`astrid-host config set openai-compat.model NAME`" in told


async def test_what_keeps_a_provider_from_telling_of_a_model_is_said(tmp_path: Path) -> None:
    problem = "registry.v1.response.problem"
    async with agent(tmp_path, silent=["registry.v1.get_active_model"]) as parties:
        parties.say("hi")
        await parties.asked("registry.v1.get_active_model")
        parties.host.publish(problem, {"problem": "http://here:1 is off."})
        parties.host.publish("registry.v1.response.get_active_model", None)
        assert (await parties.final()).startswith("No model is selected. http://here:1 is off. Give one: ")


@pytest.mark.parametrize("wanted", ["m:70b", "openai-compat:m:70b"])
async def test_a_model_that_the_prompt_names_is_asked_though_none_is_selected(tmp_path: Path, wanted: str) -> None:
    async with agent(tmp_path) as parties, parties.host.subscribe(DEFAULT_PROVIDER) as requests:
        parties.selected = None
        parties.say("hi", model=wanted)
        request = (await next_of(requests)).payload
        assert request["model"] == "m:70b"
        await parties.stream(request["request_id"], [{"Error": "http://here:1 is off."}])
        assert await parties.final() == "LLM error: http://here:1 is off."


async def test_a_selection_of_an_earlier_host_is_not_believed(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    models = []
    for model in ("given.for.one.run", "m"):
        async with agent(work, state_dir=state) as parties:
            parties.selected = {"id": model, "request_topic": PROVIDER}
            assert await parties.ask("hi") == "Hello."
            models += [request["model"] for request in parties.payloads(PROVIDER)]
    assert models == ["given.for.one.run", "m"]
