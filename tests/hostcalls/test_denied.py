"""Host functions that there are not: each answers in its own interface's words."""

from __future__ import annotations

import pytest

from astrid_host.errors import GuestFault, HostError
from astrid_host.hostcalls.denied import Denied
from astrid_host.wit.types import (
    Borrow,
    Case,
    Enum,
    Field,
    Function,
    Interface,
    Own,
    Primitive,
    Resource,
    ResultOf,
    Type,
    Variant,
)

TEXT = Primitive("string")


def errors(*plain: str, text: tuple[str, ...] = ()) -> Variant:
    return Variant("error-code", (*(Case(name, None) for name in plain), *(Case(name, TEXT) for name in text)))


def interface(result: Type | None) -> Interface:
    return Interface("astrid:x/host@1.0.0", "host", {}, {"f": Function("f", (), result)})


@pytest.mark.parametrize(
    ("error", "case", "payload"),
    [
        (errors("not-found", "access", "capability-denied", text=("unknown",)), "capability-denied", None),
        (errors("invalid-input", "timeout", "store-unavailable", text=("unknown",)), "store-unavailable", None),
        (
            errors("not-in-lifecycle", "timeout", "cancelled", "invalid-input", "store-unavailable", text=("unknown",)),
            "not-in-lifecycle",
            None,
        ),
        (errors("invalid-input", "closed", "too-large", "cancelled", text=("unknown",)), "invalid-input", None),
        (errors("closed", text=("last-operation-failed",)), "closed", None),
        (errors("timeout", text=("unknown",)), "unknown", "this host does not have it"),
        (errors("timeout"), "timeout", None),
        (Enum("error-code", ("not-found", "capability-denied")), "capability-denied", None),
    ],
)
def test_it_refuses_with_the_nearest_case_that_there_is(error: Type, case: str, payload: str | None) -> None:
    function = Denied(interface(ResultOf(TEXT, error))).functions()["f"]
    with pytest.raises(HostError) as caught:
        function.run(object(), "any", 1)
    assert (caught.value.case, caught.value.payload) == (case, payload)
    assert caught.value.detail == "this host does not have f of astrid:x/host@1.0.0"
    assert not function.waits
    assert not function.suspends


@pytest.mark.parametrize("result", [None, TEXT, ResultOf(TEXT, None), ResultOf(TEXT, TEXT), ResultOf(None, errors())])
def test_a_function_without_room_for_an_error_ends_the_call(result: Type | None) -> None:
    function = Denied(interface(result)).functions()["f"]
    with pytest.raises(GuestFault, match=r"does not have f of astrid:x/host@1\.0\.0"):
        function.run(object())


def test_methods_go_by_their_core_names() -> None:
    resource = Resource("astrid:x/host@1.0.0", "thing")
    own = Function("make", (), ResultOf(Own(resource), errors("capability-denied")))
    method = Function("use", (Field("self", Borrow(resource)),), TEXT, "method", resource)
    declared = Interface("astrid:x/host@1.0.0", "host", {"thing": resource}, {f.core_name: f for f in (own, method)})
    denied = Denied(declared)
    assert denied.wit == ("astrid:x/host@1.0.0",)
    assert {name: function.name for name, function in denied.functions().items()} == {
        "make": "make",
        "[method]thing.use": "[method]thing.use",
    }
    with pytest.raises(GuestFault, match=r"\[method\]thing.use"):
        denied.functions()["[method]thing.use"].run(object(), object())
