"""The rows of `[publish]` and `[subscribe]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from astrid_host.manifest.schema import DEFAULT_PRIORITY, PublishRow, SubscribeRow
from astrid_host.manifest.sheet import Sheet
from astrid_host.topics import PUBLISH_SEGMENTS, TOPIC_BYTES, valid_segments

PINS = ("version", "tag", "rev", "branch", "path")
PUBLISH = ("wit", *PINS, "fanout", "settle")
SUBSCRIBE = ("wit", *PINS, "fanout", "handler", "priority", "on_error", "reply", "guard")
PRIORITY_MOST = (1 << 32) - 1


def read_publish(sheet: Sheet) -> Mapping[str, PublishRow]:
    """The rows of `[publish]` by pattern."""
    found = {}
    for pattern, value in _rows(sheet, "publish"):
        table = _row(sheet, "publish", pattern, value, PUBLISH)
        if table is None:
            continue
        where = ("publish", pattern)
        if not table.get("wit") and not (set(table) - {"wit"}):
            sheet.error(f"the row {pattern!r} names no wit", *where, mend=f'"{pattern}" = {{ wit = "opaque" }}')
        segments = pattern.count(".") + 1
        if segments > PUBLISH_SEGMENTS or len(pattern.encode()) > TOPIC_BYTES:
            sheet.warn(
                f"the row {pattern!r} can never match: a topic has {PUBLISH_SEGMENTS} segments and {TOPIC_BYTES} bytes at most",
                *where,
                mend="shorten the topic",
            )
        _warn_of_lookalikes(sheet, pattern, "publish")
        settle = sheet.field(table, "settle", bool, *where) or False
        found[pattern] = PublishRow(pattern, table.get("wit"), table.get("fanout"), settle, sheet.rows["publish", pattern])
    return found


def read_subscribe(sheet: Sheet) -> tuple[SubscribeRow, ...]:
    """The rows of `[subscribe]`, in order."""
    found = []
    for pattern, value in _rows(sheet, "subscribe"):
        table = _row(sheet, "subscribe", pattern, value, SUBSCRIBE)
        if table is None:
            continue
        where = ("subscribe", pattern)
        handler = sheet.field(table, "handler", str, *where)
        for key in ("priority", "on_error", "reply", "guard"):
            if key in table and handler is None:
                mend = f'"{pattern}" = {{ wit = "opaque", handler = "on_event", {key} = … }}'
                sheet.error(f"{key} means nothing without a handler", *where, key, mend=mend)
        if handler is None and "*" in pattern.split(".")[:-1]:
            text = f"the row {pattern!r} can be subscribed to only in a narrower form: `*` may only be the last segment there"
            sheet.warn(text, *where)
        _warn_of_lookalikes(sheet, pattern, "subscribe")
        priority = sheet.number(table, "priority", 0, PRIORITY_MOST, *where)
        reply = sheet.field(table, "reply", str, *where)
        if reply is not None and not valid_segments(reply):
            sheet.error(f"reply {reply!r} is no topic", *where, "reply")
            reply = None
        on_error = sheet.word(table, "on_error", ("fail", "continue"), *where) or "fail"
        found.append(
            SubscribeRow(
                pattern,
                table.get("wit"),
                handler,
                DEFAULT_PRIORITY if priority is None else priority,
                cast(Any, on_error),
                reply,
                sheet.field(table, "guard", bool, *where) or False,
                sheet.rows["subscribe", pattern],
            )
        )
    return tuple(found)


def _rows(sheet: Sheet, name: str) -> list[tuple[str, Any]]:
    """The rows of a table: topics are quoted keys; what is written with dots outside quotes is put together again."""
    found: list[tuple[str, Any]] = []
    for key, value in sheet.table(sheet.data, name).items():
        if not valid_segments(key):
            sheet.error(f"the topic {key!r} has an empty segment", name, key)
            continue
        if isinstance(value, dict) and value and not (set(value) & set(SUBSCRIBE + PUBLISH)):
            inner = next(iter(value))
            if isinstance(value[inner], dict):
                text = f"the topic {key!r} is cut at its dots: write it in quotes"
                sheet.error(text, name, key, mend=f'"{key}.{inner}…" = {{ wit = "opaque" }}')
                continue
        sheet.note_row(name, key, name, key)
        found.append((key, value))
    return found


def _row(sheet: Sheet, name: str, pattern: str, value: Any, known: tuple[str, ...]) -> dict[str, Any] | None:
    """A row as a table: a string is its wit."""
    if isinstance(value, str):
        return {"wit": value}
    if not isinstance(value, dict):
        mend = f'"{pattern}" = {{ wit = "opaque" }}'
        sheet.error(f"the row {pattern!r} must be a string or table; found {sheet.shown(value)}", name, pattern, mend=mend)
        return None
    sheet.unknown(value, known, name, pattern)
    sheet.field(value, "wit", str, name, pattern)
    pins = [pin for pin in PINS if pin in value]
    if len(pins) > 1:
        sheet.error(f"the row {pattern!r} has more than one of {', '.join(pins)}", name, pattern, mend="keep one of them")
    return value


def _warn_of_lookalikes(sheet: Sheet, pattern: str, name: str) -> None:
    for segment in pattern.split("."):
        if ("*" in segment and segment != "*") or segment == ">":
            text = f"{segment!r} in {pattern!r} is no wildcard: only `*` as a whole segment is"
            sheet.warn(text, name, pattern)


def warn_of_legacy_rows(sheet: Sheet, tables: tuple[str, ...]) -> None:
    """Old forms that have no effect: `[[interceptor]]`, and topic rows at the top of the file."""
    if "interceptor" in sheet.data:
        entries = sheet.data["interceptor"]
        first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
        topic = first.get("topic") or first.get("event") or "some.topic"
        handler = first.get("handler") or first.get("action") or "on_event"
        mend = f'[subscribe]\n"{topic}" = {{ wit = "opaque", handler = "{handler}" }}'
        sheet.warn("[[interceptor]] is an old form without effect", "interceptor", mend=mend)
    for key in sheet.data:
        if key not in tables and "." in key:
            sheet.legacy.add(key)
            mend = f'[publish]\n"{key}" = {{ wit = "opaque" }}'
            sheet.warn(f"the topic {key!r} stands outside [publish] and [subscribe], where it has no effect", key, mend=mend)
