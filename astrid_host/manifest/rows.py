"""The rows of `[publish]` and `[subscribe]`. (Astrid, manifest: publish and subscribe; topics.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.schema import DEFAULT_PRIORITY, PublishRow, SubscribeRow
from astrid_host.manifest.sheet import Sheet
from astrid_host.topics import (
    KERNEL_TOPICS,
    PUBLISH_SEGMENTS,
    TOPIC_BYTES,
    acl_allows,
    interceptor_matches,
    topic_fault,
    valid_segments,
)

PINS = ("version", "tag", "rev", "branch", "path")
PUBLISH = ("wit", *PINS, "fanout", "settle")
OF_HANDLER = ("priority", "on_error", "reply", "guard", "except")
SUBSCRIBE = ("wit", *PINS, "fanout", "handler", *OF_HANDLER)
PRIORITY_MOST = (1 << 32) - 1
# The kernel puts up to four segments before the topic that it reports on.
HANDLED_SEGMENTS = PUBLISH_SEGMENTS + 4
Table = Literal["publish", "subscribe"]


def row_as_toml(pattern: str, **fields: str) -> str:
    """A row as it is to be written, for mends."""
    shown_fields = ", ".join(f"{key} = {value}" for key, value in {"wit": quoted("opaque"), **fields}.items())
    return f"{quoted(pattern)} = {{ {shown_fields} }}"


def read_publish(sheet: Sheet) -> Mapping[str, PublishRow]:
    """The rows of `[publish]` by pattern."""
    found = {}
    for pattern, table in _rows(sheet, "publish", PUBLISH):
        _warn_of_useless_publish(sheet, pattern)
        found[pattern] = PublishRow(
            pattern,
            wit=sheet.field(table, "wit", str, "publish", pattern),
            pin=_pin(sheet, table, "publish", pattern),
            fanout=table.get("fanout"),
            settle=sheet.field(table, "settle", bool, "publish", pattern) or False,
            source=sheet.source,
        )
    return found


def _warn_of_useless_publish(sheet: Sheet, pattern: str) -> None:
    """Rows that no topic can match, which a guest may publish on."""
    why = ""
    if pattern.count(".") >= PUBLISH_SEGMENTS:
        why = f"it has {pattern.count('.') + 1} segments and a topic has {PUBLISH_SEGMENTS} at most"
    elif len(pattern.encode()) > TOPIC_BYTES:
        why = f"it has {len(pattern.encode())} bytes and a topic has {TOPIC_BYTES} at most"
    elif pattern.startswith(KERNEL_TOPICS):
        why = f"only the kernel publishes under {KERNEL_TOPICS[:-1]}"
    if why:
        sheet.warn(f"the row {shown(pattern)} can never match: {why}", "publish", pattern)


def read_subscribe(sheet: Sheet, publish: Mapping[str, PublishRow]) -> tuple[SubscribeRow, ...]:
    """The rows of `[subscribe]`, in order.

    Args:
        publish: the capsule's, which say where a `reply` may go.
    """
    found = []
    for pattern, table in _rows(sheet, "subscribe", SUBSCRIBE):
        where = ("subscribe", pattern)
        handler = sheet.field(table, "handler", str, *where)
        if handler == "":
            sheet.error("handler is empty: it names the action that the guest is called with", *where, "handler")
        if "handler" not in table:
            _check_without_handler(sheet, pattern, table)
        elif pattern.count(".") >= HANDLED_SEGMENTS:
            sheet.warn(
                f"the row {shown(pattern)} can never match: no topic has more than {HANDLED_SEGMENTS} segments", *where
            )
        priority = sheet.number(table, "priority", 0, PRIORITY_MOST, *where)
        found.append(
            SubscribeRow(
                pattern,
                wit=sheet.field(table, "wit", str, *where),
                handler=handler,
                priority=DEFAULT_PRIORITY if priority is None else priority,
                on_error=sheet.word(table, "on_error", ("fail", "continue"), *where) or "fail",
                reply=_reply(sheet, table, pattern, publish),
                guard=sheet.field(table, "guard", bool, *where) or False,
                excepted=_excepted(sheet, table, pattern),
                pin=_pin(sheet, table, *where),
                fanout=table.get("fanout"),
                source=sheet.source,
            )
        )
    return tuple(found)


def _check_without_handler(sheet: Sheet, pattern: str, table: dict[str, Any]) -> None:
    """A row that only allows subscriptions: its other fields mean nothing, and it may be no pattern to subscribe to."""
    where = ("subscribe", pattern)
    for key in OF_HANDLER:
        if key in table:
            given = quoted(table[key]) if isinstance(table[key], str) else shown(table[key])
            mend = row_as_toml(pattern, handler=quoted("on_event"), **{key: given})
            sheet.error(f"{key} means nothing without a handler", *where, key, mend=mend)
    segments = pattern.split(".")
    if len(segments) > PUBLISH_SEGMENTS or len(pattern.encode()) > TOPIC_BYTES:
        limits = f"{PUBLISH_SEGMENTS} segments and {TOPIC_BYTES} bytes"
        sheet.warn(f"the row {shown(pattern)} can never match: a subscription has {limits} at most", *where)
    elif "*" in segments[:-1]:
        text = "has a '*' before its last segment: a handler can have it, but the guest can subscribe only to something narrower"
        sheet.warn(f"the row {shown(pattern)} {text}", *where, mend=row_as_toml(pattern, handler=quoted("on_event")))


def _excepted(sheet: Sheet, table: dict[str, Any], pattern: str) -> tuple[str, ...]:
    """The topics for which the handler is not called although they match."""
    topics = sheet.texts(table, "except", "subscribe", pattern)
    for topic in topics:
        if "*" in topic.split("."):
            sheet.error(f"except lists topics; {shown(topic)} is a pattern", "subscribe", pattern, "except")
        elif not interceptor_matches(topic, pattern):
            text = f"{shown(topic)} is excepted from {shown(pattern)}, which does not match it anyway"
            sheet.warn(text, "subscribe", pattern, "except")
    return topics


def _reply(sheet: Sheet, table: dict[str, Any], pattern: str, publish: Mapping[str, PublishRow]) -> str | None:
    """The topic on which what a handler returns is published, through the capsule's own rows."""
    where = ("subscribe", pattern)
    reply: str | None = sheet.field(table, "reply", str, *where)
    if reply is None:
        return None
    if "*" in reply.split("."):
        sheet.error(f"reply must be one topic; {shown(reply)} is a pattern", *where, "reply")
    elif (fault := topic_fault(reply)) is not None:
        sheet.error(f"reply cannot be published on: {fault}", *where, "reply")
    elif not acl_allows(publish, reply):
        mend = f"[publish]\n{row_as_toml(reply)}"
        sheet.error(f"the capsule may not publish on {shown(reply)}, its reply", *where, "reply", mend=mend)
    return reply


def _rows(sheet: Sheet, name: Table, known: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a table that can be read: patterns, and their fields."""
    found = []
    for key, value in sheet.table(sheet.data, name).items():
        fields = _fields(sheet, name, key, value, known)
        if fields is not None:
            _warn_of_lookalikes(sheet, key, name)
            found.append((key, fields))
    return found


def _fields(sheet: Sheet, name: Table, key: str, value: Any, known: tuple[str, ...]) -> dict[str, Any] | None:
    """What a row says; a string is its wit. None when it is no row."""
    if isinstance(value, dict) and (whole := _cut_topic(key, value, known)) is not None:
        text = f"the topic {shown(whole)} is cut at its dots: write it in quotes"
        sheet.error(text, name, key, mend=row_as_toml(whole))
    elif not valid_segments(key):
        sheet.error(f"the topic {shown(key)} has an empty segment", name, key)
    elif isinstance(value, str):
        return {"wit": value}
    elif not isinstance(value, dict):
        text = f"the row {shown(key)} must be a string or a table; found {shown(value)}"
        sheet.error(text, name, key, mend=row_as_toml(key))
    else:
        sheet.unknown(value, known, name, key)
        if not any(field in value for field in known):
            sheet.error(f"the row {shown(key)} has no wit", name, key, mend=row_as_toml(key))
        return value
    return None


def _cut_topic(key: str, value: dict[str, Any], known: tuple[str, ...]) -> str | None:
    """The whole topic of a row whose key was written without quotes, so that TOML made nested tables of it."""
    names = [key]
    while value:
        name, inner = next(iter(value.items()))
        if not isinstance(inner, dict):
            if name not in known and isinstance(inner, str):
                names.append(name)
            break
        if name == "fanout":
            break
        names.append(name)
        value = inner
    return ".".join(names) if len(names) > 1 else None


def _pin(sheet: Sheet, table: dict[str, Any], *where: str) -> tuple[str, str] | None:
    """The pin of the row's wit: at most one."""
    pins = [pin for pin in PINS if pin in table]
    if len(pins) > 1:
        sheet.error(f"the row {shown(where[-1])} has more than one of {', '.join(pins)}: keep one", *where, pins[1])
    for pin in pins:
        value = sheet.field(table, pin, str, *where)
        if value is not None:
            return pin, value
    return None


def _warn_of_lookalikes(sheet: Sheet, pattern: str, name: Table) -> None:
    for segment in pattern.split("."):
        if ("*" in segment and segment != "*") or segment in (">", "#", "+"):
            text = f"{shown(segment)} in {shown(pattern)} is no wildcard: only '*' as a whole segment is"
            sheet.warn(text, name, pattern)
    if pattern == "*":
        sheet.warn('the row "*" matches topics of a single segment only, not all topics', name, pattern)
