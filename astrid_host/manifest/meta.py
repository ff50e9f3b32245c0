"""`meta.json`: what was written beside a capsule when it was installed.

A folder without one is loaded. Where it has a `wasm_hash`, whoever loads the module compares it. (Astrid, capsule integrity.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from astrid_host.errors import LoadError
from astrid_host.manifest.problems import Problem, shown
from astrid_host.manifest.reading import read_file

META = "meta.json"
MEND = "install the capsule again, or remove the file"


class Meta(msgspec.Struct, frozen=True):
    """What counts of a meta.json; other fields are not looked at.

    Attributes:
        version: of the package that was installed; None when there is none or it is no text.
        wasm_hash: BLAKE3 of the module, in lower-case hexadecimal; None when it is absent, null or empty.
    """

    version: str | None = None
    wasm_hash: str | None = None


def read_meta(folder: Path) -> Meta | None:
    """The meta.json in a capsule's folder; None when there is none.

    Raises:
        LoadError: it cannot be read, or is not what a meta.json has to be.
    """
    return _without_errors(*check_meta(folder))


def meta_of(text: str, path: Path) -> Meta | None:
    """What a meta.json says whose text was read before.

    Raises:
        LoadError: it is not what a meta.json has to be.
    """
    return _without_errors(*_check_text(text, path))


def _without_errors(meta: Meta | None, problems: list[Problem]) -> Meta | None:
    for problem in problems:
        if problem.severity == "error":
            raise LoadError(f"{problem.file}: {problem.message}; {MEND}")
    return meta


def read_meta_text(folder: Path) -> str | Problem | None:
    """The text of the meta.json in a capsule's folder, why it cannot be had, or None when there is none."""
    path = folder / META
    return read_file(path) if path.exists() or path.is_symlink() else None


def check_meta(folder: Path) -> tuple[Meta | None, list[Problem]]:
    """The same as `read_meta`, with everything that is wrong with it instead of an exception."""
    text = read_meta_text(folder)
    if text is None:
        return None, []
    return (None, [text]) if isinstance(text, Problem) else _check_text(text, folder / META)


def _check_text(text: str, path: Path) -> tuple[Meta | None, list[Problem]]:
    try:
        data: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, [Problem("error", f"it is not JSON: {error or 'its values nest too deep'}", path)]
    if not isinstance(data, dict):
        return None, [Problem("error", f"it must hold a JSON object; found {shown(data)}", path)]
    version, digest = data.get("version"), data.get("wasm_hash")
    if digest is not None and not isinstance(digest, str):
        return None, [Problem("error", f"wasm_hash must be a string; found {shown(digest)}", path)]
    meta = Meta(version if isinstance(version, str) else None, digest.lower() if digest else None)
    if meta.wasm_hash is not None:
        return meta, []
    text = "it has no wasm_hash, so nothing says that the module is the right one"
    return meta, [Problem("warning", text, path)]
