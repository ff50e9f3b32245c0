"""An index finds what asking the matcher about each pattern would find, in the order of insertion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.topics import BusIndex, InterceptorIndex, bus_matches, interceptor_matches

Index: TypeAlias = InterceptorIndex[int] | BusIndex[int]
Matcher: TypeAlias = Callable[[str, str], bool]
KINDS: list[tuple[type[Index], Matcher]] = [
    (InterceptorIndex, interceptor_matches),
    (BusIndex, bus_matches),
]

SEGMENT = st.sampled_from(["a", "b", "*", "", "a*", "**", "A", "é", "a\n"])
NAME = st.lists(SEGMENT, max_size=5).map(".".join)
DEEP = st.integers(18, 23).map(lambda count: ".".join(["a"] * count))
NAMES = NAME | DEEP | DEEP.map(lambda name: name[:-1] + "*") | st.text(alphabet=".*ab", max_size=8)


@pytest.mark.parametrize(("kind", "matches"), KINDS)
@given(patterns=st.lists(NAMES, max_size=25), topics=st.lists(NAMES, min_size=1, max_size=8))
def test_an_index_finds_what_the_matcher_says(
    kind: type[Index], matches: Matcher, patterns: list[str], topics: list[str]
) -> None:
    index = kind()
    for number, pattern in enumerate(patterns):
        index.insert(pattern, number)
    for topic in topics:
        assert index.find(topic) == [i for i, pattern in enumerate(patterns) if matches(topic, pattern)]


@pytest.mark.parametrize(("kind", "matches"), KINDS)
@given(
    steps=st.lists(st.tuples(st.booleans(), NAMES, st.integers(0, 2)), max_size=40),
    topics=st.lists(NAMES, min_size=1, max_size=4),
)
def test_an_index_forgets_exactly_what_is_removed(
    kind: type[Index], matches: Matcher, steps: list[tuple[bool, str, int]], topics: list[str]
) -> None:
    index = kind()
    held: list[tuple[str, int]] = []
    for insert, pattern, value in steps:
        if insert:
            index.insert(pattern, value)
            held.append((pattern, value))
        elif (pattern, value) in held:
            index.remove(pattern, value)
            held.remove((pattern, value))
        else:
            with pytest.raises(KeyError):
                index.remove(pattern, value)
    for topic in [*topics, *(pattern for pattern, _ in held)]:
        assert index.find(topic) == [value for pattern, value in held if matches(topic, pattern)]


@pytest.mark.parametrize(("kind", "_matches"), KINDS)
@given(patterns=st.lists(NAMES, max_size=20))
def test_an_index_that_was_emptied_keeps_nothing(kind: type[Index], _matches: Matcher, patterns: list[str]) -> None:
    index = kind()
    for number, pattern in enumerate(patterns):
        index.insert(pattern, number)
    for number, pattern in enumerate(patterns):
        index.remove(pattern, number)
    assert index._root.is_bare()


@pytest.mark.parametrize(("kind", "_matches"), KINDS)
def test_a_look_up_visits_no_more_nodes_when_other_patterns_are_added(kind: type[Index], _matches: Matcher) -> None:
    """Counted instead of timed: the dictionary look-ups that finding one topic makes."""
    few, many = kind(), kind()
    for index, count in ((few, 10), (many, 10_000)):
        for number in range(count):
            index.insert(f"room{number}.v1.*", number)
            index.insert(f"tool.v1.execute.t{number}", number)
    assert _look_ups(few, "tool.v1.execute.t3") == _look_ups(many, "tool.v1.execute.t3")
    assert many.find("tool.v1.execute.t3") == [3]


def _look_ups(index: Index, topic: str) -> int:
    count = 0

    class Counting(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal count
            count += 1
            return super().get(key, default)

    def wrap(node: object) -> None:
        node.exact = Counting(node.exact)  # type: ignore[attr-defined]
        for child in node.exact.values():  # type: ignore[attr-defined]
            wrap(child)

    wrap(index._root)
    index.find(topic)
    return count
