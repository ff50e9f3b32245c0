"""Writing a Capsule.toml that reads back as what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from astrid_host.manifest.schema import (
    DEFAULT_PRIORITY,
    Capabilities,
    EnvField,
    Limits,
    Manifest,
    Package,
    PublishRow,
    SubscribeRow,
)

# Fields whose key is not their name.
KEYS = {"license_file": "license-file", "astrid_version": "astrid-version", "kind": "type"}


def write(manifest: Manifest, path: Path) -> None:
    """Write a manifest to a file.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(dump(manifest), encoding="utf-8")


def dump(manifest: Manifest) -> str:
    """A manifest as TOML; what has its default is left out. A row that says nothing gets `wit = "opaque"`: it needs one."""
    parts = [
        _section("package", _changed(manifest.package, Package("", ""))),
        *(_entry("component", _given(component)) for component in manifest.components),
        _section("imports", _imports(manifest)),
        _section("exports", {f"{row.namespace}:{row.interface}": str(row.version) for row in manifest.exports}),
        _rows("publish", {row.pattern: _publish(row) for row in manifest.publish.values()}),
        _rows("subscribe", {row.pattern: _subscribe(row) for row in manifest.subscribe}),
        *(_entry("tool", _given(tool)) for tool in manifest.tools),
        _section("capabilities", _changed(manifest.capabilities, Capabilities())),
        _section("env", {key: _env(field) for key, field in manifest.env.items()}),
        *(_entry("context_file", _given(entry)) for entry in manifest.context_files),
        *(_entry("command", _given(command, kind="kind")) for command in manifest.commands),
        *(_entry("mcp_server", _given(server)) for server in manifest.mcp_servers),
        *(_entry("uplink", _given(uplink)) for uplink in manifest.uplinks),
        *(_entry("skill", dict(skill)) for skill in manifest.skills),
        _section("limits", _changed(manifest.limits, Limits())),
    ]
    return "\n".join(part for part in parts if part)


def _section(name: str, table: Mapping[str, Any]) -> str:
    return tomli_w.dumps({name: table}) if table else ""


def _entry(name: str, table: Mapping[str, Any]) -> str:
    return f"[[{name}]]\n" + tomli_w.dumps(table) if not _has_tables(table) else tomli_w.dumps({name: [table]})


def _has_tables(table: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Mapping | list) for value in table.values())


def _rows(name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows are read best a line each."""
    if not rows or any(_has_tables(row) for row in rows.values()):
        return _section(name, rows)
    lines = (f"{_pair(pattern)} = {{ {', '.join(_fields(row))} }}" for pattern, row in rows.items())
    return "\n".join((f"[{name}]", *lines, ""))


def _pair(pattern: str) -> str:
    """A topic as a key, always in quotes, as topics are."""
    return tomli_w.dumps({"key": pattern}).removeprefix("key = ").rstrip("\n")


def _fields(row: Mapping[str, Any]) -> Iterable[str]:
    return (tomli_w.dumps({key: value}).rstrip("\n") for key, value in row.items())


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _given(struct: Any, **keys: str) -> dict[str, Any]:
    """The fields that have a value, by their keys."""
    fields = {name: _plain(getattr(struct, name)) for name in struct.__struct_fields__}
    keys = KEYS | keys
    return {keys.get(name, name): value for name, value in fields.items() if value not in (None, [], False)}


def _changed(struct: Any, default: Any) -> dict[str, Any]:
    names = [name for name in struct.__struct_fields__ if getattr(struct, name) != getattr(default, name)]
    return {KEYS.get(name, name): _plain(getattr(struct, name)) for name in names}


def _imports(manifest: Manifest) -> dict[str, Any]:
    return {
        f"{row.namespace}:{row.interface}": {"version": row.requirement.text, "optional": True}
        if row.optional
        else row.requirement.text
        for row in manifest.imports
    }


def _publish(row: PublishRow) -> dict[str, Any]:
    fields = _reference(row)
    if row.settle:
        fields["settle"] = True
    return fields or {"wit": "opaque"}


def _reference(row: PublishRow | SubscribeRow) -> dict[str, Any]:
    """A row's schema and fan-out."""
    fields: dict[str, Any] = {} if row.wit is None else {"wit": row.wit}
    if row.pin is not None:
        fields[row.pin[0]] = row.pin[1]
    if row.fanout is not None:
        fields["fanout"] = row.fanout
    return fields


def _subscribe(row: SubscribeRow) -> dict[str, Any]:
    fields = _reference(row)
    if row.handler is None:
        return fields or {"wit": "opaque"}
    fields["handler"] = row.handler
    if row.priority != DEFAULT_PRIORITY:
        fields["priority"] = row.priority
    if row.on_error != "fail":
        fields["on_error"] = row.on_error
    if row.reply is not None:
        fields["reply"] = row.reply
    if row.guard:
        fields["guard"] = True
    return fields


def _env(field: EnvField) -> dict[str, Any]:
    fields = _given(field)
    for name in ("has_default", "default", "options_from"):
        fields.pop(name, None)
    if field.has_default:
        fields["default"] = field.default
    if field.options_from is not None:
        fields["options_from"] = _given(field.options_from)
    return fields
