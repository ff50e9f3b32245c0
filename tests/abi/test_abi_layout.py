"""Sizes, alignments, offsets, flattening and bytes, worked out by hand from the canonical ABI's definitions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.abi import Err, Ok, Some, Variant, compile_export, compile_import, core_signature
from astrid_host.abi.layout import alignment, flatten, offsets, size
from astrid_host.wit import types as wit
from astrid_host.wit.types import ListOf, OptionOf, Primitive, ResultOf, TupleOf

Make = Callable[..., Any]
BOOL, CHAR, TEXT, F32, F64 = (Primitive(name) for name in ("bool", "char", "string", "f32", "f64"))
U8, U16, U32, U64, S16 = (Primitive(name) for name in ("u8", "u16", "u32", "u64", "s16"))
CODE = wit.Variant("error-code", (wit.Case("denied", None), wit.Case("unknown", TEXT)))
HANDLE = wit.Own(wit.Resource("a:b/c", "r"))


def record(*kinds: wit.Type) -> wit.Record:
    return wit.Record("r", tuple(wit.Field(f"f{i}", kind) for i, kind in enumerate(kinds)))


def variant(*kinds: wit.Type | None) -> wit.Variant:
    return wit.Variant("v", tuple(wit.Case(f"c{i}", kind) for i, kind in enumerate(kinds)))


def enum(count: int) -> wit.Enum:
    return wit.Enum("e", tuple(f"c{i}" for i in range(count)))


def flags(count: int) -> wit.Flags:
    return wit.Flags("f", tuple(f"f{i}" for i in range(count)))


def names(kind: object) -> str:
    return str(kind) if not isinstance(kind, wit.Enum | wit.Flags) else f"{kind}{len(getattr(kind, 'cases', ()))}"


@pytest.mark.parametrize(
    ("kind", "bytes_", "align"),
    [
        (BOOL, 1, 1), (U8, 1, 1), (S16, 2, 2), (U32, 4, 4), (F32, 4, 4), (CHAR, 4, 4), (U64, 8, 8), (F64, 8, 8),
        (TEXT, 8, 4), (ListOf(U64), 8, 4), (HANDLE, 4, 4), (wit.Borrow(HANDLE.resource), 4, 4),
        (record(U8, U16, U32), 8, 4), (record(U8, U64), 16, 8), (record(U64, U8), 16, 8), (TupleOf((U8, U8, U16, U8)), 6, 2),
        (record(), 0, 1), (record(record(U8, U16), U8), 6, 2),
        (OptionOf(U8), 2, 1), (OptionOf(U32), 8, 4), (OptionOf(U64), 16, 8), (OptionOf(TEXT), 12, 4),
        (OptionOf(OptionOf(U16)), 6, 2), (ResultOf(None, None), 1, 1), (ResultOf(U8, U64), 16, 8), (ResultOf(None, CODE), 16, 4),
        (CODE, 12, 4), (variant(None), 1, 1), (variant(U8, U16, None), 4, 2),
        (enum(1), 1, 1), (enum(256), 1, 1), (enum(257), 2, 2), (enum(65_536), 2, 2), (enum(65_537), 4, 4),
        (flags(1), 1, 1), (flags(8), 1, 1), (flags(9), 2, 2), (flags(16), 2, 2), (flags(17), 4, 4), (flags(32), 4, 4),
        (flags(33), 8, 4), (flags(64), 8, 4), (flags(65), 12, 4),
    ],
    ids=names,
)  # fmt: skip
def test_sizes_and_alignments(kind: wit.Type, bytes_: int, align: int) -> None:
    assert (size(kind), alignment(kind)) == (bytes_, align)


def test_fields_stand_in_order_at_multiples_of_their_alignment() -> None:
    assert offsets(record(U8, U32, U8, U64, U16)) == (0, 4, 8, 16, 24)


@pytest.mark.parametrize(
    ("kind", "core"),
    [
        (BOOL, "i32"), (U64, "i64"), (F32, "f32"), (F64, "f64"), (CHAR, "i32"), (TEXT, "i32 i32"), (ListOf(F64), "i32 i32"),
        (HANDLE, "i32"), (record(U8, record(F32, U64)), "i32 f32 i64"), (record(), ""), (enum(300), "i32"),
        (flags(32), "i32"), (flags(33), "i32 i32"), (flags(65), "i32 i32 i32"),
        (OptionOf(F32), "i32 f32"), (ResultOf(None, None), "i32"), (ResultOf(None, CODE), "i32 i32 i32 i32"),
        (ResultOf(TEXT, U64), "i32 i64 i32"),
        (variant(F32, U32), "i32 i32"), (variant(U32, F32), "i32 i32"), (variant(F32, F64), "i32 i64"),
        (variant(F64, F64), "i32 f64"), (variant(U32, U64), "i32 i64"), (variant(F32, U64), "i32 i64"),
        (variant(F64, U32), "i32 i64"), (variant(None, F32), "i32 f32"), (variant(record(U32, F32), F64), "i32 i64 f32"),
    ],
    ids=names,
)  # fmt: skip
def test_flat_core_types(kind: wit.Type, core: str) -> None:
    assert " ".join(flatten(kind)) == core


@pytest.mark.parametrize(
    ("params", "result", "imported", "exported"),
    [
        ([], None, "() -> ()", "() -> ()"),
        ([TEXT, TEXT], ResultOf(None, CODE), "(i32, i32, i32, i32, i32) -> ()", "(i32, i32, i32, i32) -> (i32)"),
        (
            [TEXT, ListOf(U8)],
            record(TEXT, OptionOf(TEXT)),
            "(i32, i32, i32, i32, i32) -> ()",
            "(i32, i32, i32, i32) -> (i32)",
        ),
        ([], U64, "() -> (i64)", "() -> (i64)"),
        ([], enum(2), "() -> (i32)", "() -> (i32)"),
        ([], TEXT, "(i32) -> ()", "() -> (i32)"),
        ([], ResultOf(None, enum(2)), "(i32) -> ()", "() -> (i32)"),
        ([U8] * 16, None, f"({', '.join(['i32'] * 16)}) -> ()", f"({', '.join(['i32'] * 16)}) -> ()"),
        ([U8] * 17, None, "(i32) -> ()", "(i32) -> ()"),
        ([TEXT] * 9, TEXT, "(i32, i32) -> ()", "(i32) -> (i32)"),
    ],
)
def test_core_signatures_of_imports_and_exports(
    params: list[wit.Type], result: wit.Type | None, imported: str, exported: str
) -> None:
    function = wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(params)), result)
    assert str(core_signature(function, "import")) == imported
    assert str(core_signature(function, "export")) == exported
    assert compile_import(function).signature == core_signature(function, "import")
    assert compile_export(function).signature == core_signature(function, "export")


VECTORS: list[tuple[wit.Type, Any, str]] = [
    (record(U8, U16, U32), SimpleNamespace(f0=1, f1=2, f2=3), "01 00 0200 03000000"),
    (record(BOOL, U64, S16), SimpleNamespace(f0=True, f1=7, f2=-2), "01 00000000000000 0700000000000000 feff"),
    (TupleOf((CHAR, F32, F64)), ("é", 1.5, -2.0), "e9000000 0000c03f 00000000000000c0"),
    (ResultOf(U8, U64), Err(9), "01 .............. 0900000000000000"),
    (ResultOf(U8, U64), Ok(9), "00 .............. 09"),
    (OptionOf(OptionOf(U16)), Some(5), "01 .. 01 .. 0500"),
    (OptionOf(OptionOf(U16)), Some(None), "01 .. 00"),
    (OptionOf(U32), None, "00"),
    (enum(300), "c299", "2b01"),
    (flags(8), frozenset({"f0", "f7"}), "81"),
    (flags(40), frozenset({"f0", "f39"}), "01000000 80000000"),
    (variant(U8, U16, None), Variant("c1", 0x1234), "01 .. 3412"),
    (TupleOf((U8, variant(U32), U8)), (1, Variant("c0", 2), 3), "01 ...... 00 ...... 02000000 03"),
]


def _shown(given: object) -> str:
    """The same in every process: sets have no order of their own."""
    return str(sorted(given) if isinstance(given, frozenset) else given)[:40]


@pytest.mark.parametrize(("kind", "value", "expected"), VECTORS, ids=_shown)
def test_bytes_in_memory(bytes_guest: Make, kind: wit.Type, value: Any, expected: str) -> None:
    """Dots are bytes that nobody is told to write."""
    guest = bytes_guest()
    # As the only element of a list each type is written to memory, also those that are returned as they are.
    at, count = compile_export(wit.Function("f", (wit.Field("p", ListOf(kind)),), None)).lower_params(guest, [value])
    written = guest.memory[at : at + size(kind)].hex()
    wanted = expected.replace(" ", "").ljust(2 * size(kind), ".")
    assert count == 1
    assert [byte for byte, want in zip(written, wanted, strict=True) if want != "."] == list(wanted.replace(".", ""))


def test_strings_and_lists_are_an_address_and_a_length(bytes_guest: Make) -> None:
    guest = bytes_guest()
    function = wit.Function("f", (wit.Field("p", ListOf(TEXT)),), None)
    at, count = compile_export(function).lower_params(guest, ["é", ""])
    (first, first_size), (second, second_size) = guest.allocations[1:]
    assert guest.allocations[0] == (at, 16)
    assert struct.unpack_from("<4I", guest.memory, at) == (first, 2, second, 0)
    assert (first_size, second_size, count) == (2, 0, 2)
    assert guest.memory[first : first + 2] == "é".encode()


def test_core_values_of_a_variant_are_joined(bytes_guest: Make) -> None:
    kind = variant(F32, U64, F64, TEXT)
    lower = compile_export(wit.Function("f", (wit.Field("p", kind),), None)).lower_params
    assert lower(bytes_guest(), Variant("c0", 1.5)) == (0, 0x3FC00000, 0)
    assert lower(bytes_guest(), Variant("c1", 1 << 63)) == (1, 1 << 63, 0)
    assert lower(bytes_guest(), Variant("c2", -2.0)) == (2, 0xC000000000000000, 0)
    lift = compile_import(wit.Function("f", (wit.Field("p", kind),), None)).lift_params
    assert lift(bytes_guest(), (0, 0xFFFFFFFF_3FC00000, 0)) == (Variant("c0", 1.5),)
    assert lift(bytes_guest(content=b"hello"), (3, 0xFFFFFFFF_00000001, 4)) == (Variant("c3", "ello"),)


def test_the_reverse_of_a_union_of_floats_and_integers(bytes_guest: Make) -> None:
    kind = variant(U32, F32)
    lower = compile_export(wit.Function("f", (wit.Field("p", kind),), None)).lower_params
    assert lower(bytes_guest(), Variant("c1", -0.0)) == (1, 0x80000000)


def test_a_float_too_large_for_f32_is_infinite(bytes_guest: Make) -> None:
    lower = compile_export(wit.Function("f", (wit.Field("p", F32), wit.Field("q", ListOf(F32))), None)).lower_params
    guest = bytes_guest()
    flat, at, _ = lower(guest, 1e300, [1.0, -1e300, 2])
    assert flat == float("inf")
    assert struct.unpack_from("<3f", guest.memory, at) == (1.0, float("-inf"), 2.0)


@given(data=st.data())
def test_every_type_keeps_the_rules_of_layout(data: st.DataObject, wit_types: Make) -> None:
    kind = data.draw(wit_types())
    assert alignment(kind) in (1, 2, 4, 8)
    assert size(kind) % alignment(kind) == 0
    assert size(ListOf(kind)) == 8
    assert set(flatten(kind)) <= {"i32", "i64", "f32", "f64"}
    assert size(OptionOf(kind)) == alignment(kind) + size(kind)
    assert flatten(OptionOf(kind)) == ("i32", *flatten(kind))
    assert size(TupleOf((kind, kind))) == 2 * size(kind)
    assert flatten(TupleOf((kind, kind))) == flatten(kind) * 2
    assert sorted(flatten(ResultOf(kind, kind))) == sorted(("i32", *flatten(kind)))
