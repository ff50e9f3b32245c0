"""The tables of a Capsule.toml: what is refused, what is only said, and what comes of it. (Astrid, manifest.)

`[package]`, `[[component]]`, `[imports]`, `[exports]`, `[publish]`, `[subscribe]` and `[capabilities]` have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from astrid_host.manifest.capabilities import read_capabilities
from astrid_host.manifest.interfaces import read_exports, read_imports
from astrid_host.manifest.legacy import warn_of_legacy_tables
from astrid_host.manifest.package import read_components, read_package
from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.rows import read_publish, read_subscribe
from astrid_host.manifest.schema import (
    Command,
    ContextFile,
    EnvField,
    Limits,
    Manifest,
    McpServer,
    OptionsFrom,
    ToolRow,
    Uplink,
)
from astrid_host.manifest.sheet import Sheet

TABLES = (
    "package", "component", "imports", "exports", "publish", "subscribe", "tool", "capabilities", "env", "context_file",
    "command", "mcp_server", "uplink", "skill", "limits",
)  # fmt: skip
ENV = (
    "type", "request", "description", "default", "enum_values", "placeholder", "options_from", "options-from", "scope",
)  # fmt: skip
ENV_TYPES = ("text", "secret", "select", "array", "string", "integer")
HOST_KEY = "ASTRID_SOCKET_PATH"
DEFAULT_DEPTH = 16
RESERVED_COMMANDS = frozenset((
    "new", "install", "update", "list", "remove", "tree", "deps", "build", "check", "config", "show", "run", "help",
))  # fmt: skip
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}")
MEMORY_LEAST, MEMORY_MOST = 1 << 16, 4 << 30
CONCURRENCY_MOST = 1024
DAY_S = 86_400

Entry = TypeVar("Entry", ContextFile, Uplink)


def read_manifest(sheet: Sheet) -> Manifest | None:
    """The manifest that a sheet holds; None when it has no name or version. Problems go to the sheet."""
    legacy = warn_of_legacy_tables(sheet)
    sheet.unknown({key: value for key, value in sheet.data.items() if key not in legacy}, TABLES)
    package = read_package(sheet)
    publish = read_publish(sheet)
    parts: dict[str, Any] = {
        "components": read_components(sheet),
        "imports": read_imports(sheet),
        "exports": read_exports(sheet),
        "publish": publish,
        "subscribe": read_subscribe(sheet, publish),
        "tools": _tools(sheet),
        "capabilities": read_capabilities(sheet),
        "env": _env(sheet),
        "commands": _commands(sheet),
        "context_files": _of_texts(sheet, "context_file", ContextFile),
        "mcp_servers": _mcp_servers(sheet),
        "uplinks": _of_texts(sheet, "uplink", Uplink),
        "skills": tuple(entry for _, entry in sheet.entries("skill")),
        "limits": _limits(sheet),
    }
    if parts["capabilities"].uplink and sheet.data.get("imports"):
        sheet.error("a capsule with uplink = true may not import anything: remove one of the two", "imports")
    _warn_of_mcp_commands(sheet, parts["mcp_servers"], parts["capabilities"].host_process)
    return None if package is None else Manifest(package, path=sheet.path, source=sheet.source, **parts)


def _tools(sheet: Sheet) -> tuple[ToolRow, ...]:
    found: dict[str, ToolRow] = {}
    for number, table in sheet.entries("tool"):
        where = ("tool", number)
        sheet.unknown(table, ToolRow.__struct_fields__, *where)
        name = sheet.needed(table, "name", "my_tool", *where)
        described = [sheet.field(table, key, str, *where) for key in ("description_for_llm", "input_schema_wit")]
        mutable, asks = (sheet.field(table, key, bool, *where) or False for key in ("mutable", "asks_approval"))
        if name in found:
            sheet.warn(f"a second [[tool]] is named {shown(name)}; the first counts", *where)
        elif name is not None:
            sheet.source.note("tool", name, *where)
            found[name] = ToolRow(name, described[0], described[1], mutable, asks)
    return tuple(found.values())


def _env(sheet: Sheet) -> Mapping[str, EnvField]:
    found = {}
    for key, table in sheet.table(sheet.data, "env").items():
        where = ("env", key)
        if not isinstance(table, dict):
            given = quoted(table) if isinstance(table, str) else shown(table)
            mend = f'{_key(key)} = {{ type = "text", default = {given} }}'
            sheet.error(f"the field {shown(key)} must be a table; found {shown(table)}", *where, mend=mend)
            continue
        sheet.unknown(table, ENV, *where)
        kind = sheet.needed(table, "type", "text", *where)
        if kind is not None and kind not in ENV_TYPES:
            sheet.warn(
                f"the type {shown(kind)} is unknown and taken for text: known are {', '.join(ENV_TYPES)}",
                *where,
                "type",
            )
        if key == HOST_KEY:
            sheet.warn(f"{HOST_KEY} is set by the host: what is declared here has no effect", *where)
        default = table.get("default")
        if not _is_shallow(default, DEFAULT_DEPTH):
            sheet.error(f"default nests deeper than {DEFAULT_DEPTH}", *where, "default")
        found[key] = EnvField(
            "text" if kind is None else kind,
            sheet.field(table, "request", str, *where),
            sheet.field(table, "description", str, *where),
            default,
            "default" in table,
            sheet.texts(table, "enum_values", *where),
            sheet.field(table, "placeholder", str, *where),
            _options(sheet, table, *where),
        )
    return found


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def _is_shallow(value: Any, depth: int) -> bool:
    """Whether a value nests no deeper than so many levels."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in inner)


def _options(sheet: Sheet, table: dict[str, Any], *where: str) -> OptionsFrom | None:
    key = sheet.either(table, "options_from", "options-from", *where)
    inner = sheet.field(table, key, dict, *where)
    if inner is None:
        return None
    place = (*where, key)
    sheet.unknown(inner, OptionsFrom.__struct_fields__, *place)
    http = sheet.needed(inner, "http", "{base_url}/models", *place)
    bearer, select = (sheet.field(inner, name, str, *place) for name in ("bearer", "select"))
    return None if http is None else OptionsFrom(http, bearer, select, sheet.texts(inner, "after", *place))


def _commands(sheet: Sheet) -> tuple[Command, ...]:
    found = []
    for number, table in sheet.entries("command"):
        where = ("command", number)
        sheet.unknown(table, Command.__struct_fields__, *where)
        name = sheet.needed(table, "name", "my-command", *where)
        kind = sheet.word(table, "kind", ("slash", "cli"), *where) or "slash"
        description, file = (sheet.field(table, key, str, *where) for key in ("description", "file"))
        if name is None:
            continue
        if kind == "cli" and name in RESERVED_COMMANDS:
            sheet.error(f"the name {shown(name)} of a cli command is reserved", *where, "name")
        elif kind == "cli" and not _COMMAND.fullmatch(name):
            rule = "must begin with a-z, go on with a-z, 0-9 and '-', and have 32 characters at most"
            text = f"the name {shown(name)} of a cli command {rule}"
            sheet.error(text, *where, "name")
        sheet.source.note("command", name, *where)
        found.append(Command(name, description, file, cast(Any, kind)))
    return tuple(found)


def _of_texts(sheet: Sheet, name: str, kind: type[Entry]) -> tuple[Entry, ...]:
    """The entries of a table whose fields are all texts."""
    found = []
    for number, table in sheet.entries(name):
        where = (name, number)
        sheet.unknown(table, kind.__struct_fields__, *where)
        found.append(kind(*(sheet.field(table, key, str, *where) for key in kind.__struct_fields__)))
    return tuple(found)


def _mcp_servers(sheet: Sheet) -> tuple[McpServer, ...]:
    found = []
    for number, table in sheet.entries("mcp_server"):
        where = ("mcp_server", number)
        texts = ("id", "description", "type", "command")
        sheet.unknown(table, (*texts, "args"), *where)
        name, description, kind, command = (sheet.field(table, key, str, *where) for key in texts)
        found.append(McpServer(name, description, kind, command, sheet.texts(table, "args", *where)))
    return tuple(found)


def _warn_of_mcp_commands(sheet: Sheet, servers: tuple[McpServer, ...], allowed: tuple[str, ...]) -> None:
    for number, server in enumerate(servers):
        where = ("mcp_server", number)
        if server.kind != "stdio":
            sheet.warn(
                f"the server is not started: its type is {shown(server.kind or '')}", *where, mend='type = "stdio"'
            )
        elif server.command is not None and server.command not in allowed:
            mend = f"[capabilities]\nhost_process = [{', '.join(map(quoted, (*allowed, server.command)))}]"
            sheet.warn(f"the server's command {shown(server.command)} is not in host_process", *where, mend=mend)


def _limits(sheet: Sheet) -> Limits:
    table = sheet.table(sheet.data, "limits")
    sheet.unknown(table, Limits.__struct_fields__, "limits")
    given: dict[str, Any] = {
        "memory_bytes": sheet.number(table, "memory_bytes", MEMORY_LEAST, MEMORY_MOST, "limits"),
        "concurrency": sheet.number(table, "concurrency", 1, CONCURRENCY_MOST, "limits"),
        "on_trap": sheet.word(table, "on_trap", ("quarantine", "reload"), "limits"),
    }
    seconds = table.get("timeout_secs")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= DAY_S:
        given["timeout_secs"] = float(seconds)
    elif seconds is not None:
        text = f"timeout_secs must be more than 0 and at most {DAY_S} seconds; found {shown(seconds)}"
        sheet.error(text, "limits", "timeout_secs")
    return Limits(**{key: value for key, value in given.items() if value is not None})
