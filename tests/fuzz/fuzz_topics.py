"""Fuzzes topics and payloads for a number of seconds: `python tests/fuzz/fuzz_topics.py SECONDS`.

The matchers are compared with definitions of their own kind: a pattern written as a regular expression. The indexes are
compared with those while values come and go. Reading a payload must end in a payload or a `PayloadError`, and what a
guest receives must be JSON that says the same. Prints how many cases each target ran, and last `N passed, 0 failed`; at
a failure the smallest case that shows it, and then it exits with 1.
"""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
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

ROUND = 200  # cases between two looks at the clock
Index: TypeAlias = InterceptorIndex[int] | BusIndex[int]
Target: TypeAlias = Callable[[], None]

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


TARGETS: Sequence[Target] = (matchers, access, interceptor_index, bus_index, payload_text, payload_value, frame)


def count_cases(target: Target) -> tuple[Target, Callable[[], int]]:
    """A target with the settings of this loop, and how many cases it has run."""
    inner = target.hypothesis.inner_test  # type: ignore[attr-defined]
    count = 0

    def counted(**case: object) -> None:
        nonlocal count
        count += 1
        inner(**case)

    target.hypothesis.inner_test = counted  # type: ignore[attr-defined]
    limits = settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    return limits(target), lambda: count


def main(arguments: Sequence[str]) -> int:
    """Run all targets in turn until the time is over; at least once each."""
    if len(arguments) != 1 or not re.fullmatch(r"\d+", arguments[0]):
        sys.stderr.write("usage: fuzz_topics.py SECONDS, a whole number\n")
        return 2
    end = time.monotonic() + int(arguments[0])
    running = [(target.__name__, *count_cases(target)) for target in TARGETS]
    failures = 0
    while not failures:
        for name, run, _ in running:
            try:
                run()
            except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
                traceback.print_exc()
                sys.stderr.write(f"{name} failed: its smallest case is shown above\n")
                failures += 1
        if time.monotonic() >= end:
            break
    for name, _, cases in running:
        sys.stdout.write(f"{name}: {cases()} cases\n")
    total = sum(cases() for _, _, cases in running)
    sys.stdout.write(f"{total - failures} passed, {failures} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
