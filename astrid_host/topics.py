"""Topics and the three ways in which patterns match them. Pure functions; nothing here raises for any string.

- **Interceptors** (`[subscribe]` rows with a handler): as many segments as the pattern, none of them empty; `*` is one segment,
  anywhere.
- **The bus** (subscriptions): at most 20 segments; a trailing `.*` is one or more segments; `*` elsewhere is one.
- **Access rows** (`[publish]` and `[subscribe]` keys): as the bus, with the row as the pattern. No row, no access.

So `a.*` as a handler's row fires for two segments only, while a subscription to it, or a row of that name, covers all below `a`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

TOPIC_BYTES = 256
PUBLISH_SEGMENTS = 8
MATCH_SEGMENTS = 20


def valid_segments(name: str) -> bool:
    """Whether a topic or pattern is not empty and has no empty segment."""
    return bool(name) and ".." not in name and name[0] != "." and name[-1] != "."


def interceptor_matches(topic: str, pattern: str) -> bool:
    """Whether a handler bound with `pattern` gets events of `topic`."""
    if not valid_segments(topic) or not valid_segments(pattern):
        return False
    given, wanted = topic.split("."), pattern.split(".")
    return len(given) == len(wanted) and all(w in ("*", g) for g, w in zip(given, wanted, strict=True))


def bus_matches(topic: str, pattern: str) -> bool:
    """Whether a subscription to `pattern` gets events of `topic`."""
    given = topic.split(".")
    if len(given) > MATCH_SEGMENTS:
        return False
    wanted = pattern.split(".")
    if len(wanted) > 1 and wanted[-1] == "*":
        return len(given) >= len(wanted) and all(w in ("*", g) for g, w in zip(given, wanted[:-1], strict=False))
    return len(given) == len(wanted) and all(w in ("*", g) for g, w in zip(given, wanted, strict=True))


def acl_allows(rows: Iterable[str], topic: str) -> bool:
    """Whether one of a manifest's rows covers a topic to publish on, or a pattern to subscribe to, taken literally."""
    return any(bus_matches(topic, row) for row in rows)


def check_topic(topic: str) -> None:
    """Check the form of a topic to publish on.

    Raises:
        ValueError: it is longer than 256 bytes, has an empty segment, or has more than 8.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise ValueError(fault)


def topic_fault(topic: str) -> str | None:
    """What is wrong with the form of a topic or pattern; None when nothing is."""
    size = len(topic) if topic.isascii() else len(topic.encode("utf-8", "replace"))
    if size > TOPIC_BYTES:
        return f"the topic {topic[:64]!r}… has {size} bytes; {TOPIC_BYTES} are allowed"
    if not valid_segments(topic):
        return f"the topic {topic!r} has an empty segment: segments are separated by single dots"
    count = topic.count(".") + 1
    if count > PUBLISH_SEGMENTS:
        return f"the topic {topic!r} has {count} segments; {PUBLISH_SEGMENTS} are allowed"
    return None


class _Node(Generic[T]):
    """One segment of the patterns in an index."""

    __slots__ = ("children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.here: list[tuple[int, T]] = []


class _Index(Generic[T]):
    """Values by pattern, found by topic in a time that does not grow with the patterns that do not match."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._ticket = 0

    def _insert(self, segments: list[str], value: T) -> None:
        node = self._root
        for segment in segments:
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
        self._ticket += 1
        node.here.append((self._ticket, value))

    def _remove(self, segments: list[str], value: T) -> None:
        path = [self._root]
        for segment in segments:
            child = path[-1].children.get(segment)
            if child is None:
                raise KeyError(".".join(segments))
            path.append(child)
        here = path[-1].here
        for i, (_, held) in enumerate(here):
            if held is value or held == value:
                del here[i]
                break
        else:
            raise KeyError(".".join(segments))
        for parent, segment, child in zip(path[-2::-1], reversed(segments), path[:0:-1], strict=True):
            if child.here or child.children:
                return
            del parent.children[segment]

    def _collect(self, segments: list[str]) -> list[tuple[int, T]]:
        """What stands at the end of all paths that match segment by segment."""
        nodes = [self._root]
        for segment in segments:
            following = []
            for node in nodes:
                child = node.children.get(segment)
                if child is not None:
                    following.append(child)
                if segment != "*":
                    child = node.children.get("*")
                    if child is not None:
                        following.append(child)
            if not following:
                return []
            nodes = following
        return [entry for node in nodes for entry in node.here]


def _in_order(found: list[tuple[int, T]]) -> list[T]:
    if len(found) > 1:
        found.sort(key=lambda entry: entry[0])
    return [value for _, value in found]


class InterceptorIndex(_Index[T]):
    """Values by interceptor pattern."""

    def insert(self, pattern: str, value: T) -> None:
        """Add a value; the same may be added several times."""
        self._insert(pattern.split("."), value)

    def remove(self, pattern: str, value: T) -> None:
        """Take a value out again.

        Raises:
            KeyError: it is not there.
        """
        self._remove(pattern.split("."), value)

    def find(self, topic: str) -> list[T]:
        """The values whose pattern matches, in the order in which they were inserted."""
        if not valid_segments(topic):
            return []
        return _in_order(self._collect(topic.split(".")))


class BusIndex(_Index[T]):
    """Values by bus pattern. A trailing `.*` is kept apart: its prefix leads to the values."""

    def __init__(self) -> None:
        super().__init__()
        self._subtrees: _Index[T] = _Index()
        self._subtree_count = 0

    def insert(self, pattern: str, value: T) -> None:
        """Add a value; the same may be added several times."""
        segments = pattern.split(".")
        if len(segments) > 1 and segments[-1] == "*":
            self._subtrees._ticket = self._ticket
            self._subtrees._insert(segments[:-1], value)
            self._ticket = self._subtrees._ticket
            self._subtree_count += 1
        else:
            self._insert(segments, value)

    def remove(self, pattern: str, value: T) -> None:
        """Take a value out again.

        Raises:
            KeyError: it is not there.
        """
        segments = pattern.split(".")
        if len(segments) > 1 and segments[-1] == "*":
            self._subtrees._remove(segments[:-1], value)
            self._subtree_count -= 1
        else:
            self._remove(segments, value)

    def find(self, topic: str) -> list[T]:
        """The values whose pattern matches, in the order in which they were inserted."""
        segments = topic.split(".")
        if len(segments) > MATCH_SEGMENTS:
            return []
        found = self._collect(segments)
        if self._subtree_count:
            found = found + self._below(segments)
        return _in_order(found)

    def _below(self, segments: list[str]) -> list[tuple[int, T]]:
        """What stands on the way, before the last segment."""
        nodes, found = [self._subtrees._root], []
        for segment in segments[:-1]:
            following = []
            for node in nodes:
                for key in (segment, "*") if segment != "*" else ("*",):
                    child = node.children.get(key)
                    if child is not None:
                        following.append(child)
                        found += child.here
            nodes = following
        return found
