"""Semantic versions and requirements on them, as cargo reads them.

`1.2` means `^1.2`; `^`, `~`, `=`, comparisons, `*` and comma lists are known. A pre-release satisfies a requirement only when a
part of that names a pre-release of the same version. (semver.org 2.0.0; The Cargo Book, "Specifying Dependencies".)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from itertools import zip_longest

_IDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_N = r"(0|[1-9][0-9]*)"
_VERSION = re.compile(rf"{_N}\.{_N}\.{_N}(?:-({_IDS}))?(?:\+{_IDS})?")
_PART = re.compile(rf"\s*(\^|~|=|>=|<=|>|<)?\s*{_N}(?:\.(?:{_N}|[*xX]))?(?:\.(?:{_N}|[*xX]))?(?:-({_IDS}))?(?:\+{_IDS})?\s*")


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A full version; build metadata does not count."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def core(self) -> tuple[int, int, int]:
        return self.major, self.minor, self.patch

    def __lt__(self, other: Version) -> bool:
        if self.core != other.core:
            return self.core < other.core
        if not self.pre or not other.pre:
            return bool(self.pre) and not other.pre
        for mine, theirs in zip_longest(self.pre, other.pre):
            if mine != theirs:
                return mine is None or (theirs is not None and _rank(mine) < _rank(theirs))
        return False

    def __str__(self) -> str:
        return ".".join(map(str, self.core)) + (f"-{'.'.join(self.pre)}" if self.pre else "")


def _rank(identifier: str) -> tuple[int, int, str]:
    return (0, int(identifier), "") if identifier.isdigit() else (1, 0, identifier)


def parse_version(text: str) -> Version:
    """Read a full version such as `1.2.3-rc.1`.

    Raises:
        ValueError: it is none.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no version: expected major.minor.patch, such as 1.2.3")
    major, minor, patch, pre = found.groups()
    return Version(int(major), int(minor), int(patch), tuple(pre.split(".")) if pre else ())


@dataclass(frozen=True, slots=True)
class _Comparison:
    operator: str
    numbers: tuple[int, ...]  # as many as were written
    pre: tuple[str, ...]

    def holds(self, version: Version) -> bool:
        least = Version(*(*self.numbers, 0, 0)[:3], self.pre)
        given = self.numbers
        if self.operator == "=":
            return version.core[: len(given)] == given and (len(given) < 3 or version.pre == self.pre)
        if self.operator == ">":
            return version > least if len(given) == 3 else version.core[: len(given)] > given
        if self.operator == ">=":
            return version >= least
        if self.operator == "<":
            return version < least
        if self.operator == "<=":
            return version <= least if len(given) == 3 else version.core[: len(given)] <= given
        fixed = 2 if self.operator == "~" else next((i + 1 for i, n in enumerate(given) if n), len(given))
        fixed = min(fixed, len(given))
        return version >= least and version.core[:fixed] == given[:fixed]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a version has to be."""

    text: str
    parts: tuple[_Comparison, ...]

    def allows(self, version: Version) -> bool:
        """Whether a version satisfies all parts."""
        if version.pre and not any(part.pre and (*part.numbers, 0, 0)[:3] == version.core for part in self.parts):
            return False
        return all(part.holds(version) for part in self.parts)

    def __str__(self) -> str:
        return self.text


def parse_requirement(text: str) -> Requirement:
    """Read a requirement such as `^1`, `>=0.10.1, <2` or `*`.

    Raises:
        ValueError: it is none.
    """
    if text.strip() == "*":
        return Requirement(text, ())
    parts = []
    for piece in text.split(","):
        found = _PART.fullmatch(piece)
        if found is None:
            raise ValueError(f"{text!r} is no version requirement: expected one such as ^1, >=1.2, <2 or 1.2.3")
        operator, major, minor, patch, pre = found.groups()
        if patch is not None and minor is None:
            raise ValueError(f"{text!r} is no version requirement: a number stands behind a wildcard")
        numbers = tuple(int(n) for n in (major, minor, patch) if n is not None)
        wild = "*" in piece or "x" in piece.lower().split("-")[0]
        parts.append(_Comparison(operator or ("=" if wild else "^"), numbers, tuple(pre.split(".")) if pre else ()))
    return Requirement(text, tuple(parts))
