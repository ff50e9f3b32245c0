"""Forms of older manifests. They have no effect; each is told with what to write now."""

from __future__ import annotations

from typing import Any

from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.rows import row_as_toml
from astrid_host.manifest.sheet import Sheet

# Keys that once were topics' tables, beside topics as keys of their own.
ARRAYS = ("interceptor", "topic")
IPC = {"ipc_publish": "publish", "ipc_subscribe": "subscribe"}
ROWS_MOST = 100  # in one mend


def warn_of_legacy_tables(sheet: Sheet) -> set[str]:
    """Tell of `[[interceptor]]`, `[[topic]]` and topics at the top of the file; which keys those are."""
    told = set()
    if "interceptor" in sheet.data:
        told.add("interceptor")
        rows = [_handler_row(entry) for entry in _tables(sheet.data["interceptor"])]
        text = "[[interceptor]] is an old form without effect: a handler is a row of [subscribe]"
        sheet.warn(text, "interceptor", mend=_mend("subscribe", rows))
    if "topic" in sheet.data:
        told.add("topic")
        names = (_text(entry, "name", "topic") or "some.topic" for entry in _tables(sheet.data["topic"]))
        text = "[[topic]] is an old form without effect: topics are rows of [publish] and [subscribe]"
        sheet.warn(text, "topic", mend=_mend("publish", [row_as_toml(name) for name in names]))
    for key in sheet.data:
        if "." in key:
            told.add(key)
            text = f"the topic {shown(key)} stands outside of [publish] and [subscribe], where it has no effect"
            sheet.warn(text, key, mend=_mend("publish", [row_as_toml(key)]))
    return told


def warn_of_legacy_capabilities(sheet: Sheet, table: dict[str, Any], *where: str | int) -> None:
    """Tell of `ipc_publish` and `ipc_subscribe`, which allow nothing any more."""
    for key, name in IPC.items():
        if sheet.field(table, key, list, *where) is None:
            continue
        topics = sheet.texts(table, key, *where)
        mend = _mend(name, [row_as_toml(topic) for topic in topics])
        sheet.warn(f"{key} is an old form without effect: topics are rows of [{name}]", *where, key, mend=mend)


def _handler_row(entry: dict[str, Any]) -> str:
    fields = {"handler": quoted(_text(entry, "action", "handler") or "on_event")}
    if isinstance(entry.get("priority"), int):
        fields["priority"] = shown(entry["priority"])
    return row_as_toml(_text(entry, "event", "topic") or "some.topic", **fields)


def _tables(value: Any) -> list[dict[str, Any]]:
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if isinstance(entry, dict)]


def _text(entry: dict[str, Any], *keys: str) -> str | None:
    return next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)


def _mend(table: str, rows: list[str]) -> str:
    return "\n".join((f"[{table}]", *rows[:ROWS_MOST])) if rows else f"[{table}]"
