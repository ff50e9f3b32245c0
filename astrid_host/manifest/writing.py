"""Writing a Capsule.toml that reads back as what was written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
_BARE = re.compile(r"[A-Za-z0-9_-]+")


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
        *_entries("component", map(_given, manifest.components)),
        _section("imports", _imports(manifest)),
        _section("exports", {f"{row.namespace}:{row.interface}": str(row.version) for row in manifest.exports}),
        _section("publish", {row.pattern: _publish(row) for row in manifest.publish.values()}),
        _section("subscribe", {row.pattern: _subscribe(row) for row in manifest.subscribe}),
        *_entries("tool", map(_given, manifest.tools)),
        _section("capabilities", _changed(manifest.capabilities, Capabilities())),
        _section("env", {key: _env(field) for key, field in manifest.env.items()}),
        *_entries("context_file", map(_given, manifest.context_files)),
        *_entries("command", (_given(command, kind="kind") for command in manifest.commands)),
        *_entries("mcp_server", map(_given, manifest.mcp_servers)),
        *_entries("uplink", map(_given, manifest.uplinks)),
        *_entries("skill", manifest.skills),
        _section("limits", _changed(manifest.limits, Limits())),
    ]
    return "\n".join(part for part in parts if part)


def _section(name: str, table: Mapping[str, Any]) -> str:
    return "\n".join((f"[{name}]", *_pairs(table), "")) if table else ""


def _entries(name: str, tables: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return ("\n".join((f"[[{name}]]", *_pairs(table), "")) for table in tables)


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    """Each key with its value on one line, as rows are read best."""
    return (f"{_key(key)} = {_inline(value)}" for key, value in table.items())


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _inline(name)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    import tomli_w  # nothing that is only run writes a manifest

    return tomli_w.dumps({"key": value}).removeprefix("key = ").rstrip("\n")


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
    if row.excepted:
        fields["except"] = list(row.excepted)
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
