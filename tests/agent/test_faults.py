"""One tool call, and everything that can go wrong on its way: each party of a turn fails in each manner at each step of it.

The call always gets exactly one result and the turn exactly one final answer: at once where the failure is reported, and within
the loop's time where it is not. Its time is over here when the watchdog looks, for it is set to nothing; so a turn that nobody
gives a look must end without. In the end the next prompt of the same session is answered, and its history is whole.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import trio
import trio.testing
from guests_in_wat import Guest, capsule, next_of, spin
from openai_server import Script, by_results, calls, drops, fails_within, refuses, says, sends
from turn_parties import ALL, JUNK, OPEN, REACHED, Conversation, conversation, gate

from astrid_host import BUNDLED
from astrid_host.listening import HostSubscription

COUNT = ("word_count", {"text": "a b c"})
GENERATE = "llm.v1.request.generate.openai-compat"
CALLED, RETURNED = "tool.v1.execute.word_count", "tool.v1.execute.word_count.result"
NO_TIME = {
    **dict.fromkeys(("identity_timeout_secs", "streaming_timeout_secs", "tool_timeout_secs"), 0),
    "session_timeout_ms": 300,
    "registry_timeout_ms": 300,
    "llm_provider_topic": GENERATE,
    "llm_provider_model": "test",
}
CONFIG: dict[str, dict[str, Any]] = {"react": NO_TIME, "gatekeeper": {"approval": "never"}}
FIRST = "user.v1.prompt"
# The steps of a turn with a call: the topics, in order.
STEPS = (
    FIRST,
    "session.v1.request.get_messages",
    "spark.v1.request.build",
    "spark.v1.response.ready",
    "prompt_builder.v1.assemble",
    "prompt_builder.v1.response.assemble",
    GENERATE,
    "llm.v1.stream.openai-compat",
    "tool.v1.request.execute",
    CALLED,
    RETURNED,
    "tool.v1.execute.result",
)
# Who fails, and where it is asked for its part.
PARTIES = {
    "session": "session.v1.request.get_messages",
    "identity": "spark.v1.request.build",
    "registry": "registry.v1.get_active_model",
    "prompt-builder": "prompt_builder.v1.assemble",
    "openai-compat": GENERATE,
    "router": "tool.v1.request.execute",
    "gatekeeper": "tool.v1.execute.*",
    "word-tools": CALLED,
    "dead-letter": "astrid.v1.dispatch.failed.tool.v1.execute.*",
}
# Up to where who is unloaded would be missed: after that, it has done its part.
MISSED = {
    "registry": "spark.v1.response.ready",
    "session": "tool.v1.execute.result",
    "identity": "spark.v1.response.ready",
    "prompt-builder": "prompt_builder.v1.response.assemble",
    "openai-compat": "tool.v1.execute.result",
    "router": "tool.v1.execute.result",
    "gatekeeper": RETURNED,
    "word-tools": RETURNED,
    "dead-letter": FIRST,
}
HOWS = ("trap", "deny", "spin", "silent", "half", "flood")
MANY = 500
SAYS = {
    "session": "session.v1.response.get_messages.junk",
    "identity": "spark.v1.response.ready",
    "registry": "registry.v1.response.get_active_model",
    "prompt-builder": "prompt_builder.v1.response.assemble",
    "openai-compat": "llm.v1.stream.openai-compat",
    "router": "tool.v1.execute.result",
    "gatekeeper": RETURNED,
    "word-tools": RETURNED,
    "dead-letter": RETURNED,
}
JUNK_RESULT = {"call_id": JUNK, "result": {"call_id": JUNK, "content": "", "is_error": False}}
JUNK_EVENTS: dict[str, Any] = {
    "session.v1.request.get_messages": {"session_id": JUNK, "correlation_id": JUNK},
    "spark.v1.request.build": {"session_id": JUNK},
    "spark.v1.response.ready": {"session_id": JUNK, "request_id": JUNK, "prompt": "Obey."},
    "registry.v1.get_active_model": {},
    "prompt_builder.v1.assemble": {"request_id": JUNK, "session_id": JUNK},
    "prompt_builder.v1.response.assemble": {"request_id": JUNK, "session_id": JUNK, "system_prompt": "Obey."},
    GENERATE: {"request_id": 1},
    "llm.v1.stream.openai-compat": {"request_id": JUNK, "event": {"TextDelta": "junk"}},
    CALLED: {"call_id": JUNK, "tool_name": "word_count", "arguments": {"text": "a"}},
    RETURNED: {"type": "tool_execute_result", **JUNK_RESULT},
    "tool.v1.execute.result": {"type": "tool_execute_result", **JUNK_RESULT},
}
FLOODED = ("spark.v1.request.build", "prompt_builder.v1.assemble", GENERATE, "tool.v1.request.execute", RETURNED)
MORE = 70  # than 64, which is what a queue takes from outside


@contextmanager
def told(*what: str) -> Iterator[None]:
    """Say in a failure which row of the table it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(" / ".join(what))
        raise


def misbehaves(guest: Guest, how: str, topic: str = "") -> str:
    """What a guest does in place of its part, after it has said that it was asked. `topic` is where it answers."""
    flood = guest.say(topic or REACHED, '{"session_id":"junk","request_id":"junk","call_id":"junk"}')
    return (
        guest.say(REACHED, "{}")
        + {
            "trap": "(unreachable)",
            "deny": guest.answer("deny", "not today"),
            "spin": spin(),
            "silent": "",
            "swallow": guest.answer("final"),
            "half": guest.say(topic or REACHED, '"half an answer"') + "(unreachable)",
            "flood": f"""(local.set $i (i32.const {MANY}))
          (loop $next {flood} (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
          {guest.say(REACHED, "{}")}""",
        }[how]
    )


def stand_in(place: Path, name: str, how: str) -> Path:
    """A capsule in place of a bundled one: its manifest, and of its handlers the one that misbehaves."""
    manifest = tomllib.loads((Path(BUNDLED) / name / "Capsule.toml").read_text())
    rows = manifest["subscribe"]
    for topic in rows:
        if topic != PARTIES[name]:
            rows[topic] = {"wit": "opaque"}
    manifest["publish"][REACHED] = {"wit": "opaque"}
    manifest["publish"][SAYS[name]] = {"wit": "opaque"}
    manifest["limits"] = {"timeout_secs": 0.1}
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    guest = Guest()
    (folder / "Capsule.toml").write_text(tomli_w.dumps(manifest))
    (folder / f"{name}.wasm").write_bytes(guest.handles(misbehaves(guest, how, SAYS[name])).wasm())
    return folder


def others(name: str) -> list[Path]:
    return [path for path in ALL if path.name != name]


def genuine(place: Path, name: str) -> Path:
    return Path(shutil.copytree(Path(BUNDLED) / name, place / name, dirs_exist_ok=True))


async def reached_and_overdue(talk: Conversation, reached: HostSubscription) -> None:
    """The answer to a prompt whose time is over when the fault has happened."""
    await next_of(reached)
    await talk.tick()
    await talk.final()


@pytest.mark.parametrize("name", PARTIES)
async def test_whoever_fails_the_call_has_one_result_and_the_turn_one_end(name: str, tmp_path: Path) -> None:
    capsules, work = tmp_path / "capsules", tmp_path / "work"
    work.mkdir()
    genuine(capsules, name)
    config = {**CONFIG, "react": {**NO_TIME, "llm_provider_topic": ""}} if name == "registry" else CONFIG
    tool = ("nobody_has_this", {}) if name == "dead-letter" else COUNT
    script = by_results(calls(tool), says("Three."))
    async with conversation(work, script, capsules=[*others(name), capsules], config=config) as talk:
        talk.strict = False  # what a silent party owes nobody else gives
        for how in HOWS:
            with told(name, how):
                stand_in(capsules, name, how)
                await talk.host.reload(name)
                talk.host.publish("registry.v1.active_model_changed", None)  # the loop remembers it
                async with talk.host.subscribe(REACHED) as reached:
                    talk.say("count")
                    if how in ("silent", "flood", "half") or name == "dead-letter":
                        await reached_and_overdue(talk, reached)
                    else:
                        await talk.final()
                    if how == "flood" and name == "registry":
                        await next_of(reached)  # it is over, and the loop will not take more of it for an answer
                await talk.check()
        genuine(capsules, name)
        await talk.host.reload(name)
        assert await talk.ask("count") == "Three."


@pytest.mark.parametrize("step", [step for step in STEPS if step != CALLED])
async def test_whatever_comes_between_the_call_has_one_result_and_the_turn_one_end(step: str, tmp_path: Path) -> None:
    """Something that stands before a party denies the event, or keeps it for itself."""
    capsules, work = tmp_path / "capsules", tmp_path / "work"
    work.mkdir()
    row = {"handler": "act", "guard": True, "priority": 1}
    between = capsule(capsules, "between", Guest().handles(""), {step: row}, [REACHED], {"timeout_secs": 0.1})
    script = by_results(calls(COUNT), says("Three."))
    async with conversation(work, script, capsules=[*ALL, between], config=CONFIG) as talk:
        for how in ("deny", "swallow") if step != FIRST else ("deny",):  # who keeps a prompt has to answer it
            # What a guard stops, those who watch do not see either.
            talk.strict = talk.strict and how != "swallow" and step != "tool.v1.execute.result"
            with told(step, how):
                guest = Guest()
                (between / "between.wasm").write_bytes(guest.handles(misbehaves(guest, how)).wasm())
                await talk.host.reload("between")
                async with talk.host.subscribe(REACHED) as reached:
                    talk.say("count")
                    if how == "swallow" and not step.startswith("session."):
                        await reached_and_overdue(talk, reached)
                    else:
                        await talk.final()
                await talk.check()
        await talk.host.unload("between")
        assert await talk.ask("count") == "Three."


def is_held(talk: Conversation, before: int) -> bool:
    """Whether a gate holds more than it had held before."""
    return talk.reached > before


def held_or_answered(talk: Conversation, before: int) -> bool:
    return is_held(talk, before) or talk.is_answered()


async def held(talk: Conversation, at_first: Callable[[], Awaitable[None]]) -> None:
    """Let everything go on that a gate holds; do something when it holds for the first time."""
    before = talk.reached
    talk.say("count")
    await talk.until(partial(held_or_answered, talk, before))
    assert is_held(talk, before), talk.finals
    await at_first()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_always, talk)
        await talk.final()
        with trio.fail_after(5):
            await talk.until(talk.has_all_results)
        nursery.cancel_scope.cancel()


def step_row(step: str) -> str:
    """A guard for calls of one tool alone would not be asked: a tool's topic is its own."""
    return "tool.v1.execute.*" if step == CALLED else step


def still_to_come(step: str) -> list[str]:
    """Who has something to do at that step or after it."""
    order = list(STEPS)
    return [name for name, last in MISSED.items() if order.index(step) <= order.index(last)]


@pytest.mark.parametrize("step", STEPS)
async def test_whoever_is_unloaded_at_a_step_the_call_has_one_result_and_the_turn_one_end(
    step: str, tmp_path: Path
) -> None:
    guard = gate(tmp_path / "capsules", step_row(step))
    work = tmp_path / "work"
    work.mkdir()
    script = by_results(calls(COUNT), says("Three."))
    config = {**CONFIG, "react": {**NO_TIME, "llm_provider_topic": ""}}
    async with conversation(work, script, capsules=[*ALL, guard], config=config) as talk:
        for name in still_to_come(step):
            with told(step, name):
                await held(talk, partial(talk.host.unload, name))
                await talk.host.reload(name)
        await talk.host.unload("gate")
        assert await talk.ask("count") == "Three."


async def test_a_turn_whose_loop_is_unloaded_at_a_step_ends_once(tmp_path: Path) -> None:
    """The loop ends it before it goes; where the prompt had not come to it, whoever answers in its place does."""
    work = tmp_path / "work"
    work.mkdir()
    guard = gate(tmp_path / "capsules", *(step_row(step) for step in STEPS))
    script = by_results(calls(COUNT), says("Three."))
    async with conversation(work, script, capsules=[*ALL, guard], config=CONFIG) as talk:
        talk.strict = False
        nth = 0
        while await unloaded_at(talk, nth):
            nth += 1
        assert nth > len(STEPS)
        await talk.host.unload("gate")
        while (answer := await talk.ask("count")) != "Three.":  # the host's own watchdog may look in the middle of it
            assert answer.startswith("Request timed out")


async def unloaded_at(talk: Conversation, nth: int) -> bool:
    """Unload the loop when the gate holds something for that time, counted from 0; False when it does not hold so often."""
    before = talk.reached
    talk.say("count")
    for n in range(nth + 1):
        await talk.until(partial(held_or_answered, talk, before + n))
        if n < nth:
            talk.host.publish(OPEN, {})
    held_again = not talk.is_answered()
    with told(f"held for the time {nth}"):
        if held_again:
            await talk.host.unload("react")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_always, talk)
                await talk.until(talk.is_answered)
                await talk.host.reload("react")
                nursery.cancel_scope.cancel()
        await talk.final()
    return held_again


async def open_always(talk: Conversation) -> None:
    """Hold nothing any more."""
    while True:
        talk.host.publish(OPEN, {})
        await talk.until(partial(is_held, talk, talk.reached))


@pytest.mark.parametrize("step", FLOODED)
async def test_a_flood_of_everything_at_a_step_changes_nothing(step: str, tmp_path: Path) -> None:
    """More of each event than there is room for, all of it about things that nobody asked for."""
    guard = gate(tmp_path / "capsules", step_row(step))
    work = tmp_path / "work"
    work.mkdir()

    async def flood() -> None:
        for topic, payload in JUNK_EVENTS.items():
            if topic != step:
                for _ in range(MORE):
                    talk.host.publish(topic, payload)
            await trio.lowlevel.checkpoint()
        for n in range(MORE):
            request = {"call_id": f"flooded {n}", "tool_name": "word_count", "arguments": {"text": "a"}}
            talk.host.publish("tool.v1.request.execute", request)

    script = by_results(calls(COUNT), says("Three."))
    config = {**CONFIG, "react": {}}
    async with conversation(work, script, capsules=[*ALL, guard], config=config, floods=True) as talk:
        await held(talk, flood)
        assert list(talk.finals.values()) == [["Three."]]
        await talk.host.unload("gate")


async def test_more_prompts_than_there_is_room_for_are_each_answered(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("Hello.")) as talk:
        for n in range(200):
            talk.say(f"{n}")
        with trio.fail_after(5):
            await talk.until(talk.is_answered)
        answers = talk.finals["default", "s"]
    assert answers.count("Hello.") == 9  # one turn, and those that may wait for it
    assert sum("Try again" in answer for answer in answers) == 191


SERVER: dict[str, Script] = {
    "refuses": refuses(500),
    "drops": drops("Let me"),
    "drops before it speaks": drops(),
    "fails": fails_within("Let me"),
    "says nonsense": sends(b"data: [1]\n\n"),
}


@pytest.mark.parametrize("how", SERVER)
async def test_a_server_that_fails_before_or_after_the_call_ends_the_turn(how: str, tmp_path: Path) -> None:
    config = {**CONFIG, "react": {}, "openai-compat": {"max_retries": 0}}
    async with conversation(tmp_path, says(), config=config) as talk:
        before, after = SERVER[how], by_results(calls(COUNT), SERVER[how])
        for plays in (before, after):
            talk.script(plays)
            assert "LLM error" in await talk.ask("count")
            talk.script(by_results(calls(COUNT), says("Three.")))
            assert await talk.ask("count") == "Three."
