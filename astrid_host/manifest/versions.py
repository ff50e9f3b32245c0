"""Semantic versions and requirements on them, as cargo reads them.

`1.2` means `^1.2`; `^`, `~`, `=`, comparisons, `*` and comma lists are known. A pre-release satisfies a requirement only when a
part of that names a pre-release of the same version. Build metadata does not count. (semver.org 2.0.0; The Cargo Book,
"Specifying Dependencies".) Python's libraries read a bare `1.2` as exactly that, and other pre-releases, so none is used.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec

from astrid_host.manifest.problems import shown

NUMBER_MOST = (1 << 64) - 1
PARTS_MOST = 32
_N = r"(0|[1-9][0-9]{0,19})"
_PRE_ID = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRE = rf"(?:-({_PRE_ID}(?:\.{_PRE_ID})*))?"
_BUILD = r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION = re.compile(rf"{_N}\.{_N}\.{_N}{_PRE}{_BUILD}")
_WILD = r"\.[*xX]"
_PART = re.compile(
    rf" *(\^|~|=|>=|<=|>|<)? *{_N}(?:\.{_N}\.{_N}{_PRE}{_BUILD}|\.{_N}({_WILD})?|({_WILD})(?:{_WILD})?)? *",
)


class Version(msgspec.Struct, frozen=True):
    """A full version."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def core(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.major, self.minor, self.patch

    @property
    def rank(self) -> tuple[Any, ...]:
        """What orders versions."""
        return self.core, _pre_rank(self.pre)

    def __lt__(self, other: Version) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Version) -> bool:
        return self.rank <= other.rank

    def __gt__(self, other: Version) -> bool:
        return self.rank > other.rank

    def __ge__(self, other: Version) -> bool:
        return self.rank >= other.rank

    def __str__(self) -> str:
        return ".".join(map(str, self.core)) + (f"-{'.'.join(self.pre)}" if self.pre else "")


def _pre_rank(pre: tuple[str, ...]) -> tuple[bool, list[tuple[int, int, str]]]:
    """What orders pre-releases: none is the highest, numbers come before words, and as numbers."""
    # Numbers without leading zeros are ordered by length, then as texts; that needs no conversion of long ones.
    return not pre, [(0, len(word), word) if word.isdecimal() else (1, 0, word) for word in pre]


def parse_version(text: str) -> Version:
    """Read a full version such as `1.2.3-rc.1`.

    Raises:
        ValueError: it is none.
    """
    found = _VERSION.fullmatch(text)
    numbers = [int(number) for number in found.groups()[:3]] if found else []
    if found is None or max(numbers) > NUMBER_MOST:
        raise ValueError(f"{shown(text)} is no version: expected major.minor.patch, such as 1.2.3")
    return Version(numbers[0], numbers[1], numbers[2], _identifiers(found[4]))


def _identifiers(pre: str | None) -> tuple[str, ...]:
    return tuple(pre.split(".")) if pre else ()


class Comparison(msgspec.Struct, frozen=True, dict=True):
    """One part of a requirement: an operator, as many numbers as were written, and a pre-release."""

    operator: str
    numbers: tuple[int, ...]
    pre: tuple[str, ...] = ()

    @cached_property
    def _pre_rank(self) -> tuple[bool, list[tuple[int, int, str]]]:
        return _pre_rank(self.pre)

    def names_pre_release_of(self, version: Version) -> bool:
        """Whether pre-releases of that version are meant at all."""
        return bool(self.pre) and self.numbers == version.core

    def holds(self, version: Version) -> bool:
        """Whether a version is in the range, pre-releases not looked at apart."""
        if self.operator == "=":
            return self._equal(version)
        if self.operator in (">", ">="):
            return self._beyond(version, 1) or (self.operator == ">=" and self._equal(version))
        if self.operator in ("<", "<="):
            return self._beyond(version, -1) or (self.operator == "<=" and self._equal(version))
        fixed = self._fixed()
        if version.core[:fixed] != self.numbers[:fixed]:
            return False
        given = version.core[: len(self.numbers)]
        if len(self.numbers) < 3 or given != self.numbers:
            return given >= self.numbers
        return _pre_rank(version.pre) >= self._pre_rank

    def _equal(self, version: Version) -> bool:
        return version.core[: len(self.numbers)] == self.numbers and version.pre == self.pre

    def _beyond(self, version: Version, direction: int) -> bool:
        for given, wanted in zip(version.core, self.numbers, strict=False):
            if given != wanted:
                return (given - wanted) * direction > 0
        if len(self.numbers) < 3 or version.pre == self.pre:
            return False
        return (_pre_rank(version.pre) > self._pre_rank) is (direction > 0)

    def _fixed(self) -> int:
        """How many of the numbers may not differ, for `^` and `~`."""
        if self.operator == "~":
            return min(2, len(self.numbers))
        return next((place for place, number in enumerate(self.numbers, 1) if number), len(self.numbers))


class Requirement(msgspec.Struct, frozen=True):
    """What a version has to be; `text` is how it was written."""

    text: str
    parts: tuple[Comparison, ...]

    def allows(self, version: Version) -> bool:
        """Whether a version satisfies all parts."""
        if version.pre and not any(part.names_pre_release_of(version) for part in self.parts):
            return False
        return all(part.holds(version) for part in self.parts)

    def __str__(self) -> str:
        return self.text


def parse_requirement(text: str) -> Requirement:
    """Read a requirement such as `^1`, `>=0.10.1, <2` or `*`.

    Raises:
        ValueError: it is none, or has more than 32 parts.
    """
    if text.strip(" ") in ("*", "x", "X"):
        return Requirement(text, ())
    pieces = text.split(",", PARTS_MOST)
    parts = [_comparison(piece) for piece in pieces]
    if len(pieces) > PARTS_MOST or None in parts:
        raise ValueError(f"{shown(text)} is no version requirement: expected one such as ^1, >=1.2, <2 or 1.2.3")
    return Requirement(text, tuple(part for part in parts if part is not None))


def _comparison(piece: str) -> Comparison | None:
    found = _PART.fullmatch(piece)
    if found is None:
        return None
    operator, major, minor, patch, pre, only_minor, wild, wilder = found.groups()
    numbers = tuple(int(number) for number in (major, minor or only_minor, patch) if number is not None)
    if max(numbers) > NUMBER_MOST:
        return None
    return Comparison(operator or ("=" if wild or wilder else "^"), numbers, _identifiers(pre))
