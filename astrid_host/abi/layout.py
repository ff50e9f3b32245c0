"""Sizes, alignments and flattening of WIT types, by the component model's canonical ABI."""

from __future__ import annotations

from functools import cache
from typing import Any

from astrid_host.wit.types import (
    Borrow,
    Enum,
    Flags,
    Function,
    ListOf,
    OptionOf,
    Own,
    Primitive,
    Record,
    ResultOf,
    TupleOf,
    Type,
    Variant,
)

MAX_FLAT_PARAMS = 16
MAX_FLAT_RESULTS = 1

# primitive -> (bytes, core type, code of `struct`)
PRIMITIVES = {
    "bool": (1, "i32", "?"),
    "u8": (1, "i32", "B"),
    "s8": (1, "i32", "b"),
    "u16": (2, "i32", "H"),
    "s16": (2, "i32", "h"),
    "u32": (4, "i32", "I"),
    "s32": (4, "i32", "i"),
    "u64": (8, "i64", "Q"),
    "s64": (8, "i64", "q"),
    "f32": (4, "f32", "f"),
    "f64": (8, "f64", "d"),
    "char": (4, "i32", "I"),
}

# bytes -> code of `struct` for an unsigned integer
UNSIGNED = {1: "B", 2: "H", 4: "I"}


def align_to(at: int, alignment: int) -> int:
    """The first multiple of `alignment` at or after `at`."""
    return (at + alignment - 1) // alignment * alignment


def cases_of(kind: Type) -> tuple[tuple[str, Type | None], ...] | None:
    """The cases of anything that has a discriminant; None for what has none."""
    if isinstance(kind, Variant):
        return tuple((case.name, case.type) for case in kind.cases)
    if isinstance(kind, Enum):
        return tuple((name, None) for name in kind.cases)
    if isinstance(kind, OptionOf):
        return (("none", None), ("some", kind.some))
    if isinstance(kind, ResultOf):
        return (("ok", kind.ok), ("error", kind.err))
    return None


def parts_of(kind: Type) -> tuple[Type, ...] | None:
    """The parts of records and tuples; None for what is neither."""
    if isinstance(kind, Record):
        return tuple(field.type for field in kind.fields)
    if isinstance(kind, TupleOf):
        return kind.items
    return None


def mentions(kind: Type | None, handle: type[Own | Borrow]) -> bool:
    """Whether a value of this type may have such a handle in it."""
    if isinstance(kind, handle):
        return True
    if isinstance(kind, ListOf):
        return mentions(kind.element, handle)
    if kind is None:
        return False
    inner: tuple[Type | None, ...] = parts_of(kind) or tuple(of for _, of in cases_of(kind) or ())
    return any(mentions(of, handle) for of in inner)


def discriminant_bytes(cases: int) -> int:
    """The size of the number that says which of so many cases a value is."""
    return 1 if cases <= 1 << 8 else 2 if cases <= 1 << 16 else 4


def tag_code(kind: Type) -> str:
    """The code of `struct` for the discriminant."""
    cases = cases_of(kind)
    assert cases is not None
    return UNSIGNED[discriminant_bytes(len(cases))]


def flag_words(flags: int) -> int:
    """How many i32 so many flags are passed as."""
    return (flags + 31) // 32


@cache
def alignment(kind: Type) -> int:
    """What an address of this type is a multiple of, in bytes."""
    if isinstance(kind, Primitive):
        return 4 if kind.name == "string" else PRIMITIVES[kind.name][0]
    if isinstance(kind, ListOf | Own | Borrow):
        return 4
    if isinstance(kind, Flags):
        return 1 if len(kind.flags) <= 8 else 2 if len(kind.flags) <= 16 else 4
    parts = parts_of(kind)
    if parts is not None:
        return max((alignment(part) for part in parts), default=1)
    cases = cases_of(kind)
    assert cases is not None
    return max(discriminant_bytes(len(cases)), payload_alignment(kind))


def payload_alignment(kind: Type) -> int:
    """What the address of the payload is a multiple of, whichever case it is of."""
    cases = cases_of(kind)
    assert cases is not None
    return max((alignment(payload) for _, payload in cases if payload is not None), default=1)


def payload_offset(kind: Type) -> int:
    """Where the payload of a case begins."""
    cases = cases_of(kind)
    assert cases is not None
    return align_to(discriminant_bytes(len(cases)), payload_alignment(kind))


@cache
def size(kind: Type) -> int:
    """How many bytes a value takes in memory, without what it points to."""
    if isinstance(kind, Primitive):
        return 8 if kind.name == "string" else PRIMITIVES[kind.name][0]
    if isinstance(kind, ListOf):
        return 8
    if isinstance(kind, Own | Borrow):
        return 4
    if isinstance(kind, Flags):
        return alignment(kind) if len(kind.flags) <= 16 else 4 * flag_words(len(kind.flags))
    parts = parts_of(kind)
    if parts is not None:
        end = offsets(kind)[-1] + size(parts[-1]) if parts else 0
        return align_to(end, alignment(kind))
    cases = cases_of(kind)
    assert cases is not None
    most = max((size(payload) for _, payload in cases if payload is not None), default=0)
    return align_to(payload_offset(kind) + most, alignment(kind))


def offsets(kind: Type) -> tuple[int, ...]:
    """Where each part of a record or tuple begins, from its own beginning."""
    found, at = [], 0
    for part in parts_of(kind) or ():
        at = align_to(at, alignment(part))
        found.append(at)
        at += size(part)
    return tuple(found)


def join(a: str, b: str) -> str:
    """The core type that can hold either: what the cases of a variant share."""
    if a == b:
        return a
    return "i32" if {a, b} == {"i32", "f32"} else "i64"


@cache
def flatten(kind: Type) -> tuple[str, ...]:
    """The core values that a value is passed as."""
    if isinstance(kind, Primitive):
        return ("i32", "i32") if kind.name == "string" else (PRIMITIVES[kind.name][1],)
    if isinstance(kind, ListOf):
        return ("i32", "i32")
    if isinstance(kind, Own | Borrow):
        return ("i32",)
    if isinstance(kind, Flags):
        return ("i32",) * flag_words(len(kind.flags))
    parts = parts_of(kind)
    if parts is not None:
        return tuple(flat for part in parts for flat in flatten(part))
    cases = cases_of(kind)
    assert cases is not None
    joined: list[str] = []
    for _, payload in cases:
        for i, flat in enumerate(flatten(payload) if payload is not None else ()):
            if i < len(joined):
                joined[i] = join(joined[i], flat)
            else:
                joined.append(flat)
    return ("i32", *joined)


class CoreSignature:
    """The core types of a function's parameters and results."""

    __slots__ = ("params", "results")

    def __init__(self, params: tuple[str, ...], results: tuple[str, ...]) -> None:
        self.params = params
        self.results = results

    def __eq__(self, other: object) -> bool:
        return type(other) is CoreSignature and (other.params, other.results) == (self.params, self.results)

    def __hash__(self) -> int:
        return hash((self.params, self.results))

    def __repr__(self) -> str:
        return f"({', '.join(self.params)}) -> ({', '.join(self.results)})"


def spills_params(function: Function) -> bool:
    """Whether the parameters go through memory."""
    return sum(len(flatten(param.type)) for param in function.params) > MAX_FLAT_PARAMS


def spills_result(function: Function) -> bool:
    """Whether the result goes through memory."""
    return function.result is not None and len(flatten(function.result)) > MAX_FLAT_RESULTS


def core_signature(function: Function, side: str) -> CoreSignature:
    """The core signature of a function.

    Args:
        side: `import` for what a guest calls, `export` for what it offers.
    """
    flat: Any = tuple(core for param in function.params for core in flatten(param.type))
    params: tuple[str, ...] = ("i32",) if spills_params(function) else flat
    if not spills_result(function):
        return CoreSignature(params, flatten(function.result) if function.result is not None else ())
    if side == "import":
        return CoreSignature((*params, "i32"), ())
    return CoreSignature(params, ("i32",))
