"""`[imports]` and `[exports]`, nested (`[imports.ns] iface = …`) or flat (`"ns:iface" = …`). (Astrid, manifest: imports.)"""

from __future__ import annotations

import re
from typing import Any, Literal

from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.schema import Export, Import
from astrid_host.manifest.sheet import Sheet
from astrid_host.manifest.versions import parse_requirement, parse_version

_NAME = re.compile(r"[a-z][a-z0-9-]*")
Place = tuple[str, ...]


def read_imports(sheet: Sheet) -> tuple[Import, ...]:
    """What the capsule expects of others."""
    found = []
    for namespace, interface, value, place in _pairs(sheet, "imports"):
        optional, text = False, value
        if isinstance(value, dict):
            sheet.unknown(value, ("version", "optional"), *place)
            optional = sheet.field(value, "optional", bool, *place) or False
            text = value.get("version", "*")
        mend = f'[imports.{namespace}]\n{interface} = "^1"'
        if not isinstance(text, str):
            sheet.error(f"an import is a version requirement; found {shown(text)}", *place, mend=mend)
            continue
        try:
            found.append(Import(namespace, interface, parse_requirement(text), optional))
        except ValueError as error:
            sheet.error(str(error), *place, mend=mend)
    return tuple(found)


def read_exports(sheet: Sheet) -> tuple[Export, ...]:
    """What the capsule offers to others."""
    found = []
    for namespace, interface, value, place in _pairs(sheet, "exports"):
        text = value
        if isinstance(value, dict):
            sheet.unknown(value, ("version",), *place)
            text = value.get("version")
        mend = f'[exports.{namespace}]\n{interface} = "1.0.0"'
        if not isinstance(text, str):
            what = "a table without version" if text is None else shown(text)
            sheet.error(f"an export is an exact version; found {what}", *place, mend=mend)
            continue
        try:
            found.append(Export(namespace, interface, parse_version(text)))
        except ValueError as error:
            sheet.error(str(error), *place, mend=mend)
    return tuple(found)


def _pairs(sheet: Sheet, table: Literal["imports", "exports"]) -> list[tuple[str, str, Any, Place]]:
    """Namespace, interface, value and place of each entry whose names are right."""
    found: list[tuple[str, str, Any, Place]] = []
    for key, value in sheet.table(sheet.data, table).items():
        if ":" in key:
            namespace, _, interface = key.partition(":")
            found.append((namespace, interface, value, (table, key)))
        elif isinstance(value, dict):
            found += [(key, interface, inner, (table, key, interface)) for interface, inner in value.items()]
        else:
            version = quoted(value) if isinstance(value, str) else '"1.0.0"'
            text = f"{shown(key)} names no namespace: the interface of one is meant"
            sheet.error(text, table, key, mend=f"{quoted(f'astrid:{key}')} = {version}")
    return [pair for pair in found if _named_rightly(sheet, *pair)]


def _named_rightly(sheet: Sheet, namespace: str, interface: str, _: Any, place: Place) -> bool:
    wrong = {
        what: name for what, name in (("namespace", namespace), ("interface", interface)) if not _NAME.fullmatch(name)
    }
    for what, name in wrong.items():
        sheet.error(f"the {what} {shown(name)} must begin with a-z and consist of a-z, 0-9 and '-'", *place)
    return not wrong
