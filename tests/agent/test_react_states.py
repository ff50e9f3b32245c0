"""Whatever stands where the loop keeps its turns, each prompt ends in one final answer, and its session goes on.

Real states are taken from a loop at work, and planted for many sessions at once: cut at each place, changed at random, and as
older versions wrote them.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from react_parties import PROVIDER, Parties, agent, call, said

from astrid_host.stores import Stores

KEPT = "default:capsule:react"
EXECUTE = "tool.v1.request.execute"
AT_ONCE = {"identity_timeout_secs": 0, "streaming_timeout_secs": 0, "tool_timeout_secs": 0}
# What an older version kept of a model's calls: JSON by grammar, and no value.
BAD = ('{"text":"cut \\ud83d"}', '{"n":1e400}', '{"n":' + "[" * 130 + "]" * 130 + "}", "[1]", "7")

State = Mapping[str, bytes]


def kept_in(place: Path, copy: Path) -> State:
    """What the loop keeps in a state folder whose host runs."""
    shutil.copytree(place, copy)
    with closing(Stores(copy)) as stores:
        keys = stores.kv.list_keys(KEPT, "react.", 1000)
        return {key: stores.kv.get(KEPT, key) or b"" for key in keys if key != "react.host"}


async def at_work(tmp_path: Path) -> list[tuple[str, State]]:
    """The states of a loop that waits for a tool, for a model that has begun to speak, and for its system prompt."""
    place, found = tmp_path / "work", []
    first = [{"TextDelta": "I look."}, *call("look", '{"at":1}'), *call("see", "{", call_id="c2"), "Done"]
    async with agent(tmp_path, first, said("Done."), silent=["look"], state_dir=place) as parties:
        parties.say("go", "aaaa")
        await parties.asked(EXECUTE)
        parties.say("and then?", "aaaa")
        await parties.tick()
        found.append(("tools", kept_in(place, tmp_path / "tools")))
        parties.silent.add(PROVIDER)
        parties.say("go", "bbbb")
        await parties.asked(PROVIDER, 2)
        await parties.stream(parties.payloads(PROVIDER)[-1]["request_id"], [{"TextDelta": "Well"}] * 3)
        await parties.tick()
        found.append(("streaming", kept_in(place, tmp_path / "streaming")))
        parties.silent.add("spark.v1.request.build")
        parties.say("go", "cccc")
        await parties.tick()
        found.append(("identity", kept_in(place, tmp_path / "identity")))
        for session in ("aaaa", "aaaa", "bbbb", "cccc"):
            parties.cancel(session)
            await parties.final(session)
    return [("aaaa", found[0][1]), ("bbbb", found[1][1]), ("cccc", found[2][1])]


def variants(session: str, state: State) -> Iterator[State]:
    """The state of one session with one value of it cut, changed, or as an older version may have kept it."""
    turn = state[f"react.turn.{session}"]
    parts = turn.decode().partition('"request_id":"')[2]
    request_id = parts.partition('"')[0]
    own = {key: value for key, value in state.items() if session in key or request_id in key}
    chance = random.Random(7)
    for key, value in own.items():
        for end in {*range(0, len(value), max(1, len(value) // 12)), len(value) - 1}:
            yield {**own, key: value[:end]}
        for _ in range(8):
            at = chance.randrange(len(value))
            other = bytes([chance.choice(b'0123456789"{}[],:x\\\x00\xff')])
            yield {**own, key: value[:at] + other + value[at + 1 :]}
            yield {**own, key: value[:at] + value[at + chance.randrange(9) :]}
        yield {**own, key: b"null"}
        yield {**own, key: b'{"version":1}'}
        yield {other: kept for other, kept in own.items() if other != key or key.startswith("react.turn.")}
    for bad in BAD:
        yield {key: value.replace(b'{"at":1}', bad.encode()) for key, value in own.items()}
    for word in (b'"sealed":', b'"bytes":', b'"entered_ms":', b'"last_ms":', b'"iteration":', b'"attempts":'):
        for number in (b"4294967295", b"18446744073709551615"):
            yield {key: value.replace(word, word + number + b',"before":') for key, value in own.items()}
    yield {**own, f"react.turn.{session}": turn.replace(session.encode(), b"another")}


def planted(state: State, session: str, request_ids: dict[str, str], new: str) -> State:
    def renamed(text: bytes) -> bytes:
        text = text.replace(session.encode(), new.encode())
        for old, fresh in request_ids.items():
            text = text.replace(old.encode(), fresh.encode())
        return text

    return {renamed(key.encode()).decode(): renamed(value) for key, value in state.items()}


async def quiet(parties: Parties) -> None:
    """Until the watchdog has looked several times and no session had another final answer."""
    seen, same = -1, 0
    while same < 5:
        await parties.tick()
        count = len(parties.seen["agent.v1.response"])
        same = same + 1 if count == seen else 0
        seen = count


@pytest.mark.parametrize("which", [0, 1, 2], ids=["tools", "streaming", "identity"])
async def test_whatever_was_kept_of_a_turn_it_ends_once_and_its_session_goes_on(tmp_path: Path, which: int) -> None:
    session, state = (await at_work(tmp_path))[which]
    place = tmp_path / "planted"
    expected: list[str] = []
    with closing(Stores(place)) as stores:
        for n, variant in enumerate(variants(session, state)):
            new = f"s{n:03}"
            request_id = state[f"react.turn.{session}"].decode().partition('"request_id":"')[2][:36]
            for key, value in planted(variant, session, {request_id: str(uuid.UUID(int=n))}, new).items():
                stores.kv.set(KEPT, key, value)
            expected.append(new)
    config: dict[str, Any] = {**AT_ONCE}
    async with agent(tmp_path, said("Hello."), state_dir=place, config=config) as parties:
        with trio.fail_after(60):
            for _ in range(8):  # what cannot be published at once is tried again, and a prompt that waited has its turn
                await parties.tick()
            await parties.until(lambda: all(parties.finals(new) for new in expected))
            for _ in range(2):  # also after the watchdog has looked once more
                await quiet(parties)
                for new in expected:
                    given = parties.finals(new)
                    # In a session that had a prompt waiting, that one is answered too where it can be read.
                    assert 1 <= len(given) <= (2 if which == 0 else 1), (new, given)
        if which:
            parties.prompts.update({("default", new): 1 for new in expected})
    assert len(expected) >= 40


async def test_a_session_whose_state_was_broken_answers_the_next_prompt(tmp_path: Path) -> None:
    place = tmp_path / "state"
    with closing(Stores(place)) as stores:
        for n, text in enumerate((b"", b"{", b"null", b"[]", b'{"version":1,"session_id":"s', b"\xff\xfe")):
            stores.kv.set(KEPT, f"react.turn.s{n}", text)
            stores.kv.set(KEPT, f"react.queue.s{n}", text)
            stores.kv.set(KEPT, f"react.context.s{n}", text)
    async with agent(tmp_path, said("Hello."), state_dir=place) as parties:
        await parties.tick()
        for n in range(6):
            before = len(parties.finals(f"s{n}"))
            assert before >= 1
            parties.say("hi", f"s{n}")
            while len(parties.finals(f"s{n}")) == before:
                await parties.tick()
            assert parties.finals(f"s{n}")[-1] == "Hello."
            parties.prompts["default", f"s{n}"] = before + 1
