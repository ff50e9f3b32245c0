"""Reading a Capsule.toml: all that is wrong with it at once, each with line and mend.

Unlike Astrid, which ignores what it does not know, an unknown key is a warning that names the nearest known one. Legacy forms
are accepted with a warning that says what to write now. A file that cannot be read is a problem as well, never a
traceback.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from astrid_host.errors import ManifestError
from astrid_host.manifest import tables
from astrid_host.manifest.problems import Problem
from astrid_host.manifest.schema import Manifest
from astrid_host.manifest.sheet import Sheet

FILE_BYTES = 64 << 10
PARTS_MOST = 32  # of one dotted key: what a key of n parts costs tomllib grows with n * n
INTEGERS = range(-(1 << 63), 1 << 63)
_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
# What may have dots or brackets in it and is no key: comments, and strings of all kinds. One that is never closed goes on to
# the end, so that the text is passed over once.
_QUOTED = re.compile(
    r"#[^\n]*"
    r'|"""(?:[^"\\]|\\(?:.|\Z)|"{1,2}(?!"))*+(?:"{3,5}|\Z)'
    r"|'{3}(?:[^']|'{1,2}(?!'))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\(?:.|\Z))*+(?:"|(?=\n)|\Z)'
    r"|'[^'\n]*+(?:'|(?=\n)|\Z)",
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}\n]")
_LONG_DIGITS = re.compile(r"[0-9A-Fa-f_]{16}")


def load(path: Path) -> Manifest:
    """Read a manifest that is to be used.

    Args:
        path: of the Capsule.toml itself, not of its folder.

    Raises:
        ManifestError: it has errors; its `problems` are all of them, warnings included.
    """
    manifest, problems = check(path)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        raise ManifestError(problems)
    return manifest


def check(path: Path) -> tuple[Manifest | None, list[Problem]]:
    """Read a manifest and say everything that is wrong with it.

    Args:
        path: of the Capsule.toml itself, not of its folder.

    Returns:
        The manifest as far as it can be made out (None when not even its name and version can), and the problems: errors
        first, each kind by line.
    """
    text = read_file(path)
    return (None, [text]) if isinstance(text, Problem) else check_text(text, path)


def check_text(text: str, path: Path) -> tuple[Manifest | None, list[Problem]]:
    """The same for the text of a manifest that is, or would be, at `path`."""
    text = text.removeprefix("\ufeff")
    data = parse_toml(text, path)
    if isinstance(data, Problem):
        return None, [data]
    sheet = Sheet(data, text, path)
    if _LONG_DIGITS.search(text):
        _refuse_long_integers(sheet)
    manifest = tables.read_manifest(sheet)
    return manifest, sheet.found()


def read_file(path: Path) -> str | Problem:
    """The text of a file of at most 64 KiB, or why it cannot be had."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Problem("error", "it is no plain file", path)
            raw = file.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return Problem("error", "there is no such file", path)
    except IsADirectoryError:
        return Problem("error", "it is a folder, not a file", path)
    except (OSError, ValueError) as error:
        return Problem("error", f"it cannot be read: {getattr(error, 'strerror', None) or error}", path)
    if len(raw) > FILE_BYTES:
        return Problem("error", f"it is larger than {FILE_BYTES} bytes; what it has to say fits in far less", path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].rpartition(b"\n")
        line, column = before[0].count(b"\n") + bool(before[1]) + 1, len(before[2].decode()) + 1
        return Problem("error", f"it is not UTF-8: {error.reason} at byte {error.start}", path, line, column)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe or a device could keep us waiting for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_toml(text: str, path: Path) -> dict[str, Any] | Problem:
    """The tables of a TOML text, or why it is none."""
    try:
        line = _line_of_a_long_key(text)
        if line:
            return Problem("error", f"a key has more than {PARTS_MOST} parts", path, line)
        return tomllib.loads(text)
    except RecursionError:
        return Problem("error", "its values nest too deep", path)
    except ValueError as error:  # TOMLDecodeError, and what int() says of thousands of digits
        return _syntax_problem(str(error), text, path)


def _line_of_a_long_key(text: str) -> int:
    """The first line with a dotted key of more parts than are read, 0 when there is none. It takes one pass over the text."""
    bare = _QUOTED.sub(lambda found: "_" + "\n" * found[0].count("\n"), text)
    if bare.count(".") < PARTS_MOST:
        return 0
    for number, line in enumerate(bare.split("\n"), 1):
        if line.count(".") >= PARTS_MOST and any(part.count(".") >= PARTS_MOST for part in _BETWEEN_KEYS.split(line)):
            return number
    return 0


def _syntax_problem(message: str, text: str, path: Path) -> Problem:
    found = _TOML_PLACE.match(message)
    if found is None:
        return Problem("error", f"it is not TOML: {message}", path, text.rstrip("\n").count("\n") + 1)
    return Problem("error", f"it is not TOML: {found[1]}", path, int(found[2]), int(found[3]))


def _refuse_long_integers(sheet: Sheet) -> None:
    """TOML's integers have 64 bits; `tomllib` reads longer ones, which later cannot even be printed."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), sheet.data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, int) and value not in INTEGERS:
            sheet.error("it is not TOML: a whole number beyond 64 bits", *path)
        elif isinstance(value, dict):
            waiting += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, number), inner) for number, inner in enumerate(value)]
