"""Topics, and the three ways in which patterns match them. The matchers and indexes have an answer for every string.

- **Interceptors** (`[subscribe]` rows with a handler): as many segments as the pattern has, none of them empty; `*` is
  one segment, anywhere.
- **The bus** (subscriptions): at most 20 segments; a trailing `.*` is one or more segments; `*` elsewhere is one.
- **Access rows** (`[publish]` and `[subscribe]` keys): as the bus, with the row as the pattern. No row, no access.

So `a.*` as a handler's row fires for two segments only, while a subscription to it, or an access row of that name,
covers all that is below `a`. `*` is a wildcard only as a whole segment, and case counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

KERNEL_TOPICS = "astrid.v1.dispatch."  # only the kernel publishes below it
FAILED_TOPICS, SETTLED_TOPICS = (
    f"{KERNEL_TOPICS}failed.",
    f"{KERNEL_TOPICS}settled.",
)  # what it tells of an event's topic
# What a client of a running host needs as well, without the engine that their rooms load.
REQUESTS, RESPONSES = "astrid.v1.request.", "astrid.v1.response."
APPROVAL, APPROVAL_ANSWERS = "astrid.v1.approval", "astrid.v1.approval.response."
TOPIC_BYTES = 256
PUBLISH_SEGMENTS = 8
MATCH_SEGMENTS = 20


def valid_segments(name: str) -> bool:
    """Whether a topic or pattern is not empty and has no empty segment."""
    return bool(name) and ".." not in name and name[0] != "." and name[-1] != "."


def interceptor_matches(topic: str, pattern: str) -> bool:
    """Whether a handler bound with `pattern` gets events of `topic`. (Astrid, interceptor topics.)"""
    if not valid_segments(topic) or not valid_segments(pattern):
        return False
    given, wanted = topic.split("."), pattern.split(".")
    return len(given) == len(wanted) and _begins_with(given, wanted)


def bus_matches(topic: str, pattern: str) -> bool:
    """Whether a subscription to `pattern` gets events of `topic`. (Astrid, event routes.)"""
    given, wanted = topic.split("."), pattern.split(".")
    if len(given) > MATCH_SEGMENTS:
        return False
    if _is_subtree(wanted):
        return len(given) >= len(wanted) and _begins_with(given, wanted[:-1])
    return len(given) == len(wanted) and _begins_with(given, wanted)


def _is_subtree(pattern: list[str]) -> bool:
    """Whether a bus pattern ends in `.*`; `*` alone does not."""
    return len(pattern) > 1 and pattern[-1] == "*"


def _begins_with(topic: list[str], pattern: list[str]) -> bool:
    """Whether the first segments of a topic, which has as many at least, are those of a pattern."""
    for given, wanted in zip(topic, pattern, strict=False):  # noqa: SIM110 - a generator takes three times as long
        if given != wanted and wanted != "*":
            return False
    return True


def acl_allows(rows: Iterable[str], topic: str) -> bool:
    """Whether one of a manifest's rows covers a topic to publish on, or a pattern to subscribe to, taken literally.

    Without rows nothing is allowed. (Astrid, publish and subscribe access.)
    """
    return any(bus_matches(topic, row) for row in rows)


class Pattern(NamedTuple):
    """A pattern taken apart. With `subtree` it covers one or more segments behind its own."""

    segments: list[str]
    subtree: bool


def pattern_of(text: str, *, subtree: bool = True) -> Pattern:
    """Take a pattern apart.

    Args:
        text: the pattern.
        subtree: read a trailing `.*` as the bus and access rows do; else it is one segment, as for interceptors.
    """
    segments = text.split(".")
    if subtree and _is_subtree(segments):
        return Pattern(segments[:-1], True)
    return Pattern(segments, False)


def overlap(one: Pattern, other: Pattern) -> bool:
    """Whether some topic matches both patterns."""
    if not one.subtree and not other.subtree and len(one.segments) != len(other.segments):
        return False
    if one.subtree and not other.subtree and len(other.segments) <= len(one.segments):
        return False
    if other.subtree and not one.subtree and len(one.segments) <= len(other.segments):
        return False
    return all(a == b or "*" in (a, b) for a, b in zip(one.segments, other.segments, strict=False))


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """Whether every topic that matches `narrow` matches `wide`."""
    if narrow.subtree and not wide.subtree:
        return False
    ahead = len(narrow.segments) - len(wide.segments)
    if ahead < 0 or (ahead and not wide.subtree) or (not ahead and wide.subtree and not narrow.subtree):
        return False
    return all(a in ("*", b) for a, b in zip(wide.segments, narrow.segments, strict=False))


def check_topic(topic: str) -> None:
    """Check the form of a topic to publish on.

    Raises:
        ValueError: it is longer than 256 bytes of UTF-8, has an empty segment, or has more than 8.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise ValueError(fault)


def topic_fault(topic: str) -> str | None:
    """What is wrong with the form of a topic or pattern; None when nothing is. (Astrid, the host's checks of topics.)"""
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        return f"the topic {topic[:64]!r} has a lone surrogate, which UTF-8 cannot hold"
    if size > TOPIC_BYTES:
        return f"the topic {topic[:64]!r}… has {size} bytes; {TOPIC_BYTES} are allowed"
    if not valid_segments(topic):
        return f"the topic {topic!r} has an empty segment: segments are separated by single dots"
    count = topic.count(".") + 1
    if count > PUBLISH_SEGMENTS:
        return f"the topic {topic!r} has {count} segments; {PUBLISH_SEGMENTS} are allowed"
    return None


def check_pattern(pattern: str) -> None:
    """Check that a subscription to a pattern can receive anything.

    Raises:
        ValueError: it has an empty segment, or more than 20.
    """
    if not valid_segments(pattern):
        raise ValueError(f"the pattern {pattern!r} has an empty segment, so no topic matches it")
    count = pattern.count(".") + 1
    if count > MATCH_SEGMENTS:
        raise ValueError(f"the pattern {pattern!r} has {count} segments; topics have {MATCH_SEGMENTS} at most")


class _Node(Generic[T]):
    """Where all patterns with the same first segments meet.

    `here` has the values of the patterns that end here, `below` those of bus patterns that go on with a trailing `.*`,
    each with the ticket that tells the order of insertion.
    """

    __slots__ = ("any", "below", "exact", "here")

    def __init__(self) -> None:
        self.exact: dict[str, _Node[T]] = {}
        self.any: _Node[T] | None = None  # what follows a `*`
        self.here: list[tuple[int, T]] = []
        self.below: list[tuple[int, T]] = []

    def child(self, segment: str) -> _Node[T] | None:
        """What follows a segment of a pattern."""
        return self.any if segment == "*" else self.exact.get(segment)

    def grow(self, segment: str) -> _Node[T]:
        """The same, made when it is not there."""
        child = self.child(segment)
        if child is None:
            child = _Node()
            if segment == "*":
                self.any = child
            else:
                self.exact[segment] = child
        return child

    def cut(self, segment: str) -> None:
        """Forget what follows a segment of a pattern."""
        if segment == "*":
            self.any = None
        else:
            del self.exact[segment]

    def is_bare(self) -> bool:
        """Whether no pattern needs it any more."""
        return not (self.exact or self.any or self.here or self.below)


class _Index(Generic[T]):
    """Values by pattern, found in a time that does not grow with the number of patterns that do not match.

    Not to be changed by two threads at once.
    """

    __slots__ = ("_root", "_ticket")

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._ticket = 0

    def insert(self, pattern: str, value: T) -> None:
        """Add a value. It may be added several times, and is then found as often."""
        segments, is_subtree = self._parts(pattern)
        node = self._root
        for segment in segments:
            node = node.grow(segment)
        self._ticket += 1
        (node.below if is_subtree else node.here).append((self._ticket, value))

    def remove(self, pattern: str, value: T) -> None:
        """Take a value out again; of several equal ones under the same pattern, the first.

        Raises:
            KeyError: it is not there.
        """
        segments, is_subtree = self._parts(pattern)
        path = [self._root]
        for segment in segments:
            child = path[-1].child(segment)
            if child is None:
                raise KeyError(pattern)
            path.append(child)
        node = path.pop()
        entries = node.below if is_subtree else node.here
        del entries[_place_of(value, entries, pattern)]
        while path and node.is_bare():
            node = path.pop()
            node.cut(segments[len(path)])

    def _parts(self, pattern: str) -> tuple[list[str], bool]:
        """A pattern's segments, and whether it is a subtree; then without its `*`."""
        return pattern.split("."), False

    def _found(self, segments: list[str]) -> list[T]:
        """The values whose pattern matches the segments of a topic, in the order in which they were inserted."""
        nodes = [self._root]
        found: list[tuple[int, T]] = []
        for segment in segments:
            following = []
            for node in nodes:
                if node.below:
                    found += node.below
                child = node.exact.get(segment)
                if child is not None:
                    following.append(child)
                child = node.any
                if child is not None:
                    following.append(child)
            nodes = following
            if not nodes:
                break
        for node in nodes:
            found += node.here
        if len(found) > 1:
            found.sort(key=_ticket_of)
        return [value for _, value in found]


def _ticket_of(entry: tuple[int, object]) -> int:
    return entry[0]


def _place_of(value: T, entries: list[tuple[int, T]], pattern: str) -> int:
    for place, (_, held) in enumerate(entries):
        if held is value or held == value:
            return place
    raise KeyError(pattern)


class InterceptorIndex(_Index[T]):
    """Values by interceptor pattern: `find` gives those for which `interceptor_matches(topic, pattern)`."""

    __slots__ = ()

    def find(self, topic: str) -> list[T]:
        """The values whose pattern matches, in the order in which they were inserted."""
        return self._found(topic.split(".")) if valid_segments(topic) else []


class BusIndex(_Index[T]):
    """Values by bus pattern: `find` gives those for which `bus_matches(topic, pattern)`."""

    __slots__ = ()

    def _parts(self, pattern: str) -> tuple[list[str], bool]:
        segments = pattern.split(".")
        return (segments[:-1], True) if _is_subtree(segments) else (segments, False)

    def find(self, topic: str) -> list[T]:
        """The values whose pattern matches, in the order in which they were inserted."""
        segments = topic.split(".")
        return self._found(segments) if len(segments) <= MATCH_SEGMENTS else []
