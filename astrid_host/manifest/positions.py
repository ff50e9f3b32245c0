"""Where the keys of a TOML text stand.

`tomllib` reads values but forgets places. This scanner reads only what is needed to find them again: headers, keys, and
enough of values to step over strings and nested tables. It is used on texts that `tomllib` has accepted; where it loses its
way the place of the enclosing table stands in, never a wrong line.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from functools import cached_property
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

DEPTH_MOST = 8  # of paths that are kept; a manifest has no deeper ones that anybody asks for
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANKS = re.compile(r"[ \t]*")
_BLANKS_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]+")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'{1,2}(?!'))*'{3,5}", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    "'": re.compile(r"'[^'\n]*'"),
}


class Lost(Exception):
    """The scanner does not know where it is: the rest of the text keeps no places of its own."""


class Positions:
    """Line and column of every key in a text: paths are names, and numbers for entries of arrays."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        try:
            self._scan()
        except (Lost, RecursionError):
            self._at = len(text)  # what was found up to here is right

    def line(self, *path: str | int) -> int:
        """The line of a key, or of the nearest table around it; 1 when there is none."""
        return self.place(*path)[0]

    def place(self, *path: str | int) -> tuple[int, int]:
        """Line and column of a key, or of the nearest table around it; (1, 1) when there is none."""
        while path and path not in self._found:
            path = path[:-1]
        at = self._found.get(path, 0)
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        return [0, *(match.end() for match in re.finditer("\n", self._text))]

    def _scan(self) -> None:
        table: Path = ()
        while True:
            self._skip(_BLANKS_AND_LINES)
            if self._at == len(self._text):
                return
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, blanks: re.Pattern[str] = _BLANKS) -> None:
        match = blanks.match(self._text, self._at)
        assert match is not None, "it matches nothing as well"
        self._at = match.end()

    def _expect(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise Lost
        self._at += len(sign)

    def _header(self) -> Path:
        begin = self._at
        opening, closing = ("[[", "]]") if self._text.startswith("[[", begin) else ("[", "]")
        self._expect(opening)
        names = self._key()
        self._expect(closing)
        path = (*self._entered(names[:-1]), names[-1])
        if closing == "]]":
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
        for length in range(1, min(len(path), DEPTH_MOST + 1)):
            self._found.setdefault(path[:length], at)
        if len(path) <= DEPTH_MOST:
            self._found[path] = at

    def _key(self) -> tuple[str, ...]:
        """A key with all its dotted parts, and the blanks around it."""
        names: list[str] = []
        while True:
            self._skip()
            names.append(self._name())
            self._skip()
            if self._peek() != ".":
                return tuple(names)
            self._at += 1

    def _name(self) -> str:
        if self._peek() in ('"', "'"):
            return _unquoted(self._string())
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise Lost
        self._at = match.end()
        return match.group()

    def _pair(self, table: Path) -> None:
        begin = self._at
        path = table + self._key()
        self._note(path, begin)
        self._expect("=")
        self._skip()
        self._value(path)

    def _value(self, path: Path) -> None:
        char = self._peek()
        if char in ('"', "'"):
            self._string()
        elif char == "{":
            self._inside("}", path)
        elif char == "[":
            self._inside("]", path)
        else:
            match = _SCALAR.match(self._text, self._at)
            if match is None:
                raise Lost
            self._at = match.end()

    def _inside(self, close: str, path: Path) -> None:
        """Over an array or an inline table, the sign that opens it included."""
        self._at += 1
        number = 0
        while True:
            self._skip(_BLANKS_AND_LINES)
            if self._peek() == close:
                self._at += 1
                return
            if self._peek() == ",":
                self._at += 1
            elif close == "}":
                self._pair(path)
            else:
                if len(path) < DEPTH_MOST:
                    self._found.setdefault((*path, number), self._at)
                self._value((*path, number))
                number += 1

    def _string(self) -> str:
        """Over a string; what it is written as, quotes included."""
        quote = next((quote for quote in _STRINGS if self._text.startswith(quote, self._at)), None)
        match = _STRINGS[quote].match(self._text, self._at) if quote is not None else None
        if match is None:
            raise Lost
        self._at = match.end()
        return match.group()


def _unquoted(written: str) -> str:
    if "\\" not in written or written[0] == "'":
        return written[1:-1]
    try:
        return str(tomllib.loads(f"key = {written}")["key"])
    except ValueError:
        raise Lost from None


class Source:
    """The text that a manifest was read from, asked where its rows stand. It is scanned when the first is asked for.

    Where a row stands is no part of what it says, so all sources are equal.
    """

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._noted: dict[tuple[str, str], Path] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source)

    def __hash__(self) -> int:
        return hash(Source)

    def note(self, table: str, name: str, *path: str | int) -> None:
        """Keep the path of a row that is asked for by another name, as the entries of arrays of tables are."""
        self._noted.setdefault((table, name), path)

    def line_of(self, table: str, name: str) -> int:
        """The line of a row; of its table when there is no such row, and 1 when there is no such table."""
        return self.positions.line(*self._noted.get((table, name), (table, name)))

    @cached_property
    def positions(self) -> Positions:
        """Where all keys stand."""
        return Positions(self._text)


NOWHERE = Source()
