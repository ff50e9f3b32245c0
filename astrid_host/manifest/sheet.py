"""A parsed manifest under examination: typed access to its fields, and the list of what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from astrid_host.manifest.positions import Positions
from astrid_host.manifest.problems import Problem

_NAMES = {str: "a string", bool: "true or false", int: "a whole number", list: "an array", dict: "a table"}


class Sheet:
    """One manifest being read. A field of the wrong type is a problem and counts as absent."""

    def __init__(self, data: dict[str, Any], text: str, path: Path) -> None:
        self.data = data
        self.path = path
        self.problems: list[Problem] = []
        self.legacy: set[str] = set()  # keys at the top that were told of already
        self.rows: dict[tuple[str, str], int] = {}  # (table, name) -> line
        self._text = text

    @cached_property
    def positions(self) -> Positions:
        """Made when the first place is asked for."""
        return Positions(self._text)

    def line(self, *path: str | int) -> int:
        return self.positions.line(*path)

    def note_row(self, table: str, name: str, *path: str | int) -> None:
        """Keep where a row stands."""
        self.rows[table, name] = self.line(*path)

    def _say(self, severity: Literal["error", "warning"], message: str, path: tuple[str | int, ...], mend: str) -> None:
        line, column = self.positions.place(*path)
        self.problems.append(Problem(severity, message, self.path, line, column, mend))

    def error(self, message: str, *path: str | int, mend: str = "") -> None:
        self._say("error", message, path, mend)

    def warn(self, message: str, *path: str | int, mend: str = "") -> None:
        self._say("warning", message, path, mend)

    def field(self, table: dict[str, Any], key: str, kind: type, *path: str | int) -> Any:
        """The field `key` of a table that stands at `path`; None when it is absent or of another type."""
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.error(f"{key} must be {_NAMES[kind]}; found {self.shown(value)}", *path, key)
            return None
        return value

    def texts(self, table: dict[str, Any], key: str, *path: str | int) -> tuple[str, ...]:
        """A field that is an array of strings."""
        value = self.field(table, key, list, *path)
        if value is None:
            return ()
        wrong = [item for item in value if not isinstance(item, str)]
        if wrong:
            self.error(f"{key} must be an array of strings; found {self.shown(wrong[0])} in it", *path, key)
        return tuple(item for item in value if isinstance(item, str))

    def number(self, table: dict[str, Any], key: str, least: int, most: int, *path: str | int) -> int | None:
        """A field that is a whole number within bounds."""
        value: int | None = self.field(table, key, int, *path)
        if value is not None and not least <= value <= most:
            self.error(f"{key} must be {least} to {most}; found {value}", *path, key)
            return None
        return value

    def word(self, table: dict[str, Any], key: str, words: Collection[str], *path: str | int) -> str | None:
        """A field that is one of several words."""
        value: str | None = self.field(table, key, str, *path)
        if value is not None and value not in words:
            self.error(f"{key} must be one of {', '.join(words)}; found {value!r}", *path, key)
            return None
        return value

    def table(self, parent: dict[str, Any], key: str, *path: str | int) -> dict[str, Any]:
        """A field that is a table; empty when it is absent or something else."""
        return self.field(parent, key, dict, *path) or {}

    def entries(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """The entries of an array of tables at the top, with their numbers."""
        value = self.field(self.data, key, list)
        found = []
        for number, entry in enumerate(value or ()):
            if isinstance(entry, dict):
                found.append((number, entry))
            else:
                self.error(f"[[{key}]] must be tables; found {self.shown(entry)}", key, number)
        return found

    def unknown(self, table: dict[str, Any], known: Collection[str], *path: str | int) -> None:
        """Warn of keys that nobody reads."""
        for key in table:
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, 1, 0.6)
            where = f"in [{'.'.join(str(part) for part in path)}]" if path else "at the top"
            hint = f": did you mean {near[0]!r}?" if near else "; it has no effect"
            self.warn(f"unknown key {key!r} {where}{hint}", *path, key)

    @staticmethod
    def shown(value: Any) -> str:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:60]}…"
