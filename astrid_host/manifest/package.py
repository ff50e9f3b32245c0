"""`[package]` and `[[component]]`: who the capsule is, and which file it runs. (Astrid, manifest: package, component.)"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from astrid_host.errors import LoadError
from astrid_host.manifest.files import hash_of_module
from astrid_host.manifest.problems import quoted, shown
from astrid_host.manifest.schema import Component, Package
from astrid_host.manifest.sheet import Sheet
from astrid_host.manifest.versions import Version, parse_requirement, parse_version

# What this host claims to be, for `[package] astrid-version`.
ASTRID_VERSION = Version(0, 10, 4)

TEXTS = ("description", "repository", "homepage", "documentation", "license", "readme")
LISTS = ("authors", "keywords", "categories", "yields_to")
PACKAGE = (
    "name", "version", *TEXTS, *LISTS, "license-file", "license_file", "astrid-version", "astrid_version", "publish",
    "include", "exclude", "metadata",
)  # fmt: skip
COMPONENT = ("id", "file", "entrypoint", "hash", "type", "link", "capabilities")
NAME_CHARACTERS = 128
_ID = re.compile(r"[a-z0-9-]+")
_HASH = re.compile(r"[0-9a-fA-F]{64}")


def read_package(sheet: Sheet) -> Package | None:
    """The package; None when it has no name or no version."""
    if "package" not in sheet.data:
        sheet.error("there is no [package]", mend='[package]\nname = "my-capsule"\nversion = "0.1.0"')
        return None
    table = sheet.field(sheet.data, "package", dict)
    if table is None:
        return None
    sheet.unknown(table, PACKAGE, "package")
    name = sheet.needed(table, "name", "my-capsule", "package")
    version = sheet.needed(table, "version", "0.1.0", "package")
    if name is not None and not _ID.fullmatch(name):
        text = f"the name {shown(name)} must consist of a-z, 0-9 and '-'"
        sheet.error(text, "package", "name", mend=f"name = {quoted(_as_id(name))}")
    elif name is not None and len(name) > NAME_CHARACTERS:
        sheet.error(f"the name has {len(name)} characters; {NAME_CHARACTERS} are allowed", "package", "name")
    if version is not None:
        try:
            parse_version(version)
        except ValueError as error:
            sheet.error(str(error), "package", "version", mend='version = "0.1.0"')
    key = sheet.either(table, "astrid-version", "astrid_version", "package")
    wanted = sheet.field(table, key, str, "package")
    if wanted is not None:
        _check_astrid_version(sheet, wanted, key)
    key = sheet.either(table, "license-file", "license_file", "package")
    fields: dict[str, Any] = {field: sheet.field(table, field, str, "package") for field in TEXTS}
    fields |= {field: sheet.texts(table, field, "package") for field in LISTS}
    fields |= {"license_file": sheet.field(table, key, str, "package"), "astrid_version": wanted}
    return None if name is None or version is None else Package(name, version, **fields)


def _as_id(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "my-capsule"


def _check_astrid_version(sheet: Sheet, wanted: str, key: str) -> None:
    mend = f'{key} = ">={ASTRID_VERSION}"'
    try:
        if not parse_requirement(wanted).allows(ASTRID_VERSION):
            text = f"it needs Astrid {shown(wanted)}; this host offers what Astrid {ASTRID_VERSION} does"
            sheet.error(text, "package", key, mend=mend)
    except ValueError as error:
        sheet.error(str(error), "package", key, mend=mend)


def read_components(sheet: Sheet) -> tuple[Component, ...]:
    """The components; only the first one's file is looked at, since only that is loaded."""
    found = []
    for number, table in sheet.entries("component"):
        where = ("component", number)
        sheet.unknown(table, COMPONENT, *where)
        key = sheet.either(table, "file", "entrypoint", *where)
        file = sheet.needed(table, key, "my_capsule.wasm", *where)
        digest = sheet.field(table, "hash", str, *where)
        if number == 1:
            sheet.warn("only the first [[component]] is loaded", *where)
        if file is None:
            continue
        if number == 0 and _is_there(sheet, file, key):
            _check_hash(sheet, file, digest)
        kind, link = sheet.field(table, "type", str, *where), sheet.texts(table, "link", *where)
        found.append(Component(file, sheet.field(table, "id", str, *where) or "", digest, kind or "", link))
    if not sheet.data.get("component"):
        text = "there is no [[component]], so there is nothing to run"
        sheet.warn(text, mend='[[component]]\nid = "default"\nfile = "my_capsule.wasm"')
    return tuple(found)


def _is_there(sheet: Sheet, file: str, key: str) -> bool:
    """Whether the file is there, and inside the capsule's folder with links resolved."""
    folder, place = sheet.path.parent, ("component", 0, key)
    example = f'{key} = "my_capsule.wasm"'
    if not file or "\0" in file:
        sheet.error(f"{shown(file)} is no file name", *place, mend=example)
        return False
    try:
        outside = Path(file).is_absolute() or not (folder / file).resolve().is_relative_to(folder.resolve())
        there = (folder / file).is_file()
    except (OSError, RuntimeError):  # too long, or links in a circle
        outside, there = False, False
    if outside:
        text = f"the file {shown(file)} leads out of the capsule's folder: it must be inside, and named from there"
        sheet.error(text, *place, mend=example)
    elif not there:
        sheet.error(f"there is no file {shown(file)} beside the manifest: build the capsule first", *place)
    return there and not outside


def _check_hash(sheet: Sheet, file: str, digest: str | None) -> None:
    """A hash that is given has to be right. Whether it is comes from the file, so it costs what reading that costs."""
    if digest is None:
        return
    wanted = digest.removeprefix("blake3:")
    if not _HASH.fullmatch(wanted):
        text = f"hash {shown(digest)} is not compared: expected a BLAKE3 of 64 hexadecimal digits"
        sheet.warn(text, "component", 0, "hash")
        return
    try:
        real = hash_of_module(sheet.path.parent / file)
    except LoadError as error:
        sheet.error(str(error), "component", 0)
        return
    if real != wanted.lower():
        text = f"the file {shown(file)} is not the one that hash is of"
        sheet.error(text, "component", 0, "hash", mend=f'hash = "{real}"')
