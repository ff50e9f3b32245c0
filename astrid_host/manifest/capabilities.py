"""`[capabilities]`, and those of the first component, which are added. (Astrid, manifest: capabilities.)"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from astrid_host.manifest.legacy import IPC, warn_of_legacy_capabilities
from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.schema import Capabilities
from astrid_host.manifest.sheet import Sheet

FLAGS = ("uplink", "allow_persistent", "allow_prompt_injection")
LISTS = ("net", "kv", "fs_read", "fs_write", "host_process", "net_bind", "net_connect", "identity")
KNOWN = (*Capabilities.__struct_fields__, *IPC)
IDENTITY = ("resolve", "link", "admin")
WORKERS_MOST = (1 << 32) - 1
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:/*\s\[\]]+):(?:\*|[0-9]{1,5})")
_PATH = re.compile(r"\*|(?:cwd|home)://.*|/tmp(?:/.*)?", re.DOTALL)
_HOST = re.compile(r"\*|[^:/*\s]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*|\[[0-9A-Fa-f:.]+\]")


def read_capabilities(sheet: Sheet) -> Capabilities:
    """What the capsule may do: a flag or a row counts wherever it stands; the root's `bind_workers` comes first."""
    merged = _one_table(sheet, sheet.table(sheet.data, "capabilities"), "capabilities")
    components = sheet.data.get("component")
    if isinstance(components, list) and components and isinstance(components[0], dict):
        inner = sheet.table(components[0], "capabilities", "component", 0)
        for key, value in _one_table(sheet, inner, "component", 0, "capabilities").items():
            if isinstance(value, tuple):
                merged[key] = tuple(dict.fromkeys((*merged.get(key, ()), *value)))
            elif key in FLAGS:
                merged[key] = merged.get(key, False) or value
            else:
                merged.setdefault(key, value)
    return Capabilities(**merged)


def _one_table(sheet: Sheet, table: dict[str, Any], *where: str | int) -> dict[str, Any]:
    sheet.unknown(table, KNOWN, *where)
    warn_of_legacy_capabilities(sheet, table, *where)
    found: dict[str, Any] = {}
    for key in FLAGS:
        if (flag := sheet.field(table, key, bool, *where)) is not None:
            found[key] = flag
    for key in LISTS:
        if key in table:
            found[key] = sheet.texts(table, key, *where)
            _warn_of_useless(sheet, table, key, *where)
    if (workers := sheet.number(table, "bind_workers", 0, WORKERS_MOST, *where)) is not None:
        found["bind_workers"] = workers
    return found


def _warn_of_useless(sheet: Sheet, table: dict[str, Any], key: str, *where: str | int) -> None:
    """Rows of a form that allows nothing."""
    fault = _FAULTS.get(key)
    rows = table[key] if isinstance(table[key], list) else ()
    for number, row in enumerate(rows):
        if fault is not None and isinstance(row, str) and (found := fault(row)) is not None:
            expected, instead = found
            mend = f"{key} = [{quoted(instead)}]" if instead else ""
            sheet.warn(f"{shown(row)} in {key} allows nothing: expected {expected}", *where, key, number, mend=mend)


Fault = tuple[str, str]  # what was expected, and what to write instead (or nothing)


def _path_fault(row: str) -> Fault | None:
    if _PATH.fullmatch(row) and ".." not in row.split("/"):
        return None
    plain = row.lstrip("./") if ".." not in row.split("/") and "://" not in row else ""
    return "'*', cwd://…, home://… or /tmp/…, without '..'", f"cwd://{plain}"


def _host_fault(row: str) -> Fault | None:
    if _HOST.fullmatch(row):
        return None
    name = re.sub(r"^[a-z+]+://", "", row.strip()).partition("/")[0].partition(":")[0].removeprefix("*.")
    return "a host's name, which covers the names below it, or '*'", name if _HOST.fullmatch(name) else ""


def _connect_fault(row: str) -> Fault | None:
    if _ADDRESS.fullmatch(row) and (row.endswith("*") or int(row.rpartition(":")[2]) < 1 << 16):
        return None
    return "host:port or host:*", ""


def _bind_fault(row: str) -> Fault | None:
    if row.startswith("unix:") and row != "unix:":
        return None
    return ("host:port, host:* or unix:…", "") if _connect_fault(row) else None


def _identity_fault(row: str) -> Fault | None:
    return None if row in IDENTITY else (f"one of {', '.join(IDENTITY)}", "")


def _process_fault(row: str) -> Fault | None:
    return None if row.strip() else ("a command", "")


_FAULTS: dict[str, Callable[[str], Fault | None]] = {
    "fs_read": _path_fault,
    "fs_write": _path_fault,
    "net": _host_fault,
    "net_connect": _connect_fault,
    "net_bind": _bind_fault,
    "identity": _identity_fault,
    "host_process": _process_fault,
}
