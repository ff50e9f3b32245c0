"""The built openai-compat capsule in a real host, with a real HTTP server that speaks the protocol: every request is
answered with events of which exactly one, the last, is terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from openai_server import (
    OpenAIServer,
    Script,
    calls,
    delta,
    drops,
    empty,
    endless,
    event,
    fails_within,
    in_turn,
    openai_server,
    paced,
    refuses,
    says,
    sends,
    silent,
    when,
)
from provider_parties import GENERATE, STREAM, Provider, calls_of, events_of, provider, text_of

from astrid_host import BUNDLED, open_host

CANCEL = "llm.v1.request.cancel.openai-compat"
TOOL = {
    "name": "server:tool",
    "description": "does it",
    "input_schema": {"$schema": "x", "type": "object", "mutable": True, "properties": {"a": {"type": "string"}}},
}


async def test_a_request_is_answered_with_text_usage_and_done() -> None:
    async with provider(says("Hel", "lo ü🙂", usage=(7, 2)), api_key=" sk-1234\n", temperature="0.5") as party:
        events = await party.answer(system="be kind")
    assert text_of(events) == "Hello ü🙂"
    assert events[-2:] == [{"Usage": {"input_tokens": 7, "output_tokens": 2}}, "Done"]
    asked = party.server.asked[0]
    assert asked.headers["authorization"] == "Bearer sk-1234"
    assert asked.body == {
        "model": "test",
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }


@pytest.mark.parametrize("ending", ["/", "/v1", "/v1/"])
async def test_the_base_url_may_end_with_the_version_and_slashes(ending: str) -> None:
    async with openai_server(says("ok")) as server:
        config = {"openai-compat": {"base_url": server.url + ending, "model": "test"}}
        capsules = [BUNDLED / "openai-compat"]
        allowed = [server.address]
        async with open_host(capsules=capsules, state_dir=":memory:", config=config, allow_local=allowed) as host:
            assert await Provider(host, server).text() == "ok"
    assert "authorization" not in server.asked[0].headers


async def test_five_tool_calls_at_once_keep_the_text_before_them_and_their_order() -> None:
    tools = [("read_file", {"file_path": f"{n}.txt"}) for n in range(5)]
    async with provider(calls(*tools, before=("I ", "look."))) as party:
        events = await party.answer()
    assert text_of(events) == "I look."
    assert [(name, json.loads(arguments)) for name, arguments in calls_of(events)] == tools
    assert events[-1] == "Done"


async def test_a_name_that_servers_refuse_is_told_as_another_and_comes_back_as_itself() -> None:
    async def script(asked: Any, reply: Any) -> None:
        await reply.call(asked.tools[0], {"a": "b"})
        await reply.finish()

    async with provider(script) as party:
        events = await party.answer(tools=[TOOL])
    assert calls_of(events) == [("server:tool", '{"a": "b"}')]
    function = party.server.asked[0].body["tools"][0]["function"]
    assert function["name"].startswith("server_tool_")
    assert function["parameters"] == {"type": "object", "properties": {"a": {"type": "string"}}}


async def test_arguments_that_are_no_json_go_on_as_the_model_wrote_them() -> None:
    async with provider(calls(("read_file", '{"file_path": "a'))) as party:
        assert calls_of(await party.answer()) == [("read_file", '{"file_path": "a')]


async def test_calls_and_results_of_the_conversation_are_told_in_the_servers_shape() -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": [{"id": "c1", "name": "server:tool", "arguments": {"a": "b"}}]},
        {"role": "tool", "content": {"call_id": "c1", "content": "found", "is_error": False}},
    ]
    async with provider(says("ok")) as party:
        assert await party.text(messages=messages, tools=[TOOL]) == "ok"
    _, called, result = party.server.asked[0].messages
    told = party.server.asked[0].tools[0]
    function = {"name": told, "arguments": '{"a":"b"}'}
    assert called == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "found"}


async def test_a_chunk_may_end_inside_a_character_and_lines_may_end_with_crlf() -> None:
    whole = b": ping\r\n\r\n" + event(delta({"content": "ü🙂"})).replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n"
    async with provider(sends(*(whole[at : at + 1] for at in range(len(whole))))) as party:
        assert await party.text() == "ü🙂"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]}
    async with provider(sends(json.dumps(answer).encode(), kind="application/json")) as party:
        assert await party.text() == "whole"


async def test_an_answer_without_a_word_is_done() -> None:
    async with provider(empty()) as party:
        events = await party.answer()
    assert [each for each in events if "Usage" not in each] == ["Done"]


async def test_a_refused_key_is_told_once_without_the_key() -> None:
    async with provider(refuses(401, "Incorrect API key provided: sk-secret"), api_key="sk-secret") as party:
        error = await party.error()
    assert "401" in error
    assert "Incorrect API key provided: [key]" in error
    assert len(party.server.asked) == 1


@pytest.mark.parametrize("status", [429, 500])
async def test_what_may_pass_is_asked_again_twice(status: int) -> None:
    async with provider(in_turn(refuses(status), refuses(status), says("ok"))) as party:
        assert await party.text() == "ok"
        party.server.script = refuses(status, "busy")
        error = await party.error()
    assert str(status) in error
    assert "busy" in error
    assert len(party.server.asked) == 6


async def test_a_server_that_asks_for_a_longer_wait_than_is_allowed_is_not_asked_again() -> None:
    async with provider(refuses(429, headers={"retry-after": "11"})) as party:
        assert "429" in await party.error()
    assert len(party.server.asked) == 1


async def test_a_short_wait_that_the_server_asks_for_is_respected() -> None:
    script = in_turn(refuses(429, headers={"retry-after": "0.2"}), says("ok"))
    async with provider(script) as party:
        begun = trio.current_time()
        assert await party.text() == "ok"
    assert trio.current_time() - begun >= 0.2


async def test_a_connection_that_breaks_off_in_the_middle_is_an_error_and_nothing_is_said_twice() -> None:
    async with provider(drops("half a ")) as party:
        events = await party.answer()
    assert text_of(events) == "half a "
    assert "broke off" in events[-1]["Error"]
    assert len(party.server.asked) == 1


async def test_a_connection_that_breaks_off_before_the_first_word_is_made_again() -> None:
    async with provider(in_turn(drops(), says("ok"))) as party:
        assert await party.text() == "ok"


async def test_an_error_within_the_stream_is_told() -> None:
    async with provider(fails_within("well, ", message="out of memory")) as party:
        assert await party.error() == "The model provider says: out of memory"


async def test_an_endless_answer_ends_by_its_size() -> None:
    async with provider(endless(), max_answer_bytes=200_000) as party:
        events = await party.answer()
        assert "200000 bytes" in events[-1]["Error"]
        await left(party.server)


async def test_an_endless_answer_ends_by_the_clock() -> None:
    async with provider(endless(per_second=50), total_timeout_secs=1) as party:
        error = await party.error()
    assert "in time" in error or "1 s" in error


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    async with provider(silent(), silence_timeout_secs=1) as party:
        assert await party.error()
        await left(party.server)


async def left(server: OpenAIServer) -> None:
    """Wait until the server has seen that nobody reads its answers any more."""
    while server.left < len(server.asked):
        await trio.sleep(0.001)


@pytest.mark.parametrize("script", [silent(), endless(per_second=1000)], ids=["silent", "speaking"])
async def test_a_cancelled_request_ends_at_once_and_its_connection_is_closed(script: Script) -> None:
    async with provider(script) as party, party.host.subscribe(STREAM) as stream:
        other = party.ask()
        request_id = party.ask()
        while len(party.server.asked) < 2:
            await trio.sleep(0.001)
        party.host.publish(CANCEL, {"request_id": request_id})
        with trio.fail_after(5):
            events = await events_of(stream, request_id)
            assert events[-1] == {"Error": "The request to the model was cancelled."}
            while party.server.left < 1:
                await trio.sleep(0.001)
        assert party.server.left == 1
        party.host.publish(CANCEL, {"request_id": other})
        await left(party.server)


async def test_another_principal_cancels_nothing() -> None:
    opened = trio.Event()
    async with provider(when(opened, says("ok"), before=("well, ",))) as party, party.host.subscribe(STREAM) as stream:
        request_id = party.ask(principal="alice")
        await anext(aiter(stream))
        party.host.publish(CANCEL, {"request_id": request_id}, principal="bob")
        opened.set()
        assert text_of(await events_of(stream, request_id)) == "ok"


async def test_sessions_of_one_principal_are_answered_at_the_same_time() -> None:
    opened = trio.Event()
    async with provider(when(opened, says("ok"))) as party, party.host.subscribe(STREAM) as stream:
        wanted = {party.ask() for _ in range(8)}
        while len(party.server.asked) < 8:
            await trio.sleep(0.001)
        opened.set()
        done = set()
        async for published in stream:
            if published.payload["event"] == "Done":
                done.add(published.payload["request_id"])
                if done == wanted:
                    break


async def test_two_thousand_tokens_a_second_arrive_all_and_in_order() -> None:
    tokens = [f"{n} " for n in range(1000)]
    async with provider(paced(tokens, 2000)) as party:
        events = await party.answer()
    assert text_of(events) == "".join(tokens)
    assert events[-1] == "Done"


async def test_without_a_model_nobody_is_asked() -> None:
    async with provider(says("never"), model="") as party:
        assert "No model is selected" in await party.error(model="")
        assert party.server.asked == []


async def test_a_server_that_cannot_be_reached_and_an_address_that_is_not_allowed_are_told() -> None:
    async with openai_server(says("never")) as server:
        address, url = server.address, server.url
    config = {"openai-compat": {"base_url": url, "model": "test", "retry_wait_ms": 1}}
    capsules = [BUNDLED / "openai-compat"]
    async with open_host(capsules=capsules, state_dir=":memory:", config=config, allow_local=[address]) as host:
        assert "cannot be reached" in await Provider(host, server).error()
    async with open_host(capsules=capsules, state_dir=":memory:", config=config) as host:
        assert await Provider(host, server).error() == (
            f"{url} is a private address: if you mean it, give `astrid-host run` or `astrid-host chat` the option "
            f"--allow-local {address}."
        )


@pytest.mark.parametrize("kind", ["text/html", "text/event-stream", "application/json"])
async def test_a_page_in_place_of_an_answer_says_to_check_the_url(kind: str) -> None:
    async with provider(sends(b"<!doctype html>\n<html>Welcome</html>\n", kind=kind)) as party:
        assert await party.error() == (
            "The model provider's answer is no chat completion stream: check the URL (openai-compat.base_url)."
        )


async def test_a_request_that_cannot_be_read_is_answered() -> None:
    async with provider(says("never")) as party:
        assert "cannot be read" in await party.error(messages=7)


async def test_a_call_id_that_the_conversation_has_already_is_replaced() -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"id": "call_0_0", "name": "t", "arguments": {}}]},
        {"role": "tool", "content": {"call_id": "call_0_0", "content": "found", "is_error": False}},
    ]
    async with provider(calls(("t", {}))) as party:
        events = await party.answer(messages=messages)
    (started,) = [each["ToolCallStart"] for each in events if "ToolCallStart" in each]
    assert started["id"].startswith("call_")
    assert started["id"] != "call_0_0"


async def told(party: Provider, messages: int = 1) -> list[Any]:
    """What the capsule answers when it is asked for its models."""
    async with party.host.subscribe("llm.v1.response.describe") as answers:
        party.host.publish("llm.v1.request.describe", {})
        return [(await anext(aiter(answers))).payload for _ in range(messages)]


async def described(party: Provider, messages: int = 1) -> list[Any]:
    """What the capsule tells of models, a list for each message."""
    return [answer["providers"] for answer in await told(party, messages)]


async def test_the_configured_model_is_told_first_and_then_what_the_server_lists() -> None:
    async with provider(says(), models=["a:1", "test", "b"], context_window=4096) as party:
        first, second = await described(party, 2)
    assert first == [
        {
            "id": "test",
            "description": f"test at {party.server.url}",
            "request_topic": GENERATE,
            "stream_topic": STREAM,
            "capabilities": ["text", "vision", "tools"],
            "context_window": 4096,
            "max_output_tokens": 512,
        }
    ]
    assert [entry["id"] for entry in second] == ["a:1", "b"]


async def test_a_server_without_a_list_leaves_the_configured_model() -> None:
    async with provider(says(), models=None) as party:
        (only,) = await described(party)
    assert [entry["id"] for entry in only] == ["test"]


async def test_with_neither_a_list_nor_a_configured_model_there_is_none_and_it_says_why() -> None:
    async with provider(says(), models=None, model="") as party:
        (answer,) = await told(party)
        assert answer["providers"] == []
        assert answer["problem"].startswith(f"{party.server.url} does not list its models. ")
        assert "404" in answer["problem"]
    async with provider(says(), models=[], model="") as party:
        assert await told(party) == [{"providers": [], "problem": f"{party.server.url} lists no models."}]


async def test_a_server_that_cannot_be_asked_for_its_models_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async with openai_server(says("never")) as server:
        address, url = server.address, server.url
    capsules, config = [BUNDLED / "openai-compat"], {"openai-compat": {"base_url": url}}
    async with open_host(capsules=capsules, state_dir=":memory:", config=config, allow_local=[address]) as host:
        (answer,) = await told(Provider(host, server))
        assert answer["problem"].startswith(f"The model provider at {url} cannot be reached")
    async with open_host(capsules=capsules, state_dir=":memory:", config=config) as host:
        (answer,) = await told(Provider(host, server))
        assert answer["problem"].endswith(f"--allow-local {address}.")
    assert f"--allow-local {address}." in caplog.text
    assert "ErrorCode" not in caplog.text


async def test_openai_is_told_nothing_before_there_is_a_key_for_it() -> None:
    async with open_host(capsules=[BUNDLED / "openai-compat"], state_dir=":memory:") as host:
        party = Provider(host, OpenAIServer(says()))
        assert await described(party) == [[]]
        assert "No model provider is configured" in await party.error()
