"""What the tests of the canonical ABI share: a guest of plain bytes, and strategies for WIT types and their values.

Test modules cannot import each other, so all of it comes as fixtures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from astrid_host.abi import Err, HandleTable, Ok, Some, Variant
from astrid_host.abi.layout import align_to
from astrid_host.abi.source import attribute
from astrid_host.errors import GuestFault
from astrid_host.wit import types as wit

FILL, RED_ZONE = 0xA5, 16
PAGE = 1 << 16


class BytesGuest:
    """A guest without WebAssembly: memory that moves at every allocation, and an allocator that leaves gaps.

    `written(*places)` says whether anything but the allocations and these (address, length) pairs was written.
    """

    def __init__(self, size: int = PAGE, content: bytes | None = None) -> None:
        self.handles = HandleTable()
        self.memory = bytearray([FILL]) * size if content is None else bytearray(content)
        self.allocations: list[tuple[int, int]] = []
        self.looks = 0
        self._view = memoryview(self.memory)
        self._top = RED_ZONE

    @property
    def view(self) -> memoryview:
        self.looks += 1
        return self._view

    def reserve(self, align: int, size: int) -> int:
        at = align_to(self._top, align)
        self._top = at + size + RED_ZONE
        missing = self._top - len(self.memory)
        if missing > 64 << 20:
            raise GuestFault("the guest has no such memory")
        self._view.release()  # whoever kept it reads memory that has moved
        if missing > 0:
            self.memory += bytes([FILL]) * align_to(missing, PAGE)
        self._view = memoryview(self.memory)
        return at

    def realloc(self, align: int, size: int) -> int:
        at = self.reserve(align, size)
        self.allocations.append((at, size))
        return at

    def stray(self, *places: tuple[int, int]) -> list[int]:
        """Addresses outside of all allocations, and outside of these places, that do not have what was there at first."""
        kept = bytearray(self.memory)
        for at, size in (*self.allocations, *places):
            kept[at : at + size] = bytes([FILL]) * size
        return [at for at, byte in enumerate(kept) if byte != FILL]


NAMES = st.lists(
    st.sampled_from(
        ("a", "b-c", "from", "class", "x1", "of-a-thing", "self", "return", "value", "case", "guest", "view")
    ),
    min_size=1,
    max_size=5,
    unique=True,
)
PRIMITIVES: tuple[wit.PrimitiveName, ...] = (
    "bool", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64", "char", "string",
)  # fmt: skip


@st.composite
def types(draw: st.DrawFn, depth: int = 3, most_flags: int = 70, most_cases: int = 300) -> wit.Type:
    """Every kind of WIT type but handles, a few levels deep."""

    def inner() -> wit.Type:
        return draw(types(depth - 1, most_flags, most_cases))

    def maybe() -> wit.Type | None:
        return inner() if draw(st.booleans()) else None

    kinds: tuple[type, ...] = (wit.Primitive, wit.Enum, wit.Flags)
    if depth:
        kinds += (wit.ListOf, wit.OptionOf, wit.ResultOf, wit.TupleOf, wit.Record, wit.Variant, wit.Primitive)
    kind, names = draw(st.sampled_from(kinds)), draw(NAMES)
    if kind is wit.Primitive:
        return wit.Primitive(draw(st.sampled_from(PRIMITIVES)))
    if kind is wit.Enum:
        count = draw(st.integers(1, 5) | st.just(most_cases))
        return wit.Enum("some-enum", tuple(f"case{i}" for i in range(count)))
    if kind is wit.Flags:
        count = draw(st.integers(1, 20) | st.integers(1, most_flags))
        return wit.Flags("some-flags", tuple(f"f{i}" for i in range(count)))
    if kind is wit.ListOf or kind is wit.OptionOf:
        return wit.ListOf(inner()) if kind is wit.ListOf else wit.OptionOf(inner())
    if kind is wit.ResultOf:
        return wit.ResultOf(maybe(), maybe())
    if kind is wit.TupleOf:
        return wit.TupleOf(tuple(inner() for _ in names))
    if kind is wit.Record:
        return wit.Record("some-record", tuple(wit.Field(name, inner()) for name in names))
    return wit.Variant("some-variant", tuple(wit.Case(name, maybe()) for name in names))


SCALARS = st.characters(exclude_categories=["Cs"])


def integers_of(name: str) -> st.SearchStrategy[int]:
    bits = int(name[1:])
    low, high = (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(low, high) | st.sampled_from((low, high))


def values(kind: wit.Type) -> st.SearchStrategy[Any]:
    """Values that fit a type, as host functions give and get them."""
    return st.deferred(lambda: _values(kind))


def _values(kind: wit.Type) -> st.SearchStrategy[Any]:
    match kind:
        case wit.Primitive("bool"):
            return st.booleans()
        case wit.Primitive("f32"):
            return st.floats(width=32)
        case wit.Primitive("f64"):
            return st.floats()
        case wit.Primitive("char"):
            return SCALARS
        case wit.Primitive("string"):
            return st.text(SCALARS, max_size=12)
        case wit.Primitive(name):
            return integers_of(name)
        case wit.ListOf(wit.Primitive("u8")):
            return st.binary(max_size=12)
        case wit.ListOf(element):
            return st.lists(values(element), max_size=4)
        case wit.OptionOf(some):
            given = values(some)
            return st.none() | (given.map(Some) if isinstance(some, wit.OptionOf) else given)
        case wit.ResultOf(ok, err):
            return _maybe(ok).map(Ok) | _maybe(err).map(Err)
        case wit.TupleOf(items):
            return st.tuples(*map(values, items))
        case wit.Enum(_, cases):
            return st.sampled_from(cases)
        case wit.Flags(_, flags):
            return st.frozensets(st.sampled_from(flags))
        case wit.Variant(_, variants):
            return st.one_of([st.builds(Variant, st.just(case.name), _maybe(case.type)) for case in variants])
        case wit.Record(_, fields):
            parts = {attribute(field.name): values(field.type) for field in fields}
            return st.fixed_dictionaries(parts).map(lambda given: SimpleNamespace(**given))
    raise AssertionError(kind)


def _maybe(kind: wit.Type | None) -> st.SearchStrategy[Any]:
    return st.none() if kind is None else values(kind)


def plain(kind: wit.Type | None, value: Any) -> Any:
    """A value in a form that can be compared: records by their fields, every NaN alike, -0.0 and 0.0 apart."""
    match kind:
        case None:
            assert value is None
            return None
        case wit.Primitive("f32" | "f64"):
            assert type(value) is float
            return "nan" if math.isnan(value) else (value, math.copysign(1, value))
        case wit.ListOf(element):
            assert type(value) is (bytes if element == wit.Primitive("u8") else list)
            return [plain(element, item) for item in value]
        case wit.OptionOf(some):
            if isinstance(some, wit.OptionOf) and value is not None:
                assert type(value) is Some
                return ("some", plain(some, value.value))
            return None if value is None else ("some", plain(some, value))
        case wit.ResultOf(ok, err):
            return (type(value).__name__, plain(ok if type(value) is Ok else err, value.value))
        case wit.TupleOf(items):
            assert type(value) is tuple
            return tuple(plain(of, item) for of, item in zip(items, value, strict=True))
        case wit.Variant(_, cases):
            return (value.case, plain({case.name: case.type for case in cases}[value.case], value.value))
        case wit.Record(_, fields):
            return {field.name: plain(field.type, getattr(value, attribute(field.name))) for field in fields}
        case wit.Primitive() | wit.Enum() | wit.Flags():
            return (type(value).__name__, value)
    return value


@pytest.fixture(scope="session")
def bytes_guest() -> Callable[..., BytesGuest]:
    """Makes guests of plain bytes."""
    return BytesGuest


@pytest.fixture(scope="session")
def wit_types() -> Callable[..., st.SearchStrategy[wit.Type]]:
    """Makes strategies for WIT types."""
    return types


@pytest.fixture(scope="session")
def wit_values() -> Callable[[wit.Type], st.SearchStrategy[Any]]:
    """Makes strategies for the values of a WIT type."""
    return values


@pytest.fixture(scope="session")
def comparable() -> Callable[[wit.Type | None, Any], Any]:
    """Makes values comparable."""
    return plain
