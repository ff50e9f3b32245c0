"""Writing a Capsule.toml."""

from __future__ import annotations

from typing import Any

import tomli_w

from astrid_host.manifest.schema import DEFAULT_PRIORITY, Capabilities, Limits, Manifest


def dump(manifest: Manifest) -> str:
    """A manifest as TOML that reads back as the same manifest; what has its default is left out."""
    package = _set(manifest.package)
    for key in ("astrid_version", "license_file"):
        if key in package:
            package[key.replace("_", "-")] = package.pop(key)
    data: dict[str, Any] = {"package": package}
    components = [_set(component) for component in manifest.components]
    data["component"] = components
    for wanted in manifest.imports:
        row: Any = str(wanted.requirement)
        data.setdefault("imports", {})[f"{wanted.namespace}:{wanted.interface}"] = (
            {"version": row, "optional": True} if wanted.optional else row
        )
    for offered in manifest.exports:
        data.setdefault("exports", {})[f"{offered.namespace}:{offered.interface}"] = str(offered.version)
    data["publish"] = {pattern: _row(row) for pattern, row in manifest.publish.items()}
    data["subscribe"] = {row.pattern: _row(row) for row in manifest.subscribe}
    data["tool"] = [_set(tool) for tool in manifest.tools]
    data["command"] = [_set(command) for command in manifest.commands]
    data["capabilities"] = _changed(manifest.capabilities, Capabilities())
    data["env"] = {key: _env(field) for key, field in manifest.env.items()}
    data["limits"] = _changed(manifest.limits, Limits())
    for key, entries in (
        ("context_file", manifest.context_files),
        ("mcp_server", manifest.mcp_servers),
        ("uplink", manifest.uplinks),
        ("skill", manifest.skills),
    ):
        data[key] = [dict(entry) for entry in entries]
    return tomli_w.dumps({key: value for key, value in data.items() if value})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _set(struct: Any) -> dict[str, Any]:
    """The fields that have a value."""
    fields = {name: _plain(getattr(struct, name)) for name in struct.__struct_fields__}
    return {name: value for name, value in fields.items() if value not in (None, "", [], False)}


def _changed(struct: Any, default: Any) -> dict[str, Any]:
    names = [name for name in struct.__struct_fields__ if getattr(struct, name) != getattr(default, name)]
    return {name: _plain(getattr(struct, name)) for name in names}


def _row(row: Any) -> dict[str, Any]:
    fields = _set(row)
    for name in ("pattern", "line"):
        fields.pop(name, None)
    if fields.get("priority") == DEFAULT_PRIORITY or "handler" not in fields:
        fields.pop("priority", None)
    elif getattr(row, "priority", DEFAULT_PRIORITY) == 0:
        fields["priority"] = 0
    if fields.get("on_error") == "fail":
        fields.pop("on_error")
    return fields


def _env(field: Any) -> dict[str, Any]:
    fields = _set(field)
    fields.pop("has_default", None)
    fields.pop("default", None)
    if field.has_default:
        fields["default"] = field.default
    return fields
