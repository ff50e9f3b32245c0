"""Hostile guests end in a `GuestFault`, wrong host values in a `TypeError` or `ValueError`; nothing else is read or written."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.abi import Err, Ok, Some, Variant, compile_export, compile_import
from astrid_host.abi.layout import alignment, size, spills_result
from astrid_host.abi.runtime import EMPTY_ELEMENTS, HOST_BYTES
from astrid_host.errors import GuestFault
from astrid_host.wit import types as wit

Make = Callable[..., Any]
TEXT, U8, U32 = wit.Primitive("string"), wit.Primitive("u8"), wit.Primitive("u32")
PAGE = 1 << 16
ERRORS = wit.Variant("error-code", (wit.Case("denied", None), wit.Case("unknown", TEXT)))


def function(params: list[wit.Type], result: wit.Type | None) -> wit.Function:
    return wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(params)), result)


def lift(guest: Any, kind: wit.Type, *args: Any) -> Any:
    return compile_import(function([kind], None)).lift_params(guest, args)[0]


def lower(guest: Any, kind: wit.Type, value: Any) -> tuple[Any, ...]:
    return compile_export(function([kind], None)).lower_params(guest, value)


CORE = {
    "i32": st.integers(0, 64) | st.integers(0, PAGE) | st.integers(0, (1 << 32) - 1),
    "i64": st.integers(0, 64) | st.integers(0, (1 << 64) - 1),
    "f32": st.floats(width=32),
    "f64": st.floats(),
}
# Mostly small numbers, so that pointers, lengths and discriminants are often right.
MEMORY = st.lists(st.sampled_from((0, 0, 0, 1, 2, 3, 8, 16, 65, 0xC3, 0xFF)), min_size=64, max_size=256).map(
    lambda piece: (bytes(piece) * (PAGE // len(piece) + 1))[:PAGE]
)


@given(data=st.data())
def test_any_core_values_over_any_memory_are_lifted_or_are_a_fault(
    data: st.DataObject, bytes_guest: Make, wit_types: Make, comparable: Make
) -> None:
    kinds, result = data.draw(st.lists(wit_types(), max_size=3)), data.draw(st.none() | wit_types())
    called = function(kinds, result)
    guest = bytes_guest(content=data.draw(MEMORY))
    before = bytes(guest.memory)
    args = tuple(data.draw(CORE[core]) for core in compile_import(called).signature.params)
    try:
        lifted = compile_import(called).lift_params(guest, args)
    except GuestFault:
        lifted = None
    if lifted is not None:
        for kind, value in zip(kinds, lifted, strict=True):
            comparable(kind, value)  # it is of the right form
    for core in compile_export(called).signature.results:
        try:
            comparable(result, compile_export(called).lift_result(guest, data.draw(CORE[core])))
        except GuestFault:
            continue
    assert guest.memory == before


@contextmanager
def refused(path: str) -> Generator[None]:
    """Nothing is raised, or a refusal that begins with the path of what was wrong."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not str(error).startswith(path):
            raise


class Hollow:
    """Has every attribute, and in it nothing useful."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(),
        st.sampled_from(("\ud800", "denied", "case0", "f0", "a")),
        st.binary(),
        st.builds(lambda: memoryview(b"1234").cast("I")),
        st.builds(object),
        st.builds(Hollow),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
        st.sampled_from((Some, Ok, Err)).flatmap(lambda wrap: inner.map(wrap)),
        st.builds(Variant, st.sampled_from(("a", "from", "denied")) | st.integers() | st.lists(st.none()), inner),
        st.builds(lambda given: SimpleNamespace(a=given, value=given, from_=given, b_c=given), inner),
    ),
    max_leaves=6,
)


@given(data=st.data())
def test_any_host_value_is_lowered_or_is_refused(data: st.DataObject, bytes_guest: Make, wit_types: Make) -> None:
    kind = data.draw(wit_types(most_cases=5))
    value = data.draw(JUNK)
    guest = bytes_guest()
    with refused("f: p0"):
        lower(guest, kind, value)
    assert guest.stray() == []


@given(data=st.data())
def test_any_host_result_is_lowered_or_is_refused(data: st.DataObject, bytes_guest: Make, wit_types: Make) -> None:
    kind = data.draw(wit_types(most_cases=5) | st.just(wit.ResultOf(None, ERRORS)))
    called, guest = function([], kind), bytes_guest()
    code = compile_import(called)
    args = (guest.reserve(alignment(kind), size(kind)),) if spills_result(called) else ()
    with refused("f: result"):
        code.lower_result(guest, args, data.draw(JUNK))
    with refused("f"):
        code.lower_error(guest, args, data.draw(JUNK), data.draw(JUNK))
    assert guest.stray(*((at, size(kind)) for at in args)) == []


@pytest.mark.parametrize(
    ("at", "length"), [(PAGE, 1), (PAGE - 3, 4), (0, PAGE + 1), (0xFFFFFFFF, 0xFFFFFFFF), (PAGE + 1, 0)]
)
@pytest.mark.parametrize("kind", [TEXT, wit.ListOf(U8), wit.ListOf(wit.TupleOf((U8,)))], ids=str)
def test_what_is_not_in_memory_is_not_read(bytes_guest: Make, kind: wit.Type, at: int, length: int) -> None:
    with pytest.raises(GuestFault, match="not in the guest's memory of 65536 bytes"):
        lift(bytes_guest(), kind, at, length)


@pytest.mark.parametrize("count", [PAGE // 4 + 1, 0x40000000, 0x40000001, 0xFFFFFFFF])
def test_a_list_whose_bytes_would_overflow_is_a_fault(bytes_guest: Make, count: int) -> None:
    with pytest.raises(GuestFault, match="not in the guest's memory"):
        lift(bytes_guest(), wit.ListOf(U32), 0, count)


@pytest.mark.parametrize("kind", [TEXT, wit.ListOf(U8), wit.ListOf(U32), wit.ListOf(wit.TupleOf((U32, U32)))], ids=str)
def test_what_takes_two_to_the_28_bytes_in_one_piece_is_a_fault(kind: wit.Type) -> None:
    size = 4 if kind == wit.ListOf(U32) else 8 if isinstance(kind, wit.ListOf) and kind.element != U8 else 1
    with mmap.mmap(-1, (1 << 28) + PAGE) as memory:  # none of it is ever touched
        guest = SimpleNamespace(view=memoryview(memory), handles=None)
        with pytest.raises(GuestFault, match="at most 268435455"):
            lift(guest, kind, 0, (1 << 28) // size)
        guest.view.release()


def test_a_misaligned_list_is_a_fault_even_when_it_is_empty(bytes_guest: Make) -> None:
    with pytest.raises(GuestFault, match="0x2 is not a multiple of 4"):
        lift(bytes_guest(), wit.ListOf(U32), 2, 0)
    assert lift(bytes_guest(), wit.ListOf(U32), PAGE, 0) == []


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"])
def test_a_string_that_is_not_utf8_is_a_fault(bytes_guest: Make, text: bytes) -> None:
    with pytest.raises(GuestFault, match="f: a string is not UTF-8"):
        lift(bytes_guest(content=text.ljust(PAGE, b" ")), TEXT, 0, len(text))


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])
def test_a_char_is_a_scalar_value(bytes_guest: Make, code: int) -> None:
    with pytest.raises(GuestFault, match="no Unicode scalar value"):
        lift(bytes_guest(), wit.Primitive("char"), code)


@pytest.mark.parametrize(
    "kind",
    [wit.Enum("e", ("a", "b")), wit.OptionOf(U8), wit.ResultOf(None, None), wit.Variant("v", (wit.Case("a", U8),))],
)
def test_a_discriminant_beyond_the_cases_is_a_fault(bytes_guest: Make, kind: wit.Type) -> None:
    width = len(compile_import(function([kind], None)).signature.params)
    for tag in (2, 0x100, 0xFFFFFFFF):
        with pytest.raises(GuestFault, match=f"no case {tag}"):
            lift(bytes_guest(), kind, tag, *[0] * (width - 1))
    with pytest.raises(GuestFault, match="no case 3"):
        lift(bytes_guest(content=bytes([3]) * PAGE), wit.ListOf(kind), 0, 1)


def test_a_bad_place_for_the_result_stops_the_call_before_it_has_done_anything(bytes_guest: Make) -> None:
    code = compile_import(function([], wit.ResultOf(None, ERRORS)))
    for place in (2, PAGE, PAGE - 8):
        with pytest.raises(GuestFault, match="f: the place for its result"):
            code.lift_params(bytes_guest(), (place,))


def test_a_bad_place_for_spilled_parameters_is_a_fault(bytes_guest: Make) -> None:
    code = compile_import(function([U32] * 17, None))
    for base in (2, PAGE, PAGE - 64):
        with pytest.raises(GuestFault, match="f: its parameters"):
            code.lift_params(bytes_guest(), (base,))


def test_lists_cost_the_host_a_small_multiple_of_the_guests_memory(bytes_guest: Make) -> None:
    with pytest.raises(GuestFault, match="16 times the guest's memory"):
        lift(bytes_guest(content=bytes(PAGE)), wit.ListOf(wit.TupleOf((wit.Primitive("bool"),))), 0, PAGE)
    # 8,000 lists that are all the same 32 KiB
    overlapping = b"\0\0\0\0\0\x7f\0\0" * (PAGE // 8)
    with pytest.raises(GuestFault, match="16 times the guest's memory"):
        lift(bytes_guest(content=overlapping), wit.ListOf(wit.ListOf(U8)), 0, 8000)
    with pytest.raises(GuestFault, match="16 times the guest's memory"):
        lift(bytes_guest(content=overlapping), wit.ListOf(TEXT), 0, 8000)


def test_lists_cost_the_host_no_more_than_a_fixed_amount(bytes_guest: Make) -> None:
    pages = HOST_BYTES // 16 // PAGE + 64
    guest = bytes_guest(content=bytes(pages * PAGE))
    with pytest.raises(GuestFault, match="more than the 134217728 bytes"):
        lift(guest, wit.ListOf(wit.Primitive("s8")), 0, len(guest.memory) // 2)


def test_a_list_of_empty_elements_has_a_bound_of_its_own(bytes_guest: Make) -> None:
    kind = wit.ListOf(wit.TupleOf(()))
    assert lift(bytes_guest(), kind, 0, 3) == [(), (), ()]
    with pytest.raises(GuestFault, match="4294967295 empty elements"):
        lift(bytes_guest(), kind, 0, 0xFFFFFFFF)
    with pytest.raises(GuestFault, match="empty elements"):
        lift(bytes_guest(), kind, 0, EMPTY_ELEMENTS + 1)
    at, count = lower(bytes_guest(), kind, [(), ()])
    assert (count, at % 1) == (2, 0)


MESSAGE = wit.Record("message", (wit.Field("topic", TEXT), wit.Field("seq", wit.Primitive("u64"))))
ENVELOPE = wit.Record("envelope", (wit.Field("messages", wit.ListOf(MESSAGE)), wit.Field("who", ERRORS)))
GOOD = SimpleNamespace(topic="t", seq=1)


@pytest.mark.parametrize(
    ("envelope", "error", "message"),
    [
        ([GOOD, SimpleNamespace(topic=3, seq=1)], TypeError, "messages[1].topic must be a str for string; given int 3"),
        (
            [SimpleNamespace(topic="t", seq=-1)],
            ValueError,
            "messages[0].seq must be 0 to 18446744073709551615 for u64; given int -1",
        ),
        ([SimpleNamespace(topic="t", seq=True)], TypeError, "messages[0].seq must be an int for u64; given bool True"),
        ([SimpleNamespace(topic="\ud800", seq=1)], ValueError, "messages[0].topic has a lone surrogate at 0"),
        ([GOOD, None], TypeError, "messages[1] must have the attributes of message (topic, seq); given NoneType None"),
        ("no", TypeError, "messages must be a list or tuple for list<message>; given str 'no'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(
    bytes_guest: Make, envelope: Any, error: type[Exception], message: str
) -> None:
    value = SimpleNamespace(messages=envelope, who=Variant("denied"))
    code = compile_import(wit.Function("recv", (), wit.ResultOf(ENVELOPE, ERRORS)))
    with pytest.raises(error, match=re.escape(f"recv: result.ok.{message}")):
        code.lower_result(bytes_guest(), (64,), value)


@pytest.mark.parametrize(
    ("case", "payload", "error", "message"),
    [
        ("gone", None, ValueError, "result.error must be a case of error-code (denied, unknown); given str 'gone'"),
        (None, None, TypeError, "result.error must be a str"),
        ("denied", "text", TypeError, "result.error carries nothing: expected None; given str 'text'"),
        ("unknown", None, TypeError, "result.error.unknown must be a str for string; given NoneType None"),
    ],
)
def test_a_wrong_error_is_refused(
    bytes_guest: Make, case: Any, payload: Any, error: type[Exception], message: str
) -> None:
    code = compile_import(function([], wit.ResultOf(None, ERRORS)))
    message = message.replace("must be a str", "must be a case", 1) if case is None else message
    with pytest.raises(error, match=re.escape(f"f: {message}")):
        code.lower_error(bytes_guest(), (64,), case, payload)


def test_a_function_without_error_cases_cannot_answer_one(bytes_guest: Make) -> None:
    for result in (None, U8, wit.ResultOf(U8, None), wit.ResultOf(None, TEXT)):
        with pytest.raises(TypeError, match="f answers no error with cases, so it cannot answer 'denied'"):
            compile_import(function([], result)).lower_error(bytes_guest(), (64,), "denied", None)


def test_where_wit_has_no_value_a_host_function_returns_none(bytes_guest: Make) -> None:
    for result in (None, wit.ResultOf(None, ERRORS)):
        with pytest.raises(TypeError, match="carries nothing: expected None; given int 5"):
            compile_import(function([], result)).lower_result(bytes_guest(), (64,), 5)


@pytest.mark.parametrize("name", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_out_of_range_are_refused_alone_and_in_lists(bytes_guest: Make, name: Any) -> None:
    bits = int(name[1:])
    low, high = (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for wrong in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"f: p0 must be {low} to {high} for {name}; given int {wrong}"):
            lower(bytes_guest(), wit.Primitive(name), wrong)
        if name != "u8":
            with pytest.raises(ValueError, match=rf"f: p0\[1\] must be {low} to {high} for {name}"):
                lower(bytes_guest(), wit.ListOf(wit.Primitive(name)), [low, wrong])


def test_a_list_that_changes_while_it_is_lowered_writes_nothing_else(bytes_guest: Make) -> None:
    guest, given_list = bytes_guest(), ["a"]

    class Growing(str):
        def encode(self, *_args: Any) -> bytes:
            given_list.append("more")
            return b"a"

    given_list[0] = Growing("\u00e9")
    lower(guest, wit.ListOf(TEXT), given_list)
    assert guest.stray() == []


def test_a_value_too_large_for_the_canonical_abi_is_refused_before_anything_is_allocated(
    bytes_guest: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Huge(list[Any]):
        def __len__(self) -> int:
            return 1 << 28

    guest = bytes_guest()
    with pytest.raises(ValueError, match="f: p0 takes 2147483648 bytes; expected at most 268435455"):
        lower(guest, wit.ListOf(TEXT), Huge())
    assert guest.allocations == []


def test_an_allocator_that_refuses_ends_the_lowering(bytes_guest: Make) -> None:
    guest = bytes_guest()

    def refuse(_align: int, _size: int) -> int:
        raise GuestFault("no memory")

    guest.realloc = refuse
    with pytest.raises(GuestFault, match="no memory"):
        lower(guest, TEXT, "text")
    assert guest.stray() == []
