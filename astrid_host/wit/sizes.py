"""How deep and how large types are, so that whatever walks over one later comes to an end and never recurses far.

Both limits are ours: WIT has none, and validators of the component model stop at similar ones.
"""

from __future__ import annotations

from typing import NamedTuple

from astrid_host.wit.types import (
    Borrow,
    ListOf,
    OptionOf,
    Record,
    ResultOf,
    TupleOf,
    Type,
    Variant,
)

DEEPEST = 64
LARGEST = 10_000


class Size(NamedTuple):
    """`depth` counts types within types, `parts` all of them, and `borrows` says whether a borrowed handle is among them."""

    depth: int
    parts: int
    borrows: bool


_LEAF = Size(1, 1, False)
_BORROW = Size(1, 1, True)


class Sizes:
    """Sizes of types; each type object is measured once."""

    def __init__(self) -> None:
        # The type is kept beside its size, so that its id stays its own.
        self._known: dict[int, tuple[Type, Size]] = {}

    def of(self, measured: Type) -> Size:
        """The size of a type. It recurses into what was not measured before, which its callers keep shallow."""
        inner = _inner(measured)
        if not inner:
            return _BORROW if isinstance(measured, Borrow) else _LEAF
        known = self._known.get(id(measured))
        if known is not None:
            return known[1]
        sizes = [self.of(part) for part in inner]
        size = Size(
            1 + max(size.depth for size in sizes),
            1 + sum(size.parts for size in sizes),
            any(size.borrows for size in sizes),
        )
        self._known[id(measured)] = (measured, size)
        return size

    def problem(self, measured: Type) -> str | None:
        """Why the type is too deep or too large, or None."""
        size = self.of(measured)
        if size.depth > DEEPEST:
            return f"types nest {size.depth} deep here, {DEEPEST} are allowed"
        if size.parts > LARGEST:
            return f"this type has {size.parts} parts, {LARGEST} are allowed"
        return None


def _inner(of: Type) -> tuple[Type, ...]:
    if isinstance(of, ListOf):
        return (of.element,)
    if isinstance(of, OptionOf):
        return (of.some,)
    if isinstance(of, ResultOf):
        return tuple(side for side in (of.ok, of.err) if side is not None)
    if isinstance(of, TupleOf):
        return of.items
    if isinstance(of, Record):
        return tuple(field.type for field in of.fields)
    if isinstance(of, Variant):
        return tuple(case.type for case in of.cases if case.type is not None)
    return ()
