"""Every host function that the bundled WIT declares has code that works, errors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from astrid_host.abi import Err, Variant, compile_export, compile_import
from astrid_host.abi.layout import flatten, spills_params, spills_result
from astrid_host.bundled import wit_folder
from astrid_host.errors import GuestFault
from astrid_host.wit import Packages
from astrid_host.wit import types as wit

Make = Callable[..., Any]


def functions() -> list[tuple[str, wit.Function]]:
    packages = Packages(wit_folder())
    found = []
    for name in packages.interfaces():
        interface = packages.interface(name)
        assert interface is not None
        found += [(f"{name} {function.core_name}", function) for function in interface.functions.values()]
    return found


ALL = functions()


@pytest.mark.parametrize("function", [function for _, function in ALL], ids=[name for name, _ in ALL])
def test_a_host_function_lifts_its_parameters_and_answers_each_of_its_errors(
    bytes_guest: Make, function: wit.Function
) -> None:
    code, guest = compile_import(function), bytes_guest(content=bytes(1 << 16))
    args: tuple[int, ...] = ()
    for param in function.params:
        handle = isinstance(param.type, wit.Borrow)
        if isinstance(param.type, wit.Borrow):
            args += (guest.handles.add(param.type.resource, "held"),)
        args += (0,) * (len(flatten(param.type)) - handle)
    args = ((0,) if spills_params(function) else args) + (0,) * spills_result(function)
    assert len(code.lift_params(guest, args)) == len(function.params)
    result = function.result
    if not isinstance(result, wit.ResultOf) or result.err is None:
        with pytest.raises(TypeError, match="answers no error"):
            code.lower_error(guest, args, "unknown", None)
        return
    assert spills_result(function)
    assert isinstance(result.err, wit.Variant | wit.Enum)
    for case in result.err.cases:
        name = case if isinstance(case, str) else case.name
        payload = "why" if isinstance(case, wit.Case) and case.type is not None else None
        code.lower_error(guest, (*args[:-1], 64), name, payload)
        expected: Any = name if isinstance(result.err, wit.Enum) else Variant(name, payload)
        assert compile_export(function).lift_result(guest, 64) == Err(expected)
    with pytest.raises(ValueError, match="must be a case of"):
        code.lower_error(guest, args, "no-such-case", None)


def test_there_are_host_functions() -> None:
    assert len(ALL) >= 200


def test_a_guest_that_lends_a_list_of_handles_is_checked_for_each(bytes_guest: Make) -> None:
    (poll,) = (function for _, function in ALL if function.core_name == "poll" and "io" in str(function.params))
    guest = bytes_guest(content=b"\1\0\0\0\2\0\0\0" + bytes(1 << 10))
    (kind,) = (param.type for param in poll.params)
    assert isinstance(kind, wit.ListOf)
    assert isinstance(kind.element, wit.Borrow)
    code = compile_import(poll)
    guest.handles.add(kind.element.resource, "first")
    with pytest.raises(GuestFault, match="2 is no handle"):
        code.lift_params(guest, (0, 2, 64)[: len(code.signature.params)])
    guest.handles.add(kind.element.resource, "second")
    assert code.lift_params(guest, (0, 2, 64)[: len(code.signature.params)]) == (["first", "second"],)
