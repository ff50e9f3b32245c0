"""Handles: what a guest may do with those that it has, and what happens to what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from astrid_host.abi import HandleTable, compile_drop, compile_import
from astrid_host.errors import GuestFault
from astrid_host.wit import types as wit

Make = Callable[..., Any]
PAGE = 1 << 16


def function(params: list[wit.Type], result: wit.Type | None) -> wit.Function:
    return wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(params)), result)


def lift(guest: Any, kind: wit.Type, *args: Any) -> Any:
    return compile_import(function([kind], None)).lift_params(guest, args)[0]


SUBSCRIPTION, OTHER = wit.Resource("a:b/c", "subscription"), wit.Resource("a:b/c", "other")


class Held:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_handle_has_to_be_there_and_of_the_right_resource(bytes_guest: Make) -> None:
    guest = bytes_guest()
    index = guest.handles.add(SUBSCRIPTION, "x")
    assert lift(guest, wit.Borrow(SUBSCRIPTION), index) == "x"
    for kind in (wit.Borrow(OTHER), wit.Own(OTHER)):
        with pytest.raises(GuestFault, match="handle 1 is of subscription: expected one of other"):
            lift(guest, kind, index)
    for wrong in (0, 2, 0xFFFFFFFF):
        with pytest.raises(GuestFault, match="is no handle"):
            lift(guest, wit.Borrow(SUBSCRIPTION), wrong)
    assert lift(guest, wit.Own(SUBSCRIPTION), index) == "x"
    with pytest.raises(GuestFault, match="1 is no handle"):
        lift(guest, wit.Borrow(SUBSCRIPTION), index)


def test_what_was_taken_for_a_call_that_is_not_made_is_closed(bytes_guest: Make) -> None:
    guest, held = bytes_guest(content=b"\xff" * PAGE), Held()
    code = compile_import(function([wit.Own(SUBSCRIPTION), wit.Primitive("string")], None))
    for text in ((0, 1), (PAGE, 1)):
        with pytest.raises(GuestFault):
            code.lift_params(guest, (guest.handles.add(SUBSCRIPTION, held), *text))
    assert held.closed == 2
    assert len(guest.handles) == 0


def test_a_handle_is_not_lent_and_given_away_in_one_call(bytes_guest: Make) -> None:
    code = compile_import(function([wit.Borrow(SUBSCRIPTION), wit.Own(SUBSCRIPTION)], None))
    guest = bytes_guest()
    first, second = guest.handles.add(SUBSCRIPTION, Held()), guest.handles.add(SUBSCRIPTION, Held())
    assert len(code.lift_params(guest, (first, second))) == 2
    with pytest.raises(GuestFault, match="given away while it is lent"):
        code.lift_params(guest, (first, first))


def test_two_handles_of_one_thing_are_two_handles(bytes_guest: Make) -> None:
    code = compile_import(function([wit.Borrow(SUBSCRIPTION), wit.Own(SUBSCRIPTION)], None))
    guest, held = bytes_guest(), Held()
    lent, given = guest.handles.add(SUBSCRIPTION, held), guest.handles.add(SUBSCRIPTION, held)
    assert code.lift_params(guest, (lent, given)) == (held, held)
    with pytest.raises(GuestFault, match=f"the handle {lent} is given away while it is lent"):
        code.lift_params(guest, (lent, lent))
    assert lift(guest, wit.Borrow(SUBSCRIPTION), lent) is held  # it is still the guest's


@pytest.mark.parametrize("lent", [0, 1])
def test_a_handle_is_not_lent_in_a_list_and_given_away(lent: int, bytes_guest: Make) -> None:
    code = compile_import(function([wit.ListOf(wit.Borrow(SUBSCRIPTION)), wit.Own(SUBSCRIPTION)], None))
    guest = bytes_guest(content=b"\1\0\0\0\2\0\0\0" + bytes(PAGE - 8))
    handles = [guest.handles.add(SUBSCRIPTION, Held()) for _ in range(3)]
    with pytest.raises(GuestFault, match="given away while it is lent"):
        code.lift_params(guest, (0, 2, handles[lent]))
    assert len(code.lift_params(guest, (0, 2, handles[2]))) == 2


def test_an_owned_result_gets_a_handle_and_dropping_it_closes_it(bytes_guest: Make) -> None:
    guest, held = bytes_guest(), Held()
    index = compile_import(function([], wit.Own(SUBSCRIPTION))).lower_result(guest, (), held)
    drop = compile_drop(SUBSCRIPTION)
    assert (drop.signature.params, drop.signature.results) == (("i32",), ())
    assert drop.lift_params(guest, (index,)) == ()
    assert held.closed == 1
    with pytest.raises(GuestFault, match="is no handle"):
        drop.lift_params(guest, (index,))


def test_handles_are_numbered_from_one_and_the_lowest_free_one_is_used_next() -> None:
    table = HandleTable()
    assert [table.add(SUBSCRIPTION, i) for i in range(4)] == [1, 2, 3, 4]
    table.take(SUBSCRIPTION, 3)
    table.take(SUBSCRIPTION, 1)
    assert [table.add(SUBSCRIPTION, i) for i in range(3)] == [1, 3, 5]


def test_a_guest_holds_65536_handles_at_most() -> None:
    table = HandleTable()
    for i in range(65_536):
        table.add(SUBSCRIPTION, i)
    with pytest.raises(GuestFault, match="65536 handles"):
        table.add(SUBSCRIPTION, 0)
    table.take(SUBSCRIPTION, 7)
    assert table.add(SUBSCRIPTION, 0) == 7


def test_clearing_closes_everything_even_when_one_fails() -> None:
    class Broken:
        def close(self) -> None:
            raise OSError("no")

    table, held = HandleTable(), [Held(), Held()]
    for rep in (held[0], Broken(), held[1]):
        table.add(SUBSCRIPTION, rep)
    with pytest.raises(OSError, match="no"):
        table.clear()
    assert ([rep.closed for rep in held], len(table)) == ([1, 1], 0)
    assert table.add(SUBSCRIPTION, None) == 1
