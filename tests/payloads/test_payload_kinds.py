"""Each kind of payload: which fields it needs, what is filled in, what is dropped, and how it is written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from astrid_host.payloads import ToolCallResult, ToolExecuteRequest, ToolExecuteResult, parse
from astrid_host.payloads.kinds import (
    KINDS,
    TAGS,
    ElicitRequest,
    EnumField,
    ImagePart,
    LlmRequest,
    LlmStreamEvent,
    StreamEvent,
    TextPart,
    ToolCall,
)

ID = "0b8f7a52-6d3c-4f6e-9b1f-2f8f3c1f9a77"
FIELD = {"key": "k", "prompt": "p", "field_type": "Text"}
USAGE = {"input_tokens": 3, "output_tokens": 0}
MESSAGE = {"role": "user", "content": "hi"}
ANSWER = {"message": MESSAGE, "has_tool_calls": False, "stop_reason": "EndTurn", "usage": USAGE}

# tag -> (required fields, options, defaults)
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "user_input": ({"text": "t"}, {"context": {"model": "m"}}, {"session_id": "default"}),
    "agent_response": ({"text": "t", "is_final": True}, {}, {"session_id": "default"}),
    "approval_required": ({"request_id": "r", "action": "a", "resource": "x", "reason": "y"}, {}, {}),
    "approval_response": ({"request_id": "r", "decision": "approve"}, {"reason": "x"}, {}),
    "grant_required": ({"request_id": "r", "principal": "p", "capsule_id": "c"}, {}, {}),
    "onboarding_required": ({"capsule_id": "c", "fields": [FIELD]}, {}, {}),
    "llm_request": (
        {
            "request_id": ID,
            "model": "m",
            "messages": [MESSAGE],
            "tools": [{"name": "n", "input_schema": {}}],
            "system": "",
        },
        {},
        {},
    ),
    "llm_stream_event": ({"request_id": ID, "event": "Done"}, {}, {}),
    "llm_response": ({"request_id": ID, "response": ANSWER}, {}, {}),
    "tool_execute_request": ({"call_id": "c", "tool_name": "t", "arguments": None}, {}, {}),
    "tool_execute_result": (
        {"call_id": "c", "result": {"call_id": "c", "content": "hi", "is_error": False}},
        {},
        {},
    ),
    "tool_cancel_request": ({"call_ids": ["c1", "c2"]}, {}, {}),
    "selection_required": (
        {"request_id": "r", "title": "t", "options": [{"id": "i", "label": "l"}], "callback_topic": "a.b"},
        {},
        {},
    ),
    "elicit_request": ({"request_id": ID, "capsule_id": "c", "field": FIELD}, {}, {}),
    "elicit_response": ({"request_id": ID}, {"value": "v", "values": ["a", "b"]}, {}),
    "connect": ({}, {}, {}),
    "disconnect": ({}, {"reason": "r"}, {}),
}


def received(value: object) -> Any:
    return json.loads(parse(json.dumps(value)).guest)


def is_typed(value: object) -> bool:
    payload = parse(json.dumps(value))
    if isinstance(payload.data, msgspec.Struct):
        return True
    assert payload.data == value == json.loads(payload.guest)
    return False


def test_nineteen_tags_are_known_and_unknown_is_none_of_them() -> None:
    assert {*FIELDS, "custom", "raw_json"} == TAGS
    assert set(KINDS) == set(FIELDS)
    assert len(TAGS) == 19


@pytest.mark.parametrize("tag", FIELDS)
def test_the_required_fields_make_a_payload_typed_and_defaults_are_filled_in(tag: str) -> None:
    required, _, defaults = FIELDS[tag]
    payload = parse(json.dumps({**required, "type": tag}))
    assert type(payload.data) is KINDS[tag]
    assert json.loads(payload.guest) == {"type": tag, **required, **defaults}
    assert payload.guest.startswith(f'{{"type":"{tag}"'.encode())


@pytest.mark.parametrize("tag", FIELDS)
def test_options_are_kept_when_given_and_left_out_when_null(tag: str) -> None:
    required, options, defaults = FIELDS[tag]
    given = {"type": tag, **required, **options, **dict.fromkeys(defaults, "given")}
    assert received(given) == given
    assert received({"type": tag, **required, **dict.fromkeys(options)}) == {"type": tag, **required, **defaults}


@pytest.mark.parametrize("tag", FIELDS)
def test_fields_that_are_not_declared_are_dropped(tag: str) -> None:
    required, _, defaults = FIELDS[tag]
    assert received({"type": tag, **required, "more": [1], "data": 2}) == {"type": tag, **required, **defaults}


@pytest.mark.parametrize(("tag", "name"), [(tag, name) for tag in FIELDS for name in FIELDS[tag][0]])
def test_a_missing_field_makes_a_payload_custom(tag: str, name: str) -> None:
    assert not is_typed({"type": tag, **{key: value for key, value in FIELDS[tag][0].items() if key != name}})


@pytest.mark.parametrize(
    ("tag", "name"),
    [(tag, name) for tag in FIELDS for part in FIELDS[tag] for name in part if name not in ("arguments", "context")],
)
def test_a_field_of_another_type_makes_a_payload_custom(tag: str, name: str) -> None:
    assert not is_typed({"type": tag, **FIELDS[tag][0], name: 7})


@pytest.mark.parametrize("tag", [tag for tag in FIELDS if FIELDS[tag][2]])
def test_a_default_is_not_taken_for_null(tag: str) -> None:
    required, _, defaults = FIELDS[tag]
    assert not is_typed({"type": tag, **required, **dict.fromkeys(defaults)})


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"tool_execute_request","call_id":"c1","tool_name":"read_file","arguments":{"file_path":"a.txt"}}',
        '{"type":"tool_execute_result","call_id":"c1","result":{"call_id":"c1","content":"hi","is_error":false}}',
        '{"type":"tool_cancel_request","call_ids":["c1","c2"]}',
        f'{{"type":"llm_stream_event","request_id":"{ID}","event":{{"TextDelta":"he"}}}}',
        f'{{"type":"llm_stream_event","request_id":"{ID}","event":"Done"}}',
        '{"type":"user_input","text":"hello","session_id":"s1","context":{"model":"m"}}',
        '{"type":"approval_response","request_id":"r","decision":"approve"}',
    ],
)
def test_the_wire_is_written_to_the_letter(text: str) -> None:
    payload = parse(text)
    assert isinstance(payload.data, msgspec.Struct)
    assert payload.guest == text.encode()


def test_a_tool_result_is_no_error_unless_it_says_so() -> None:
    text = '{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"x"}}'
    payload = parse(text)
    assert payload.data == ToolExecuteResult("c", ToolCallResult("c", "x", False))
    assert b'"is_error":false' in payload.guest


def test_arguments_may_be_any_json() -> None:
    for arguments in (None, True, [1, {"a": 2**70}], "x", 1.5):
        payload = parse(
            json.dumps({"type": "tool_execute_request", "call_id": "c", "tool_name": "t", "arguments": arguments})
        )
        assert payload.data == ToolExecuteRequest("c", "t", arguments)
        assert json.loads(payload.guest)["arguments"] == arguments


@pytest.mark.parametrize(
    "event",
    [
        {"TextDelta": "he"},
        {"ToolCallStart": {"id": "i", "name": "n"}},
        {"ToolCallDelta": {"id": "i", "args_delta": "{"}},
        {"ToolCallEnd": {"id": "i"}},
        {"ReasoningDelta": "hm"},
        {"Usage": USAGE},
        {"Error": "broken"},
        "Done",
    ],
)
def test_a_stream_event_is_one_named_thing(event: object) -> None:
    value = {"type": "llm_stream_event", "request_id": ID, "event": event}
    assert is_typed(value)
    assert received(value) == value


@pytest.mark.parametrize(
    "event",
    [
        {},
        "done",
        {"TextDelta": 1},
        {"TextDelta": None},
        {"TextDelta": "a", "Error": "b"},
        {"TextDelta": "a", "more": 1},
        {"text_delta": "a"},
        {"ToolCallStart": {"id": "i"}},
        {"ToolCallDelta": {"id": "i", "name": "n"}},
        {"Usage": {"input_tokens": -1, "output_tokens": 0}},
        {"Usage": {"input_tokens": 1.0, "output_tokens": 0}},
        {"Usage": {"input_tokens": True, "output_tokens": 0}},
        ["Done"],
        None,
    ],
)
def test_what_is_no_stream_event_makes_a_payload_custom(event: object) -> None:
    assert not is_typed({"type": "llm_stream_event", "request_id": ID, "event": event})


def test_a_stream_event_is_read_by_its_name() -> None:
    payload = parse(json.dumps({"type": "llm_stream_event", "request_id": ID, "event": {"ToolCallEnd": {"id": "i"}}}))
    assert isinstance(payload.data, LlmStreamEvent)
    assert isinstance(payload.data.event, StreamEvent)
    assert payload.data.event.tool_call_end is not msgspec.UNSET
    assert payload.data.event.tool_call_end.id == "i"


@pytest.mark.parametrize("field_type", ["Text", "Secret", "Array", {"Enum": ["a", "b"]}, {"Enum": []}])
def test_a_value_asked_for_is_text_a_secret_a_list_or_a_choice(field_type: object) -> None:
    field = {**FIELD, "field_type": field_type, "description": "d", "default": "x", "placeholder": "y"}
    value = {"type": "elicit_request", "request_id": ID, "capsule_id": "c", "field": field}
    assert is_typed(value)
    assert received(value) == value


@pytest.mark.parametrize(
    "field_type", ["text", "Enum", {"Enum": "a"}, {"Enum": ["a"], "more": 1}, {"Text": []}, {}, None]
)
def test_no_other_value_is_asked_for(field_type: object) -> None:
    field = {**FIELD, "field_type": field_type}
    assert not is_typed({"type": "elicit_request", "request_id": ID, "capsule_id": "c", "field": field})


def test_a_choice_is_read_as_its_texts() -> None:
    field = {**FIELD, "field_type": {"Enum": ["a", "b"]}}
    payload = parse(json.dumps({"type": "elicit_request", "request_id": ID, "capsule_id": "c", "field": field}))
    assert isinstance(payload.data, ElicitRequest)
    assert payload.data.field.field_type == EnumField(["a", "b"])


def llm_request(content: object, role: str = "user") -> dict[str, Any]:
    return {**FIELDS["llm_request"][0], "type": "llm_request", "messages": [{"role": role, "content": content}]}


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("text", "text"),
        ([], []),
        ([{"id": "i", "name": "s:t", "arguments": {"a": 1}}], [ToolCall("i", "s:t", {"a": 1})]),
        ({"call_id": "c", "content": "x", "is_error": True}, ToolCallResult("c", "x", True)),
        (
            [{"type": "text", "text": "t"}, {"type": "image", "data": "ZA==", "media_type": "image/png"}],
            [TextPart("t"), ImagePart("ZA==", "image/png")],
        ),
    ],
)
def test_a_message_is_text_tool_calls_a_result_or_parts(content: object, read: object) -> None:
    value = llm_request(content)
    payload = parse(json.dumps(value))
    assert isinstance(payload.data, LlmRequest)
    assert payload.data.messages[0].content == read
    assert json.loads(payload.guest) == value


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        {},
        {"call_id": "c", "content": 1},
        [1],
        [{"type": "audio", "data": ""}],
        [{"type": "text", "text": "t"}, {"id": "i", "name": "n", "arguments": {}}],
        [{"id": "i", "name": "n"}],
    ],
)
def test_any_other_message_makes_a_payload_custom(content: object) -> None:
    assert not is_typed(llm_request(content))


def test_a_message_has_one_of_four_roles() -> None:
    assert all(is_typed(llm_request("x", role)) for role in ("system", "user", "assistant", "tool"))
    assert not is_typed(llm_request("x", "User"))


@pytest.mark.parametrize("word", ["EndTurn", "MaxTokens", "ToolUse", "StopSequence"])
def test_a_model_stops_for_one_of_four_reasons(word: str) -> None:
    assert is_typed({"type": "llm_response", "request_id": ID, "response": {**ANSWER, "stop_reason": word}})
    assert not is_typed({"type": "llm_response", "request_id": ID, "response": {**ANSWER, "stop_reason": word.lower()}})


def test_a_request_id_that_must_be_a_uuid_is_written_in_its_canonical_form() -> None:
    value = {"type": "elicit_response", "request_id": ID.replace("-", "").upper()}
    assert received(value) == {"type": "elicit_response", "request_id": ID}
    assert not is_typed({"type": "elicit_response", "request_id": "r1"})


def test_the_parts_of_a_tool_call_are_made_in_their_order() -> None:
    result = ToolExecuteResult("c", ToolCallResult("c", "text"))
    request = ToolExecuteRequest("c", "t", {})
    assert (result.call_id, result.result.call_id, result.result.content, result.result.is_error) == (
        "c",
        "c",
        "text",
        False,
    )
    assert (request.call_id, request.tool_name, request.arguments) == ("c", "t", {})
