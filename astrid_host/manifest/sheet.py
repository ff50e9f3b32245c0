"""A parsed manifest under examination: typed access to its fields, and the list of what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from astrid_host.manifest.positions import Source
from astrid_host.manifest.problems import Problem, cut, quoted, shown

PROBLEMS_MOST = 200  # of each severity; a hostile file has as many as it likes
NAME_CHARACTERS = 64  # of an unknown key; a longer one is no slip of the pen
_NAMES = {str: "a string", bool: "true or false", int: "a whole number", list: "an array", dict: "a table"}


class Sheet:
    """One manifest being read. A field of the wrong type is a problem and counts as absent."""

    def __init__(self, data: dict[str, Any], text: str, path: Path) -> None:
        self.data = data
        self.path = path
        self.source = Source(text)
        self._problems: list[Problem] = []
        self._counts: Counter[str] = Counter()

    def found(self) -> list[Problem]:
        """All problems: errors first, each kind by place. Beyond 200 of a kind they are only counted."""
        problems = sorted(self._problems, key=lambda problem: (problem.severity, problem.line, problem.column))
        for severity, count in sorted(self._counts.items()):
            if count > PROBLEMS_MOST:
                problems.append(
                    Problem("warning", f"{count - PROBLEMS_MOST} more {severity}s are not shown", self.path)
                )
        return problems

    def _say(self, severity: Literal["error", "warning"], message: str, path: tuple[str | int, ...], mend: str) -> None:
        self._counts[severity] += 1
        if self._counts[severity] > PROBLEMS_MOST:
            return
        line, column = self.source.positions.place(*path)
        self._problems.append(Problem(severity, message, self.path, line, column, mend))

    def error(self, message: str, *path: str | int, mend: str = "") -> None:
        """Say what keeps the capsule from loading, about what stands at `path`."""
        self._say("error", message, path, mend)

    def warn(self, message: str, *path: str | int, mend: str = "") -> None:
        """Say what is only to be known, about what stands at `path`."""
        self._say("warning", message, path, mend)

    def field(self, table: dict[str, Any], key: str, kind: type, *path: str | int) -> Any:
        """The field `key` of a table that stands at `path`; None when it is absent or of another type."""
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.error(f"{key} must be {_NAMES[kind]}; found {shown(value)}", *path, key)
            return None
        return value

    def needed(self, table: dict[str, Any], key: str, example: str, *path: str | int) -> str | None:
        """A field that has to be there and is a string; None when it is not."""
        value: str | None = self.field(table, key, str, *path)
        if key not in table:
            self.error(f"{_heading(path)} has no {key}", *path, mend=f"{key} = {quoted(example)}")
        return value

    def either(self, table: dict[str, Any], key: str, other: str, *path: str | int) -> str:
        """Which of two spellings of a key a table has; having both is an error."""
        if key in table and other in table:
            self.error(f"{key} and {other} are the same: keep one of them", *path, other)
        return other if other in table and key not in table else key

    def texts(self, table: dict[str, Any], key: str, *path: str | int) -> tuple[str, ...]:
        """A field that is an array of strings."""
        value = self.field(table, key, list, *path) or ()
        for number, item in enumerate(value):
            if not isinstance(item, str):
                self.error(f"{key} must be an array of strings; found {shown(item)} in it", *path, key, number)
        return tuple(item for item in value if isinstance(item, str))

    def number(self, table: dict[str, Any], key: str, least: int, most: int, *path: str | int) -> int | None:
        """A field that is a whole number within bounds."""
        value: int | None = self.field(table, key, int, *path)
        if value is not None and not least <= value <= most:
            self.error(f"{key} must be {least} to {most}; found {shown(value)}", *path, key)
            return None
        return value

    def word(self, table: dict[str, Any], key: str, words: Collection[str], *path: str | int) -> Any:
        """A field that is one of several words."""
        value: str | None = self.field(table, key, str, *path)
        if value is not None and value not in words:
            import difflib

            near = difflib.get_close_matches(cut(value), words, 1, 0.6) or list(words)[:1]
            text = f"{key} must be one of {', '.join(words)}; found {shown(value)}"
            self.error(text, *path, key, mend=f"{key} = {quoted(near[0])}")
            return None
        return value

    def table(self, parent: dict[str, Any], key: str, *path: str | int) -> dict[str, Any]:
        """A field that is a table; empty when it is absent or something else."""
        return self.field(parent, key, dict, *path) or {}

    def entries(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """The entries of an array of tables at the top, with their numbers."""
        value = self.data.get(key, [])
        if isinstance(value, dict):
            self.error(f"{key} is an array of tables: each has two brackets", key, mend=f"[[{key}]]")
            return []
        found = []
        for number, entry in enumerate(self.field(self.data, key, list) or ()):
            if isinstance(entry, dict):
                found.append((number, entry))
            else:
                self.error(f"[[{key}]] must be tables; found {shown(entry)}", key, number)
        return found

    def unknown(self, table: Collection[str], known: Collection[str], *path: str | int) -> None:
        """Warn of keys that nobody reads."""
        for key in table:
            if key in known:
                continue
            if self._counts["warning"] >= PROBLEMS_MOST:  # looking for near names costs more than all the rest
                self._counts["warning"] += 1
                continue
            free = [name for name in known if name not in table]
            import difflib

            near = difflib.get_close_matches(key, free, 1, 0.6) if len(key) <= NAME_CHARACTERS else []
            hint = f": did you mean {near[0]}?" if near else ", which has no effect"
            mend = self._renamed(table, key, near[0]) if near else ""
            self.warn(f"unknown key {shown(key)} in {_heading(path)}{hint}", *path, key, mend=mend)

    @staticmethod
    def _renamed(table: Collection[str], key: str, name: str) -> str:
        value = table[key] if isinstance(table, dict) else None
        if isinstance(value, str):
            return f"{name} = {quoted(value)}" if len(value) <= NAME_CHARACTERS else f"{name} = …"
        return f"{name} = {shown(value)}" if isinstance(value, bool | int | float) else f"{name} = …"


def _heading(path: tuple[str | int, ...]) -> str:
    """How a table is named in a message: as its header is written."""
    if not path:
        return "the manifest"
    names = [
        name if name.replace("_", "").isalnum() and name.isascii() else shown(name)
        for name in path
        if isinstance(name, str)
    ]
    return f"[[{'.'.join(names)}]]" if any(isinstance(name, int) for name in path) else f"[{'.'.join(names)}]"
