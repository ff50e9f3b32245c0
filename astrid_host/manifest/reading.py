"""Reading a Capsule.toml: all that is wrong with it at once, each with line and mend.

Unlike Astrid, which ignores what it does not know, an unknown key is a warning that names the nearest known one. Legacy forms
are accepted with a warning that says what to write now. A file that cannot be read is a problem as well, never a
traceback.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from astrid_host.errors import ManifestError
from astrid_host.manifest import tables
from astrid_host.manifest.problems import Problem
from astrid_host.manifest.schema import Manifest
from astrid_host.manifest.sheet import Sheet

FILE_BYTES = 1 << 20
_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)


def load(path: Path) -> Manifest:
    """Read a manifest that is to be used.

    Raises:
        ManifestError: it has errors; its `problems` are all of them, warnings included.
    """
    manifest, problems = check(path)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        raise ManifestError(problems)
    return manifest


def check(path: Path) -> tuple[Manifest | None, list[Problem]]:
    """Read a manifest and say everything that is wrong with it.

    Returns:
        The manifest as far as it can be made out (None when not even its name can), and the problems, errors first.
    """
    try:
        if path.stat().st_size > FILE_BYTES:
            return None, [Problem("error", f"it is larger than {FILE_BYTES} bytes, which no manifest is", path)]
        text = path.read_bytes().decode()
    except OSError as error:
        return None, [Problem("error", f"it cannot be read: {error.strerror}", path)]
    except UnicodeDecodeError as error:
        return None, [Problem("error", f"it is not UTF-8: {error.reason} at its byte {error.start}", path)]
    return check_text(text, path)


def check_text(text: str, path: Path) -> tuple[Manifest | None, list[Problem]]:
    """The same for the text of a manifest that is, or would be, at `path`."""
    try:
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        return None, [_syntax_problem(str(error), text, path)]
    except RecursionError:
        return None, [Problem("error", "its values nest too deep", path)]
    sheet = Sheet(data, text, path)
    manifest = tables.read_manifest(sheet)
    return manifest, sorted(sheet.problems, key=lambda problem: problem.severity)


def _syntax_problem(message: str, text: str, path: Path) -> Problem:
    found = _TOML_PLACE.match(message)
    if found is None:
        return Problem("error", f"it is not TOML: {message}", path, text.count("\n") + 1)
    return Problem("error", f"it is not TOML: {found[1]}", path, int(found[2]), int(found[3]))

