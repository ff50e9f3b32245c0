"""Servers that speak chat completions loosely, as they are met: one odd field costs no answer, no two calls become one, an
answer that was cut is told as that, and what a server needs back it gets. Each kind has many inputs, all in one host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from openai_server import Asked, Reply, Script, by_results, calls, delta, event, says, sends
from turn_parties import ALL, Conversation, conversation, hanging_tool

NO_QUESTIONS: dict[str, dict[str, Any]] = {"gatekeeper": {"approval": "never"}}
DONE, STOP, CALLED = b"data: [DONE]\n\n", event(delta({}, "stop")), event(delta({}, "tool_calls"))
HELLO = event(delta({"role": "assistant", "content": "hello"}))
TEXT = '{"text":"a b"}'
COUNTED = '{"words":2,"characters":3,"lines":1}'
MISSING = object()


def raw(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


def chunk(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, **fields}]})


def call(name: str = "word_count", arguments: Any = TEXT, **fields: Any) -> dict[str, Any]:
    given = {"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": arguments}, **fields}
    return {key: value for key, value in given.items() if value is not MISSING}


def calling(*lists: list[Any], ending: bytes = CALLED) -> Script:
    """A server that sends these lists of calls, one a chunk, and then says that it is done."""
    return by_results(sends(*(event(delta({"tool_calls": each})) for each in lists), ending, DONE), says("Done."))


# 1. Arguments that cannot be carried.

UNREADABLE = {
    "half a surrogate pair": ('{"text":"cut \\ud83d"}', "surrogate"),
    "the other half": ('{"text":"\\ude00"}', "surrogate"),
    "a half in a key": ('{"\\ud800":1}', "surrogate"),
    "a number beyond a double": ('{"text":"a","n":1e400}', "out of range"),
    "130 levels": ('{"text":"a","n":' + "[" * 130 + "]" * 130 + "}", "levels"),
    "100 levels": ('{"text":"a","n":' + '{"a":' * 100 + "1" + "}" * 101, "levels"),
    "a key twice": ('{"text":"a","text":"b"}', "twice"),
    "NaN": ('{"text":NaN}', "expected"),
    "cut JSON": ('{"text":"a', "EOF"),
    "trailing text": ('{"text":"a"} and so on', "trailing"),
    "JSON in a string": (json.dumps(TEXT), "a string that holds JSON"),
    "a list": ('["a"]', "not an object"),
    "a bare number": ("7", "not an object"),
    "control characters": ('{"text":"\x01"}', "control"),
}


async def test_arguments_that_cannot_be_carried_go_back_to_the_model_and_the_session_lives_on(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        for name, (arguments, why) in UNREADABLE.items():
            talk.script(calling([call(arguments=arguments)]))
            assert await talk.ask("go", name, seconds=20) == "Done.", name
            [told] = talk.server.asked[-1].results
            assert "not run" in told, name
            assert why in told, name
            talk.script(says("Here."))
            assert await talk.ask("and now?", name, seconds=20) == "Here.", name
        assert not talk.calls
        nothing: dict[str, Any] = {"nothing": "", "null": "null", "spaces": " ", "an object": {}}
        for name, given in nothing.items():
            talk.script(calling([call("note_list", given)]))
            assert await talk.ask("go", name, seconds=20) == "Done.", name
            assert talk.server.asked[-1].results == ["[]"], name


# 2. Odd fields.

HALVES = [raw('{"choices":[{"delta":{"content":"' + text + '"}}]}') for text in ("hel\\ud83d", "\\ude00lo")]
ODD: Mapping[str, list[bytes]] = {
    "usage with null counts": [HELLO, STOP, event({"choices": [], "usage": {"prompt_tokens": None}})],
    "usage with 3.0": [HELLO, STOP, event({"choices": [], "usage": {"prompt_tokens": 3.0, "completion_tokens": "4"}})],
    "usage as a list, choices null": [HELLO, STOP, event({"choices": None, "usage": []})],
    "usage negative": [HELLO, STOP, event({"choices": [], "usage": {"prompt_tokens": -1}})],
    "NaN logprobs": [raw('{"choices":[{"index":0,"delta":{"content":"hello"},"logprobs":NaN}]}'), STOP],
    "an infinite number": [
        raw('{"choices":[{"delta":{"content":"hello"}}],"timings":{"a":-Infinity,"b":1e999}}'),
        STOP,
    ],
    "200 levels beside it": [
        raw('{"x":' + "[" * 200 + "]" * 200 + ',"choices":[{"delta":{"content":"hello"}}]}'),
        STOP,
    ],
    "a control character": [raw('{"choices":[{"delta":{"content":"hello"},"x":"\t\x01"}]}'), STOP],
    "tool_calls [null]": [chunk(delta={"content": "hello", "tool_calls": [None]}), STOP],
    "tool_calls {} and function_call null": [
        chunk(delta={"content": "hello", "tool_calls": [], "function_call": None}),
        STOP,
    ],
    "error ''": [event({"choices": [{"delta": {"content": "hello"}}], "error": ""}), STOP],
    "error {} and false": [event({"choices": [{"delta": {"content": "hello"}, "error": False}], "error": {}}), STOP],
    "both names of reasoning": [chunk(delta={"reasoning": "hm", "reasoning_content": "hm"}), HELLO, STOP],
    "reasoning of other types": [chunk(delta={"content": "hello", "reasoning": 7, "reasoning_content": None}), STOP],
    "delta and message": [chunk(delta={"content": "hello"}, message={"role": "assistant", "content": "hello"}), STOP],
    "a whole message at the end": [HELLO, chunk(delta={}, message={"content": "hello"}, finish_reason="stop")],
    "message null": [chunk(delta={"content": "hello"}, message=None), STOP],
    "content in parts": [
        chunk(delta={"content": [{"type": "text", "text": "hel"}, "lo", None, 7, {"type": "x"}]}),
        STOP,
    ],
    "an index that is text": [chunk(index="0", delta={"content": "hello"}), STOP],
    "two choices": [
        event({"choices": [{"index": 1, "delta": {"content": "?"}}, {"index": 0.0, "delta": {"content": "hello"}}]}),
        STOP,
    ],
    "a finish_reason in each chunk": [
        chunk(delta={"content": "hel"}, finish_reason="stop"),
        chunk(delta={"content": "lo"}, finish_reason=""),
    ],
    "a finish_reason of another type": [HELLO, chunk(delta={}, finish_reason={"type": "stop"}), STOP, STOP],
    "a mark, CRLF, no space, comments, event lines": [
        "\ufeff: hi\r\nevent: message\r\nid: 1\r\ndata:".encode()
        + json.dumps(delta({"content": "hello"})).encode()
        + b"\r\n\r\n",
        STOP,
    ],
    "carriage returns alone": [b"data: " + json.dumps(delta({"content": "hello"})).encode() + b"\r\r", STOP],
    "an event of several lines": [b'data: {"choices":\ndata: [{"delta":{"content":\ndata: "hello"}}]}\n\n', STOP],
    "events that are no JSON": [b"data: ping\n\n", HELLO, b"event: ping\ndata: <keepalive>\n\n", STOP],
    "a body without events": [
        json.dumps({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}, indent=1).encode()
    ],
}


async def test_one_odd_field_costs_no_answer(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("?")) as talk:
        for name, pieces in ODD.items():
            talk.script(sends(*pieces, *([] if "body" in name else [DONE])))
            assert await talk.ask("hi", name, seconds=20) == "hello", name
            talk.script(sends(*pieces[:-1], pieces[-1]))  # nor does a missing [DONE]
            assert await talk.ask("hi", name, seconds=20) == "hello", name


async def test_a_character_that_was_cut_into_two_chunks_is_whole(tmp_path: Path) -> None:
    utf8 = event(delta({"content": "hel😀lo"}))
    at = utf8.index("😀".encode()) + 2
    lost = raw('{"choices":[{"delta":{"content":"hel\\ud83d"}}]}')
    half = raw(
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"reverse_text","arguments":"{\\"text\\":\\"\\ud83d"}}]}}]}'
    )
    other = raw('{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00\\"}"}}]}}]}')
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        for name, pieces in {"escaped": HALVES, "bytes": [utf8[:at], utf8[at:]]}.items():
            talk.script(sends(*pieces, STOP, DONE))
            assert await talk.ask("hi", name, seconds=20) == "hel😀lo", name
        talk.script(sends(lost, STOP, DONE))
        assert await talk.ask("hi", "lost", seconds=20) == "hel\ufffd"
        talk.script(by_results(sends(half, other, CALLED, DONE), says("Done.")))
        assert await talk.ask("hi", "arguments", seconds=20) == "Done."
        assert talk.server.asked[-1].results == ["😀"]


# 3 and 20. Calls, and their ids.

OTHER = '{"text":"c"}'
PAIRS: Mapping[str, list[list[Any]]] = {
    "index 0, no ids, two chunks": [[call(id="")], [call("reverse_text", OTHER, id="")]],
    "index 0, no ids, one chunk": [[call(id=""), call("reverse_text", OTHER, id=None)]],
    "one id for both, two chunks": [[call()], [call("reverse_text", OTHER)]],
    "one id for both, one chunk": [[call(), call("reverse_text", OTHER)]],
    "no index, one id": [[call(index=MISSING)], [call("reverse_text", OTHER, index=MISSING)]],
    "no index, no id": [[call(index=MISSING, id=MISSING), call("reverse_text", OTHER, index=None, id=MISSING)]],
    "index -1, ids as numbers": [[call(index=-1, id=7)], [call("reverse_text", OTHER, index=-1, id=8)]],
    "index as text": [[call(index="0", id="")], [call("reverse_text", OTHER, index="1", id="")]],
    "name and id in each part": [
        [call(arguments='{"text"')],
        [call(arguments=':"a b"}')],
        [call("reverse_text", OTHER, index=1, id="d")],
    ],
    "a new id with each part": [
        [call(arguments="")],
        [{"index": 0, "id": "x", "function": {"arguments": TEXT}}],
        [call("reverse_text", OTHER, index=1, id="d")],
    ],
    "the parts mixed": [
        [call(arguments='{"text"'), call("reverse_text", "", index=1, id="d")],
        [{"index": 1, "function": {"arguments": OTHER}}, {"index": 0, "function": {"arguments": ':"a b"}'}}],
    ],
    "arguments as objects": [[call(arguments={"text": "a b"}), call("reverse_text", {"text": "c"}, index=1, id="d")]],
    "once more when it is whole": [[call()], [call()], [call("reverse_text", OTHER, index=1, id="d")]],
}


async def test_no_two_calls_become_one(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        for name, lists in PAIRS.items():
            talk.script(calling(*lists))
            assert await talk.ask("go", name, seconds=20) == "Done.", name
            assert talk.server.asked[-1].results == [COUNTED, "c"], name
        talk.script(calling([call("note_list", "", id="")], [call(id="")]))
        assert await talk.ask("go", "without arguments", seconds=20) == "Done."
        assert talk.server.asked[-1].results == ["[]", COUNTED]
        legacy = event(delta({"function_call": {"name": "word_count", "arguments": TEXT}}))
        talk.script(by_results(sends(legacy, event(delta({}, "function_call")), DONE), says("Done.")))
        assert await talk.ask("go", "the older way", seconds=20) == "Done."
        assert talk.server.asked[-1].results == [COUNTED]
        assert len(talk.calls) == 2 * len(PAIRS) + 3


async def test_each_call_has_an_id_of_its_own_on_the_bus_and_the_models_goes_back_to_it(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        for ids in (["c", "c"], ["call_0", "call_1"], ["x" * 64, "-._:"]):
            talk.script(calling([call(id=ids[0])], [call("reverse_text", OTHER, index=1, id=ids[1])]))
            for _ in range(2):  # a model that counts its calls in each answer
                assert await talk.ask("go", ids[0], seconds=20) == "Done."
                *_, asked, first, second = talk.server.asked[-1].messages
                told = [made["id"] for made in asked["tool_calls"]]
                assert told[0] == ids[0]
                assert (told[1] == ids[1]) == (ids[0] != ids[1])  # no server takes two results of one id
                assert [first["tool_call_id"], second["tool_call_id"]] == told
        on_the_bus = [call_id for _, call_id in talk.calls]
        assert len(set(on_the_bus)) == 12
        assert all(re.fullmatch("call_[0-9a-f]{32}", call_id) for call_id in on_the_bus)
        assert {len(results) for results in talk.results.values()} == {1}


# 4. Answers that are cut off.

CUTS = {
    "length": "length",
    "MAX_TOKENS": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "SAFETY": "content_filter",
    "error": "error",
    "something new": "something new",
}


async def test_an_answer_that_was_cut_is_kept_and_told_as_that(tmp_path: Path) -> None:
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        async with talk.host.subscribe("agent.v1.event.turn_cut", observe=True) as cuts:
            for reason, cut in CUTS.items():
                talk.script(sends(HELLO, event(delta({}, reason)), STOP, DONE))
                assert await talk.ask("hi", reason, seconds=20) == "hello"
                assert (await cuts.__anext__()).payload == {"session_id": reason, "cut": cut}
            thought = event(delta({"reasoning_content": "hm"}))
            talk.script(sends(thought, event(delta({}, "length")), DONE))
            assert "all tokens that its answer may have on reasoning" in await talk.ask("hi", "thought", seconds=20)
            assert (await cuts.__anext__()).payload["cut"] == "length"
    assert all(
        "max_tokens" not in asked.body and "max_completion_tokens" not in asked.body for asked in talk.server.asked
    )


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_call_that_was_cut_is_not_run(tmp_path: Path, reason: str) -> None:
    end = event(delta({}, reason))
    async with conversation(tmp_path, says("?"), config=NO_QUESTIONS, floods=True) as talk:
        for name, arguments in {"cut": '{"text":"a', "none": "", "only a part": "{"}.items():
            talk.script(calling([call()], [call(arguments=arguments, index=1, id="d")], ending=end))
            assert await talk.ask("go", name, seconds=20) == "Done."
            first, second = talk.server.asked[-1].results
            assert reason in second, name
            assert "not run" in second, name
            assert (first == COUNTED) == (reason == "length"), name
    assert len(talk.calls) == (3 if reason == "length" else 0)


# 5. What goes back.


async def test_what_a_server_needs_back_with_a_call_it_gets_also_from_another_host(tmp_path: Path) -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    lists = [[call(extra_content=signature, id=""), call("reverse_text", OTHER, index=1, id="d")]]
    signed = calling(*lists)
    thought = by_results(
        sends(
            event(delta({"reasoning_content": "h"})),
            event(delta({"reasoning_content": "m"})),
            event(delta({"tool_calls": [call()]})),
            CALLED,
            DONE,
        ),
        says("Done."),
    )
    options: dict[str, Any] = {"config": NO_QUESTIONS, "state_dir": tmp_path / "state"}
    async with conversation(tmp_path, signed, **options) as talk:
        await talk.ask("go", "signed", seconds=20)
        first, second = talk.server.asked[-1].messages[-3]["tool_calls"]
        assert first["extra_content"] == signature
        assert "extra_content" not in second
        talk.script(thought)
        await talk.ask("go", "thought", seconds=20)
        assert talk.server.asked[-1].messages[-2]["reasoning_content"] == "hm"
        talk.script(says("Still."))
        assert await talk.ask("and?", "thought", seconds=20) == "Still."
        called = [message for message in talk.server.asked[-1].messages if "tool_calls" in message]
        assert [message["reasoning_content"] for message in called] == ["hm"]


# 6 and 8. Where a server is, and which models it has.


async def test_a_path_and_a_query_of_the_base_stay(tmp_path: Path) -> None:
    for base, path in {
        "": "/v1/*",
        "/": "/v1/*",
        "?key=1": "/v1/*?key=1",
        "/v1/": "/v1/*",
        "/v1beta/openai/": "/v1beta/openai/*",
        "/v1beta/openai/chat/completions": "/v1beta/openai/*",
        "/api/paas/v4": "/api/paas/v4/*",
        "/openai/deployments/d?api-version=2024": "/openai/deployments/d/*?api-version=2024",
    }.items():
        async with conversation(tmp_path, says("Hello."), at=base) as talk:
            assert await talk.ask("hi", seconds=20) == "Hello.", base
        assert path.replace("*", "chat/completions") in talk.server.paths, base


@pytest.mark.parametrize(
    "listing",
    [
        [{"id": "only"}],
        {"models": [{"name": "only"}]},
        {"data": ["only"]},
        {"object": "list", "data": [None, {"id": 7}, {"id": "only"}]},
    ],
)
async def test_a_list_of_models_has_many_shapes(tmp_path: Path, listing: Any) -> None:
    async with conversation(tmp_path, says("Hello."), config={"openai-compat": {"model": ""}}, listing=listing) as talk:
        assert await talk.ask("hi", seconds=20) == "Hello."
    assert talk.server.asked[0].body["model"] == "only"


# 8. A server that lives.


@pytest.mark.parametrize(
    "sign",
    [
        b": keepalive\n\n",
        event(delta({"role": "assistant", "content": ""})),
        event(delta({"reasoning_content": "hm "})),
        b"\n",
    ],
    ids=["comments", "empty deltas", "reasoning", "empty lines"],
)
async def test_a_server_that_sends_anything_is_alive(tmp_path: Path, sign: bytes) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        for _ in range(8):
            await reply.raw(sign)
            await trio.sleep(0.25)
        await says("hello")(asked, reply)

    limits: dict[str, dict[str, Any]] = {"openai-compat": {"silence_timeout_secs": 1}}
    async with conversation(tmp_path, script, config=limits) as talk:
        assert await talk.ask("hi", seconds=20) == "hello"


# 7. Whole numbers.


@pytest.mark.parametrize("limit", [1, 1.0, "1", "1.0"])
async def test_a_whole_number_is_one_however_a_model_writes_it(tmp_path: Path, limit: Any) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    read = ("read_file", {"file_path": "a.txt", "start_line": limit, "end_line": limit})
    async with conversation(
        tmp_path, by_results(calls(read, ("list_threads", {"limit": limit})), says("Done."))
    ) as talk:
        assert await talk.ask("go", seconds=20) == "Done."
        line, threads = talk.server.asked[-1].results
    assert line.strip(chr(34)) == "one"
    assert len(json.loads(threads)["sessions"]) == 1


# 22. What a turn leaves behind that was cancelled or that failed.


async def test_whatever_a_turn_left_behind_a_strict_server_takes(tmp_path: Path) -> None:
    hang = hanging_tool(tmp_path / "capsules")
    async with conversation(tmp_path, says("?"), capsules=[*ALL, hang], config=NO_QUESTIONS) as talk:
        await _cancelled_within_a_tool(talk)
        for script in (
            sends(HELLO, raw('{"error":{"message":"no"}}')),
            sends(raw('{"error":"no"}')),
            sends(b"<html>"),
            says(" "),
        ):
            talk.script(script)
            await talk.ask("again", seconds=20)
        talk.script(says("Well."))
        assert await talk.ask("and now?", seconds=20) == "Well."
        talk.script(calling([call("no_such_tool"), call("", index=1, id="d"), call(arguments="{", index=2, id="e")]))
        assert await talk.ask("go", seconds=20) == "Done."
    assert not talk.server.faults


async def _cancelled_within_a_tool(talk: Conversation) -> None:
    talk.script(calling([call(), call("hang", "{}", index=1, id="d")]))
    talk.say("go")
    await talk.until(lambda: talk.reached > 0)
    talk.cancel()
    assert await talk.final() == "Cancelled."
