"""The tables of a Capsule.toml, one function each: what is refused, what is only said, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from astrid_host.manifest.rows import read_publish, read_subscribe, warn_of_legacy_rows
from astrid_host.manifest.schema import (
    Capabilities,
    Command,
    Component,
    EnvField,
    Export,
    Import,
    Limits,
    Manifest,
    Package,
    ToolRow,
)
from astrid_host.manifest.sheet import Sheet
from astrid_host.manifest.versions import Version, parse_requirement, parse_version

# What this host claims to be, for `[package] astrid-version`.
ASTRID_VERSION = Version(0, 10, 4)

TABLES = (
    "package", "component", "imports", "exports", "publish", "subscribe", "tool", "capabilities", "env", "context_file",
    "command", "mcp_server", "uplink", "skill", "limits", "interceptor",
)  # fmt: skip
PACKAGE = (
    "name", "version", "description", "authors", "repository", "homepage", "documentation", "license", "license-file",
    "license_file", "readme", "keywords", "categories", "astrid-version", "astrid_version", "publish", "include", "exclude",
    "metadata", "yields_to",
)  # fmt: skip
COMPONENT = ("id", "file", "entrypoint", "hash", "type", "link", "capabilities")
CAPABILITIES = (*Capabilities.__struct_fields__, "ipc_publish", "ipc_subscribe")
ENV = (
    "type", "request", "description", "default", "enum_values", "placeholder", "options_from", "options-from", "scope",
)  # fmt: skip
ENV_TYPES = ("text", "secret", "select", "array", "string", "integer")
RESERVED_COMMANDS = frozenset("new install update list remove tree deps build check config show run help".split())
_ID = re.compile(r"[a-z0-9][a-z0-9-]*")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_ADDRESS = re.compile(r"unix:.+|.+:(\*|[0-9]{1,5})")
MEMORY_LEAST, MEMORY_MOST = 1 << 16, 4 << 30
DAY_S = 86_400


def read_manifest(sheet: Sheet) -> Manifest | None:
    """The manifest that a sheet holds; None when it has no name or version. Problems go to the sheet."""
    data = sheet.data
    warn_of_legacy_rows(sheet, TABLES)
    sheet.unknown({key: None for key in data if key not in sheet.legacy}, TABLES)
    package = _package(sheet)
    components = _components(sheet)
    publish = read_publish(sheet)
    subscribe = read_subscribe(sheet)
    imports, exports = _imports(sheet), _exports(sheet)
    capabilities = _capabilities(sheet)
    if capabilities.uplink and imports:
        sheet.error("a capsule with uplink = true may not import anything", "imports", mend="remove [imports], or uplink")
    tools = _tools(sheet)
    manifest_parts: dict[str, Any] = {
        "env": _env(sheet),
        "commands": _commands(sheet),
        "limits": _limits(sheet),
    }
    for field, key in (
        ("context_files", "context_file"),
        ("mcp_servers", "mcp_server"),
        ("uplinks", "uplink"),
        ("skills", "skill"),
    ):
        manifest_parts[field] = tuple(entry for _, entry in sheet.entries(key))
    if package is None:
        return None
    return Manifest(
        package=package,
        components=components,
        imports=imports,
        exports=exports,
        publish=publish,
        subscribe=subscribe,
        tools=tools,
        capabilities=capabilities,
        path=sheet.path,
        lines=sheet.rows,
        **manifest_parts,
    )


def _package(sheet: Sheet) -> Package | None:
    table = sheet.table(sheet.data, "package")
    if not table:
        sheet.error("there is no [package]", mend='[package]\nname = "my-capsule"\nversion = "0.1.0"')
        return None
    sheet.unknown(table, PACKAGE, "package")
    name, version = (sheet.field(table, key, str, "package") for key in ("name", "version"))
    for key, value in (("name", name), ("version", version)):
        if value is None and key not in table:
            example = "my-capsule" if key == "name" else "0.1.0"
            sheet.error(f"[package] has no {key}", "package", mend=f'{key} = "{example}"')
    if name is not None and not _ID.fullmatch(name):
        sheet.error(f"the name {name!r} must consist of a-z, 0-9 and '-'", "package", "name", mend=_as_id(name))
    if version is not None:
        try:
            parse_version(version)
        except ValueError as error:
            sheet.error(str(error), "package", "version", mend='version = "0.1.0"')
    wanted = _astrid_version(sheet, table)
    if name is None or version is None:
        return None
    texts = {key: sheet.field(table, key, str, "package") for key in
             ("description", "repository", "homepage", "documentation", "license", "readme")}  # fmt: skip
    lists = {key: sheet.texts(table, key, "package") for key in ("authors", "keywords", "categories", "yields_to")}
    license_file = table.get("license-file", table.get("license_file"))
    return Package(name, version, astrid_version=wanted, license_file=license_file, **texts, **lists)


def _as_id(name: str) -> str:
    return f'name = "{re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "my-capsule"}"'


def _astrid_version(sheet: Sheet, table: dict[str, Any]) -> str | None:
    key = "astrid-version" if "astrid-version" in table else "astrid_version"
    wanted: str | None = sheet.field(table, key, str, "package")
    if wanted is None:
        return None
    try:
        if not parse_requirement(wanted).allows(ASTRID_VERSION):
            sheet.error(f"it needs Astrid {wanted}; this host offers what Astrid {ASTRID_VERSION} does", "package", key)
    except ValueError as error:
        sheet.error(str(error), "package", key)
    return wanted


def _components(sheet: Sheet) -> tuple[Component, ...]:
    found = []
    for number, table in sheet.entries("component"):
        where = ("component", number)
        sheet.unknown(table, COMPONENT, *where)
        key = "file" if "file" in table else "entrypoint"
        file = sheet.field(table, key, str, *where)
        if file is None:
            if key not in table:
                sheet.error("[[component]] has no file", *where, mend='file = "my_capsule.wasm"')
            continue
        digest = sheet.field(table, "hash", str, *where)
        _check_file(sheet, file, digest, number, key)
        found.append(Component(file, sheet.field(table, "id", str, *where) or "", digest))
    if len(found) > 1:
        sheet.warn("only the first [[component]] is loaded", "component", 1)
    if not found and not sheet.data.get("component"):
        sheet.warn("there is no [[component]], so there is nothing to run", mend='[[component]]\nfile = "my_capsule.wasm"')
    return tuple(found)


def _check_file(sheet: Sheet, file: str, digest: str | None, number: int, key: str) -> None:
    """The file must be inside the capsule's folder, links resolved."""
    folder = sheet.path.parent
    try:
        inside = (folder / file).resolve().is_relative_to(folder.resolve())
        exists = (folder / file).is_file()
    except (OSError, ValueError, RuntimeError):
        inside = exists = False
    if not inside:
        sheet.error(f"the file {file!r} leads out of the capsule's folder", "component", number, key)
    elif not exists and number == 0:
        sheet.error(f"there is no file {file!r} beside the manifest: build the capsule first", "component", number, key)
    if digest is not None and not _HASH.fullmatch(digest.removeprefix("blake3:")):
        sheet.warn(f"hash {digest!r} is no BLAKE3 in hexadecimal", "component", number, "hash")


def _pairs(sheet: Sheet, table_name: str) -> list[tuple[str, str, Any, tuple[str | int, ...]]]:
    """The entries of [imports] or [exports], nested (`[imports.ns] iface = …`) or flat (`"ns:iface" = …`)."""
    found = []
    for key, value in sheet.table(sheet.data, table_name).items():
        if ":" in key:
            namespace, _, interface = key.partition(":")
            found.append((namespace, interface, value, (table_name, key)))
        elif isinstance(value, dict):
            for interface, inner in value.items():
                found.append((key, interface, inner, (table_name, key, interface)))
        else:
            mend = f'[{table_name}.astrid]\n{key} = "{value}"'
            sheet.error(f"{key!r} names no namespace: expected \"namespace:{key}\"", table_name, key, mend=mend)
    for namespace, interface, _, path in found:
        for part in (namespace, interface):
            if not _NAME.fullmatch(part):
                sheet.error(f"{part!r} must begin with a-z and consist of a-z, 0-9 and '-'", *path)
    return found


def _imports(sheet: Sheet) -> tuple[Import, ...]:
    found = []
    for namespace, interface, value, path in _pairs(sheet, "imports"):
        optional = False
        text = value
        if isinstance(value, dict):
            sheet.unknown(value, ("version", "optional"), *path)
            optional = sheet.field(value, "optional", bool, *path) or False
            text = value.get("version", "*")
        if not isinstance(text, str):
            sheet.error(f"an import is a version requirement; found {sheet.shown(value)}", *path, mend=f'{interface} = "^1"')
            continue
        try:
            found.append(Import(namespace, interface, parse_requirement(text), optional))
        except ValueError as error:
            sheet.error(str(error), *path)
    return tuple(found)


def _exports(sheet: Sheet) -> tuple[Export, ...]:
    found = []
    for namespace, interface, value, path in _pairs(sheet, "exports"):
        text = value.get("version") if isinstance(value, dict) else value
        if isinstance(value, dict):
            sheet.unknown(value, ("version",), *path)
        if not isinstance(text, str):
            sheet.error(f"an export is an exact version; found {sheet.shown(value)}", *path, mend=f'{interface} = "1.0.0"')
            continue
        try:
            found.append(Export(namespace, interface, parse_version(text)))
        except ValueError as error:
            sheet.error(str(error), *path)
    return tuple(found)


def _tools(sheet: Sheet) -> tuple[ToolRow, ...]:
    found = []
    for number, table in sheet.entries("tool"):
        where = ("tool", number)
        sheet.unknown(table, ToolRow.__struct_fields__, *where)
        name = sheet.field(table, "name", str, *where)
        if name is None:
            if "name" not in table:
                sheet.error("[[tool]] has no name", *where, mend='name = "my_tool"')
            continue
        sheet.note_row("tool", name, *where)
        found.append(
            ToolRow(
                name,
                sheet.field(table, "description_for_llm", str, *where),
                sheet.field(table, "input_schema_wit", str, *where),
                sheet.field(table, "mutable", bool, *where) or False,
            )
        )
    return tuple(found)


def _capabilities(sheet: Sheet) -> Capabilities:
    """Those of the root and of the first component, together."""
    merged = _capability_table(sheet, sheet.table(sheet.data, "capabilities"), "capabilities")
    components = sheet.entries("component")
    if components:
        inner = sheet.table(components[0][1], "capabilities", "component", 0)
        for key, value in _capability_table(sheet, inner, "component", 0, "capabilities").items():
            held = merged.get(key)
            if isinstance(value, tuple):
                merged[key] = tuple(dict.fromkeys((*(held or ()), *value)))
            elif key == "bind_workers":
                merged[key] = value if held is None else held
            else:
                merged[key] = value or held
    return Capabilities(**merged)


def _capability_table(sheet: Sheet, table: dict[str, Any], *where: str | int) -> dict[str, Any]:
    sheet.unknown(table, CAPABILITIES, *where)
    found: dict[str, Any] = {}
    for key in ("uplink", "allow_persistent", "allow_prompt_injection"):
        if (flag := sheet.field(table, key, bool, *where)) is not None:
            found[key] = flag
    for key in ("net", "kv", "fs_read", "fs_write", "host_process", "net_bind", "net_connect", "identity"):
        if key in table:
            found[key] = sheet.texts(table, key, *where)
    if (workers := sheet.number(table, "bind_workers", 1, 1 << 16, *where)) is not None:
        found["bind_workers"] = workers
    for key, table_name in (("ipc_publish", "publish"), ("ipc_subscribe", "subscribe")):
        if key in table:
            rows = "\n".join(f'"{topic}" = {{ wit = "opaque" }}' for topic in table[key]) if table[key] else ""
            sheet.warn(f"{key} is an old form without effect", *where, key, mend=f"[{table_name}]\n{rows}")
    for key in ("net_bind", "net_connect"):
        for row in cast(tuple[str, ...], found.get(key, ())):
            if not _ADDRESS.fullmatch(row):
                sheet.warn(f"{row!r} in {key} matches nothing: expected host:port, host:* or unix:…", *where, key)
    for row in cast(tuple[str, ...], found.get("identity", ())):
        if row not in ("resolve", "link", "admin"):
            sheet.warn(f"{row!r} in identity is unknown: expected resolve, link or admin", *where, "identity")
    return found


def _env(sheet: Sheet) -> Mapping[str, EnvField]:
    found = {}
    for key, table in sheet.table(sheet.data, "env").items():
        if not isinstance(table, dict):
            mend = f'[env]\n{key} = {{ type = "text", default = "…" }}'
            sheet.error(f"the field {key!r} must be a table; found {sheet.shown(table)}", "env", key, mend=mend)
            continue
        sheet.unknown(table, ENV, "env", key)
        kind = sheet.field(table, "type", str, "env", key) or "text"
        if kind not in ENV_TYPES:
            sheet.warn(f"the type {kind!r} is unknown and taken for text: known are {', '.join(ENV_TYPES)}", "env", key, "type")
        sheet.note_row("env", key, "env", key)
        found[key] = EnvField(
            kind,
            sheet.field(table, "request", str, "env", key),
            sheet.field(table, "description", str, "env", key),
            table.get("default"),
            "default" in table,
            sheet.texts(table, "enum_values", "env", key),
            sheet.field(table, "placeholder", str, "env", key),
            table.get("options_from", table.get("options-from")),
        )
    return found


def _commands(sheet: Sheet) -> tuple[Command, ...]:
    found = []
    for number, table in sheet.entries("command"):
        where = ("command", number)
        sheet.unknown(table, Command.__struct_fields__, *where)
        name = sheet.field(table, "name", str, *where)
        kind = sheet.word(table, "kind", ("slash", "cli"), *where) or "slash"
        if name is None:
            if "name" not in table:
                sheet.error("[[command]] has no name", *where, mend='name = "my-command"')
            continue
        if kind == "cli" and (not _COMMAND.fullmatch(name) or name in RESERVED_COMMANDS):
            what = "is reserved" if name in RESERVED_COMMANDS else "must begin with a-z and have 32 characters at most"
            sheet.error(f"the name {name!r} of a cli command {what}", *where, "name")
        description = sheet.field(table, "description", str, *where)
        found.append(Command(name, description, sheet.field(table, "file", str, *where), cast(Any, kind)))
    return tuple(found)


def _limits(sheet: Sheet) -> Limits:
    table = sheet.table(sheet.data, "limits")
    sheet.unknown(table, Limits.__struct_fields__, "limits")
    given: dict[str, Any] = {
        "memory_bytes": sheet.number(table, "memory_bytes", MEMORY_LEAST, MEMORY_MOST, "limits"),
        "concurrency": sheet.number(table, "concurrency", 1, 1024, "limits"),
        "on_trap": sheet.word(table, "on_trap", ("quarantine", "reload"), "limits"),
    }
    seconds = table.get("timeout_secs")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= DAY_S:
            text = f"timeout_secs must be more than 0 and at most {DAY_S}; found {sheet.shown(seconds)}"
            sheet.error(text, "limits", "timeout_secs")
        else:
            given["timeout_secs"] = float(seconds)
    return Limits(**{key: value for key, value in given.items() if value is not None})
