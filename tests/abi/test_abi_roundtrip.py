"""Whatever is lowered is lifted again as the same value, on every way that the canonical ABI has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from astrid_host.abi import Err, ImportCode, Ok, Some, Variant, compile_export, compile_import
from astrid_host.abi.layout import alignment, flatten, size, spills_params, spills_result
from astrid_host.wit import types as wit

Make = Callable[..., Any]
ERRORS = wit.Variant(
    "error-code", (wit.Case("denied", None), wit.Case("unknown", wit.Primitive("string")), wit.Case("late", None))
)


def function(params: list[wit.Type], result: wit.Type | None) -> wit.Function:
    return wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(params)), result)


def place_for_result(guest: Any, called: wit.Function) -> tuple[int, ...]:
    """Where a guest would have its result put; with nothing when it is returned as it is."""
    if not spills_result(called):
        return ()
    assert called.result is not None
    return (guest.reserve(alignment(called.result), size(called.result)),)


@given(data=st.data())
def test_parameters_come_back_flat_and_through_memory(
    data: st.DataObject, bytes_guest: Make, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    kinds = data.draw(st.lists(wit_types(), max_size=6))
    called = function(kinds, None)
    given_values = [data.draw(wit_values(kind)) for kind in kinds]
    guest = bytes_guest()
    args = compile_export(called).lower_params(guest, *given_values)
    assert len(args) == len(compile_export(called).signature.params) == len(compile_import(called).signature.params)
    lifted = compile_import(called).lift_params(guest, args)
    for kind, before, after in zip(kinds, given_values, lifted, strict=True):
        assert comparable(kind, after) == comparable(kind, before)
    assert guest.stray() == []


@given(data=st.data())
def test_more_than_sixteen_core_values_go_through_memory(
    data: st.DataObject, bytes_guest: Make, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    kinds = [*data.draw(st.lists(wit_types(), min_size=1, max_size=4)), *[wit.Primitive("u16")] * 17]
    called = function(kinds, None)
    assert spills_params(called)
    given_values = [data.draw(wit_values(kind)) for kind in kinds]
    guest = bytes_guest()
    args = compile_export(called).lower_params(guest, *given_values)
    assert len(args) == 1
    lifted = compile_import(called).lift_params(guest, args)
    assert [comparable(*pair) for pair in zip(kinds, lifted, strict=True)] == [
        comparable(*pair) for pair in zip(kinds, given_values, strict=True)
    ]
    assert guest.stray() == []


@given(data=st.data())
def test_results_come_back_flat_and_through_memory(
    data: st.DataObject, bytes_guest: Make, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    kind = data.draw(wit_types().filter(lambda kind: not isinstance(kind, wit.ResultOf)))
    called = function([], kind)
    value = data.draw(wit_values(kind))
    guest = bytes_guest()
    args = place_for_result(guest, called)
    assert compile_import(called).lift_params(guest, args) == ()
    flat = compile_import(called).lower_result(guest, args, value)
    lifted = compile_export(called).lift_result(guest, args[0] if args else flat)
    assert comparable(kind, lifted) == comparable(kind, value)
    assert guest.stray(*((at, size(kind)) for at in args)) == []


@given(data=st.data())
def test_a_function_that_may_fail_returns_its_good_value_or_an_error_case(
    data: st.DataObject, bytes_guest: Make, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    good = data.draw(st.none() | wit_types())
    kind = wit.ResultOf(good, ERRORS)
    called = function([], kind)
    code, guest = compile_import(called), bytes_guest()
    args = place_for_result(guest, called)
    value = None if good is None else data.draw(wit_values(good))
    assert code.lower_result(guest, args, value) is None
    lifted = compile_export(called).lift_result(guest, args[0])
    assert comparable(kind, lifted) == comparable(kind, Ok(value))
    error = data.draw(wit_values(ERRORS))
    assert code.lower_error(guest, args, error.case, error.value) is None
    assert compile_export(called).lift_result(guest, args[0]) == Err(error)
    assert guest.stray((args[0], size(kind))) == []


def test_an_error_may_be_an_enum(bytes_guest: Make) -> None:
    called = function([], wit.ResultOf(wit.Primitive("u64"), wit.Enum("why", ("busy", "gone"))))
    guest = bytes_guest()
    args = place_for_result(guest, called)
    compile_import(called).lower_error(guest, args, "gone", None)
    assert compile_export(called).lift_result(guest, args[0]) == Err("gone")


def test_a_result_without_payloads_is_returned_as_it_is(bytes_guest: Make) -> None:
    called = function([], wit.ResultOf(None, None))
    assert compile_import(called).lower_result(bytes_guest(), (), None) == 0
    assert compile_export(called).lift_result(bytes_guest(), 1) == Err()


def test_only_the_discriminant_is_written_for_a_result_without_payload(bytes_guest: Make) -> None:
    guest, called = bytes_guest(), function([], wit.ResultOf(None, ERRORS))
    (at,) = args = place_for_result(guest, called)
    compile_import(called).lower_result(guest, args, None)
    assert guest.stray((at, 1)) == []


def test_the_memory_is_looked_at_once_for_lifting_and_once_after_all_allocations(bytes_guest: Make) -> None:
    called = function([wit.Primitive("string"), wit.ListOf(wit.Primitive("u8")), wit.Primitive("string")], None)
    guest = bytes_guest()
    args = compile_export(called).lower_params(guest, "one", b"two", "three")
    assert (guest.looks, len(guest.allocations)) == (1, 3)
    compile_import(called).lift_params(guest, args)
    assert guest.looks == 2
    numbers = compile_import(function([wit.Primitive("u64"), wit.Enum("e", ("a", "b"))], None))
    assert numbers.lift_params(guest, (1, 1)) == (1, "b")
    assert guest.looks == 2, "what is not in memory needs no look at it"


TEXT = wit.Primitive("string")
PERHAPS: st.SearchStrategy[wit.Type] = st.sampled_from(
    (
        TEXT,
        wit.OptionOf(TEXT),
        wit.ResultOf(None, TEXT),
        wit.Variant("v", (wit.Case("a", wit.OptionOf(TEXT)), wit.Case("b", wit.Primitive("u8")), wit.Case("c", None))),
        wit.TupleOf((wit.OptionOf(wit.Primitive("u8")), TEXT)),
        wit.ListOf(wit.OptionOf(TEXT)),
    )
)


@given(data=st.data())
def test_memory_that_moves_in_some_cases_and_not_in_others_is_written_where_it_is(
    data: st.DataObject, bytes_guest: Make, wit_values: Make, comparable: Make
) -> None:
    kinds = data.draw(st.lists(PERHAPS, min_size=1, max_size=6))
    called = function(kinds, None)
    given_values = [data.draw(wit_values(kind)) for kind in kinds]
    guest = bytes_guest()
    args = compile_export(called).lower_params(guest, *given_values)
    lifted = compile_import(called).lift_params(guest, args)
    assert [comparable(*pair) for pair in zip(kinds, lifted, strict=True)] == [
        comparable(*pair) for pair in zip(kinds, given_values, strict=True)
    ]
    assert guest.stray() == []


def test_integers_are_passed_unsigned_and_lifted_with_their_sign(bytes_guest: Make) -> None:
    kinds: list[wit.Type] = [wit.Primitive("s8"), wit.Primitive("s32"), wit.Primitive("s64")]
    called = function(kinds, None)
    args = compile_export(called).lower_params(bytes_guest(), -1, -2, -3)
    assert args == (0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFD)
    assert compile_import(called).lift_params(bytes_guest(), args) == (-1, -2, -3)


def test_narrow_integers_ignore_what_stands_above_their_bits(bytes_guest: Make) -> None:
    called = function([wit.Primitive("u8"), wit.Primitive("s16"), wit.Primitive("bool")], None)
    lifted = compile_import(called).lift_params(bytes_guest(), (0xFFFFFF01, 0x12348000, 0x100))
    assert lifted == (1, -0x8000, True)


def test_a_record_has_its_fields_as_attributes_and_keywords_with_an_underscore(bytes_guest: Make) -> None:
    record = wit.Record(
        "my-record", (wit.Field("source-id", wit.Primitive("u8")), wit.Field("from", wit.Primitive("u8")))
    )
    (lifted,) = compile_import(function([record], None)).lift_params(bytes_guest(), (1, 2))
    assert (lifted.source_id, lifted.from_) == (1, 2)
    assert repr(lifted) == "MyRecord(source_id=1, from_=2)"
    assert not hasattr(lifted, "__dict__")


def test_code_is_made_once_for_equal_functions() -> None:
    kinds: list[wit.Type] = [wit.Primitive("u8")]
    assert compile_import(function(kinds, None)) is compile_import(function(kinds, None))
    assert compile_export(function(kinds, None)) is compile_export(function(kinds, None))


def test_a_held_function_gets_its_real_code_by_its_first_call(bytes_guest: Make) -> None:
    lift: Any = ImportCode(function([wit.Primitive("char")], None)).lift_params
    first = lift.__code__
    assert lift(bytes_guest(), (65,)) == lift(bytes_guest(), (65,)) == ("A",)
    assert lift.__code__ is not first


@settings(max_examples=20)
@given(data=st.data())
def test_what_a_post_return_is_called_with_is_what_the_function_returned(data: st.DataObject, wit_types: Make) -> None:
    code = compile_export(function([], data.draw(wit_types())))
    assert code.post_return_signature.params == code.signature.results
    assert code.post_return_signature.results == ()


def test_equal_values_are_equal_and_say_what_they_are() -> None:
    assert Variant("a") == Variant("a", None) != Variant("a", 1)
    assert Ok(1) == Ok(1)
    others: list[Any] = [Err(1), Some(1), Ok(2), 1]
    assert Ok(1) not in others
    assert repr(Variant("a", 1)) == "Variant(case='a', value=1)"
    assert len({Ok(1), Ok(1), Err(1)}) == 2
    assert flatten(wit.TupleOf(())) == ()
