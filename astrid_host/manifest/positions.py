"""Where the keys of a TOML text stand.

`tomllib` reads values but forgets places. This scanner reads only what is needed to find them again: headers, keys, and
enough of values to step over strings and nested tables. It is used on texts that `tomllib` has accepted; where it loses its
way the place of the enclosing table stands in, never a wrong line.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_STRINGS = ('"""', "'''", '"', "'")


class Positions:
    """Line and column of every key in a text: paths are names, and numbers for entries of arrays of tables."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        try:
            self._scan()
        except (IndexError, ValueError):
            self._at = len(text)  # what was found up to here is right

    def line(self, *path: str | int) -> int:
        """The line of a key, or of the nearest table around it; 1 when there is none."""
        return self.place(*path)[0]

    def place(self, *path: str | int) -> tuple[int, int]:
        """Line and column of a key, or of the nearest table around it."""
        while path and path not in self._found:
            path = path[:-1]
        at = self._found.get(path, 0)
        return self._text.count("\n", 0, at) + 1, at - (self._text.rfind("\n", 0, at) + 1) + 1

    def _scan(self) -> None:
        table: Path = ()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r\n":
                self._at += 1
            elif char == "#":
                self._comment()
            elif char == "[":
                table = self._header()
            else:
                self._pair(table)

    def _comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _spaces(self, newlines: bool = False) -> None:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t" or (newlines and char in "\r\n"):
                self._at += 1
            elif newlines and char == "#":
                self._comment()
            else:
                return

    def _header(self) -> Path:
        begin = self._at
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        names = self._key()
        self._at = self._text.index("]", self._at) + (2 if array else 1)
        path = self._entered(names[:-1]) + (names[-1],)
        if array:
            number = self._counts.get(path, 0)
            self._counts[path] = number + 1
            self._found.setdefault(path, begin)
            path = (*path, number)
        self._note(path, begin)
        return path

    def _entered(self, names: tuple[str, ...]) -> Path:
        """The path of a table, with the last entry of each array of tables on the way."""
        path: Path = ()
        for name in names:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _note(self, path: Path, at: int) -> None:
        for length in range(1, len(path)):
            self._found.setdefault(path[:length], at)
        self._found[path] = at

    def _key(self) -> tuple[str, ...]:
        names = []
        while True:
            self._spaces()
            char = self._text[self._at]
            if char in "\"'":
                names.append(self._string())
            else:
                match = _BARE.match(self._text, self._at)
                if match is None:
                    raise ValueError("no key")
                names.append(match.group())
                self._at = match.end()
            self._spaces()
            if self._text[self._at : self._at + 1] != ".":
                return tuple(names)
            self._at += 1

    def _pair(self, table: Path) -> None:
        begin = self._at
        path = table + self._key()
        self._note(path, begin)
        self._spaces()
        if self._text[self._at] != "=":
            raise ValueError("no value")
        self._at += 1
        self._spaces()
        self._value(path)

    def _value(self, path: Path) -> None:
        char = self._text[self._at]
        if char in "\"'":
            self._string()
        elif char == "{":
            self._at += 1
            self._inside("}", path)
        elif char == "[":
            self._at += 1
            self._inside("]", path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}#\r\n":
                self._at += 1

    def _inside(self, close: str, path: Path) -> None:
        number = 0
        while True:
            self._spaces(newlines=True)
            char = self._text[self._at]
            if char == close:
                self._at += 1
                return
            if char == ",":
                self._at += 1
            elif close == "}":
                self._pair(path)
            else:
                self._found.setdefault((*path, number), self._at)
                self._value((*path, number))
                number += 1

    def _string(self) -> str:
        quote = next(quote for quote in _STRINGS if self._text.startswith(quote, self._at))
        begin = self._at = self._at + len(quote)
        while not self._text.startswith(quote, self._at):
            if self._at >= len(self._text):
                raise ValueError("a string does not end")
            self._at += 2 if quote[0] == '"' and self._text[self._at] == "\\" else 1
        while len(quote) == 3 and self._text.startswith(quote, self._at + 1):
            self._at += 1
        raw = self._text[begin : self._at]
        self._at += len(quote)
        if quote == '"' and "\\" in raw:
            try:
                return str(json.loads(f'"{raw}"'))
            except ValueError:
                return raw
        return raw
