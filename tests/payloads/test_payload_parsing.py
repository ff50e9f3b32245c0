"""What a guest receives of what was published: typed payloads anew, everything else as it is; and what is refused."""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import PayloadError
from astrid_host.payloads import DEPTH, RawJson, ToolExecuteRequest, from_value, parse
from astrid_host.payloads.kinds import TAGS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé"\\[{\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "data", "a", "é"]), inner),
    max_leaves=12,
)
TAGGED = st.builds(
    lambda tag, rest: {"type": tag, **rest},
    st.sampled_from(sorted(TAGS)),
    st.dictionaries(st.sampled_from(["text", "call_id", "call_ids", "reason", "data", "arguments", "tool_name"]), JSON),
)


def ascii_start(value: object) -> str:
    """A short id of a parameter."""
    return type(value).__name__ if isinstance(value, int) else ascii(value)[:24]


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"x", "b": 1, "a": [1.0, 1e2, -0.0]}',
        '{"type":"no_such_kind","a":1}',
        '{"type":"User_Input","text":"case counts"}',
        '{"type":"unknown"}',
        '{"type":7}',
        '{"type":null}',
        '{"type":["connect"]}',
        '{"type":"tool_execute_request","call_id":"c1"}',
        '{"type":"tool_execute_request","call_id":1,"tool_name":"t","arguments":{}}',
        '{"type":"custom"}',
        '[{"type":"connect"}]',
        '"connect"',
        "12345678901234567890123456789012345678901234567890",
        "-18446744073709551616",
        "null",
        " [1, 2] ",
        '{"a":1,"a":2}',
        '"\\ud83d\\ude00"',
    ],
)
def test_what_fits_no_kind_passes_as_it_is(text: str) -> None:
    for raw in (text, text.encode()):
        payload = parse(raw)
        assert payload.guest == text.encode()
        assert payload.data == json.loads(text)
        assert not isinstance(payload.data, RawJson)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('{"type":"custom","data":{"b":1, "a":2}}', '{"b":1, "a":2}'),
        ('{"type":"custom","data":null}', "null"),
        ('{"type":"custom","data": [1e2] ,"more":1}', "[1e2]"),
        ('{"type":"custom","data":1,"data":2}', "2"),
        ('{"data":99999999999999999999999999,"type":"custom"}', "99999999999999999999999999"),
        ('{"type":"custom","data":{"type":"connect"}}', '{"type":"connect"}'),
    ],
)
def test_custom_data_is_unwrapped(text: str, inner: str) -> None:
    payload = parse(text)
    assert payload.guest == inner.encode()
    assert payload.data == json.loads(inner)
    assert not isinstance(payload.data, RawJson)


def test_a_raw_json_object_is_delivered_without_its_tag() -> None:
    payload = parse('{"b":1e2,"type":"raw_json","method":"M","params":{"n":99999999999999999999}}')
    assert payload.guest == b'{"b":1e2,"method":"M","params":{"n":99999999999999999999}}'
    assert payload.data == {"b": 100.0, "method": "M", "params": {"n": 99999999999999999999}}
    assert isinstance(payload.data, RawJson)
    assert parse('{"type":"raw_json"}').guest == b"{}"


def test_the_last_of_two_equal_keys_counts() -> None:
    assert parse('{"type":"no_such_kind","type":"connect"}').guest == b'{"type":"connect"}'
    twice = '{"type":"connect","type":"no_such_kind"}'
    assert parse(twice).guest == twice.encode()


@pytest.mark.parametrize(
    "raw",
    [
        "", " ", "NaN", "Infinity", "-Infinity", "nul", "tru", "01", "1.", ".5", "+1", "0x10", "-", "1e999", "1e", "1 2",
        "[1,]", '{"a":1,}', "{a:1}", '{"a"}', "'a'", "/**/1", "\ufeff1", "\x0c1", '"\x01"', '"\\x"', '"\\u12"',
        '"\\ud800"', '"\\ud800\\u0041"', '"\\udc00\\ud800"', '{"\\ud800x":1}', "[", "{", '"', "[}", "]", "9" * 5000,
        '{"type":"connect","more":1e999}', '{"type":"connect","more":"\\ud800x"}', '{"type":"connect"} x',
        '"\ud800"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'{"type":"connect","more":"\xff"}',
    ],
    ids=ascii_start,
)  # fmt: skip
def test_what_is_not_json_is_refused(raw: str | bytes) -> None:
    with pytest.raises(PayloadError, match=r"not (JSON|UTF-8)"):
        parse(raw)


def nested(depth: int, *, key: bool = False) -> str:
    return '{"k":' * depth + "1" + "}" * depth if key else "[" * depth + "]" * depth


@pytest.mark.parametrize("key", [False, True])
def test_payloads_nest_as_deep_as_guests_can_read_and_no_deeper(key: bool) -> None:
    text = nested(DEPTH, key=key)
    assert parse(text).guest == text.encode()
    for depth in (DEPTH + 1, 1000, 500_000):
        with pytest.raises(PayloadError, match="nests deeper than 127"):
            parse(nested(depth, key=key))


@pytest.mark.parametrize("quoted", ["[" * 300, '\\"' + "[" * 300, "\\\\", '\\\\\\"{', "{" * 300 + "\\n"])
def test_brackets_in_strings_do_not_nest(quoted: str) -> None:
    text = f'["{quoted}",' * 100 + "1" + "]" * 100
    assert parse(text).data == json.loads(text)
    with pytest.raises(PayloadError, match="deeper"):
        parse(f'["{quoted}",' * 128 + "1" + "]" * 128)


@pytest.mark.parametrize(
    "text", ["[" * 1_000_000, "]" * 300 + "[" * 300, '"' * 999, "\\" * 999, '["\\"[",' * 250_000], ids=ascii_start
)
def test_long_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(PayloadError):
        parse(text)


@pytest.mark.parametrize("room", [20, 60, 100, 140])
def test_a_caller_deep_in_its_own_recursion_gets_a_payload_or_a_payload_error(room: int) -> None:
    text = nested(DEPTH)
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back

    def sink(levels: int) -> None:
        if levels:
            return sink(levels - 1)
        try:
            assert parse(text).guest == text.encode()
        except PayloadError as error:
            assert "no stack is left" in str(error)  # noqa: PT017 - `pytest.raises` would want one of the two
        return None

    sink(sys.getrecursionlimit() - depth - room)


@given(st.text() | st.text(alphabet='[]{}",:\\ 01eu\n') | JSON.map(json.dumps) | st.binary())
def test_reading_has_no_other_failure(raw: str | bytes) -> None:
    try:
        payload = parse(raw)
    except PayloadError:
        return
    json.loads(payload.guest)


@given(JSON | TAGGED)
def test_what_a_guest_receives_is_the_data_and_can_be_published_again(value: Any) -> None:
    payload = parse(json.dumps(value))
    plain = json.loads(payload.guest)
    if isinstance(payload.data, msgspec.Struct):
        assert msgspec.to_builtins(payload.data) == plain
        again = parse(payload.guest)
        assert (again.guest, again.data) == (payload.guest, payload.data)
    else:
        assert payload.data == plain == unwrapped(value)


def unwrapped(value: Any) -> Any:
    """What a guest receives of a value that is not typed."""
    tag = value.get("type") if isinstance(value, dict) else None
    if tag == "custom" and "data" in value:
        return value["data"]
    if tag == "raw_json":
        return {key: inner for key, inner in value.items() if key != "type"}
    return value


@given(JSON | TAGGED)
def test_a_python_value_is_read_as_its_json(value: Any) -> None:
    given_value, text = from_value(value), parse(json.dumps(value))
    assert given_value.data == text.data
    assert json.loads(given_value.guest) == json.loads(text.guest)


def test_a_python_value_may_hold_structs_and_what_they_may_hold() -> None:
    request = ToolExecuteRequest("c1", "t", {"a": None, "b": msgspec.Raw(b"[1, null]")})
    payload = from_value(request)
    assert payload.guest == (
        b'{"type":"tool_execute_request","call_id":"c1","tool_name":"t","arguments":{"a":null,"b":[1,null]}}'
    )
    assert payload.data == ToolExecuteRequest("c1", "t", {"a": None, "b": [1, None]})
    key = uuid.UUID(int=7)
    assert from_value({key: None}).data == {str(key): None}


def test_a_published_value_is_not_shared_with_the_program() -> None:
    value = {"a": [1]}
    payload = from_value(value)
    value["a"].append(2)
    assert payload.data == {"a": [1]}


def test_an_integer_of_any_width_passes() -> None:
    assert from_value([2**64, -(2**200)]).data == [2**64, -(2**200)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf"), None]}])
def test_a_python_value_with_a_float_that_is_not_finite_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match="cannot be written as JSON"):
        from_value(value)


@pytest.mark.parametrize(
    "value",
    [pytest.param(object(), id="an object"), 1j, {(1, 2): 3}, {None: 1}, "\ud800", {"a": "\udfff"}, 10**5000, print],
    ids=ascii_start,
)
def test_a_python_value_that_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match="cannot be written as JSON"):
        from_value(value)


def test_a_python_value_that_contains_itself_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(PayloadError, match="contains itself"):
        from_value(cycle)


def test_a_python_value_nests_as_deep_as_text() -> None:
    value: object = 1
    for _ in range(DEPTH):
        value = [value]
    assert from_value(value).data == value
    with pytest.raises(PayloadError, match="deeper"):
        from_value([value])
