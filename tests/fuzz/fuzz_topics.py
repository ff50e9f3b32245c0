"""What `fuzz.py` runs of topics and payloads: properties, each against a definition of another kind.

The matchers are compared with a pattern written as a regular expression, and the indexes with those while values come and
go. Reading a payload must end in a payload or a `PayloadError`, and what a guest receives must be JSON that says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import PayloadError
from astrid_host.payloads import DEPTH, decode_frame, from_value, parse
from astrid_host.payloads.kinds import KINDS, TAGS
from astrid_host.topics import (
    BusIndex,
    InterceptorIndex,
    acl_allows,
    bus_matches,
    interceptor_matches,
    topic_fault,
    valid_segments,
)

Index: TypeAlias = InterceptorIndex[int] | BusIndex[int]
Property: TypeAlias = Callable[[], None]

SEGMENTS = st.sampled_from(["a", "b", "*", "", "a*", "**", "A", "é", "a\n", " ", "\ud800", "\0"])
DEEP = st.builds(
    lambda count, last: ".".join(["a"] * count + [last]), st.integers(17, 22), st.sampled_from(["a", "*", ""])
)
NAMES = (
    st.lists(SEGMENTS, max_size=6).map(".".join) | DEEP | st.text(alphabet=".*ab", max_size=10) | st.text(max_size=8)
)
STEPS = st.lists(st.tuples(st.sampled_from(["insert", "remove", "find"]), NAMES, st.integers(0, 2)), max_size=30)


def plainly_handled(topic: str, pattern: str) -> bool:
    """The interceptor matcher as a regular expression."""
    parts = ["[^.]+" if segment == "*" else re.escape(segment) for segment in pattern.split(".")]
    return "" not in pattern.split(".") and re.fullmatch(r"\.".join(parts), topic) is not None


def plainly_received(topic: str, pattern: str) -> bool:
    """The bus matcher as a regular expression."""
    tail = ""
    if pattern.endswith(".*"):
        pattern, tail = pattern[:-2], r"(\.[^.]*)+"
    parts = ["[^.]*" if segment == "*" else re.escape(segment) for segment in pattern.split(".")]
    return topic.count(".") < 20 and re.fullmatch(r"\.".join(parts) + tail, topic) is not None


@given(NAMES, NAMES)
def matchers(topic: str, pattern: str) -> None:
    assert interceptor_matches(topic, pattern) is plainly_handled(topic, pattern)
    assert bus_matches(topic, pattern) is plainly_received(topic, pattern)
    assert valid_segments(topic) is (re.fullmatch(r"[^.]+(\.[^.]+)*", topic) is not None)
    if topic_fault(topic) is None:
        assert interceptor_matches(topic, topic)
        assert acl_allows([topic], topic)


@given(st.lists(NAMES, max_size=6), NAMES)
def access(rows: list[str], topic: str) -> None:
    assert acl_allows(rows, topic) is any(plainly_received(topic, row) for row in rows)


def check_index(index: Index, matches: Callable[[str, str], bool], steps: Sequence[tuple[str, str, int]]) -> None:
    """Let values come and go, and ask in between."""
    held: list[tuple[str, int]] = []
    for step, name, value in steps:
        if step == "find":
            assert index.find(name) == [value for pattern, value in held if matches(name, pattern)]
        elif step == "insert":
            index.insert(name, value)
            held.append((name, value))
        elif (name, value) in held:
            index.remove(name, value)
            held.remove((name, value))
        else:
            try:
                index.remove(name, value)
            except KeyError:
                continue
            raise AssertionError(f"removed what was not there: {name!r}, {value}")
    for name, _ in held:
        assert index.find(name) == [value for pattern, value in held if matches(name, pattern)]
    for name, value in held:
        index.remove(name, value)
    assert index._root.is_bare()


@given(STEPS)
def interceptor_index(steps: list[tuple[str, str, int]]) -> None:
    check_index(InterceptorIndex(), plainly_handled, steps)


@given(STEPS)
def bus_index(steps: list[tuple[str, str, int]]) -> None:
    check_index(BusIndex(), plainly_received, steps)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='aé\\"[{}]\n', max_size=6)
    | st.sampled_from(["Done", "Text", "user", "0b8f7a52-6d3c-4f6e-9b1f-2f8f3c1f9a77", *sorted(TAGS)])
)
FIELDS = {"type", "data", *(name for kind in KINDS.values() for name in kind.__struct_fields__)}
KEYS = st.sampled_from(
    [*sorted(FIELDS), "content", "is_error", "TextDelta", "Usage", "field_type", "key", "prompt", "role", "é"]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=12
)
TAGGED = st.builds(
    lambda tag, fields: {"type": tag, **fields}, st.sampled_from(sorted(TAGS)), st.dictionaries(KEYS, JSON)
)
PIECES = [
    "[",
    "]",
    "{",
    "}",
    '"',
    ":",
    ",",
    "\\",
    "\\u",
    "d800",
    '"type"',
    '"custom"',
    "1",
    "e999",
    "-",
    " ",
    "é",
    "\0",
]
NOISE = st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=20)
NESTED = st.builds(
    lambda open_, close, depth, more: open_ * depth + "1" + close * (depth + more),
    st.sampled_from(["[", '{"a":', '["\\"[",', '[{"a":']),
    st.sampled_from(["]", "}", "}]"]),
    st.integers(0, 3 * DEPTH),
    st.integers(-2, 1),
)


def plain_depth(value: object) -> int:
    """How deep a JSON value nests."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(plain_depth, inner), default=0)


@given(NOISE | NESTED | NOISE.map(lambda text: text.encode() + b"\xff") | st.binary(max_size=20))
def payload_text(raw: str | bytes) -> None:
    try:
        payload = parse(raw)
    except PayloadError:
        return
    value = json.loads(raw)
    assert plain_depth(value) <= DEPTH
    assert json.loads(payload.guest) == msgspec.to_builtins(payload.data)


@given(JSON | TAGGED)
def payload_value(value: Any) -> None:
    text = json.dumps(value)
    payload = parse(text)
    assert from_value(value).data == payload.data
    received = json.loads(payload.guest)
    assert received == msgspec.to_builtins(payload.data)
    tag = value.get("type") if isinstance(value, dict) else None
    if isinstance(payload.data, msgspec.Struct):
        again = parse(payload.guest)
        assert (again.guest, again.data) == (payload.guest, payload.data)
        assert received["type"] == tag
    elif tag == "custom" and "data" in value:
        assert received == value["data"]
    elif tag == "raw_json":
        assert {**received, "type": tag} == value
    else:
        assert payload.guest == text.encode()


@given(NOISE.map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20))
def frame(raw: bytes) -> None:
    try:
        decode_frame(raw)
    except PayloadError:
        return
    assert {"topic", "payload", "source_id"} <= set(json.loads(raw))


PROPERTIES: Sequence[Property] = (matchers, access, interceptor_index, bus_index, payload_text, payload_value, frame)
