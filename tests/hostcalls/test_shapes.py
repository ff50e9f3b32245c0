"""Host functions beside their WIT: nothing missing, nothing made up, parameters and records as declared."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from astrid_host.errors import GuestFault, HostError
from astrid_host.hostcalls import Interface
from astrid_host.hostcalls.denied import Denied, nearest
from astrid_host.hostcalls.fs import Datetime, FileStat, Fs
from astrid_host.hostcalls.kv import Kv
from astrid_host.hostcalls.sys import CallerContext, CapabilityCheckResponse, Sys
from astrid_host.stores import KeyPage
from astrid_host.wit import Packages
from astrid_host.wit.types import Function, Record, ResultOf

PACKAGES = Packages(Path(__file__).parents[2] / "wit")
INTERFACES = [name for name in PACKAGES.interfaces() if PACKAGES.interface(name)]


def declared(interface: str) -> dict[str, Function]:
    found = PACKAGES.interface(interface)
    assert found is not None
    return dict(found.functions)


BUILT: list[Interface] = [Kv(Any), Sys(Any), Fs(Any)]  # type: ignore[arg-type]


@pytest.mark.parametrize("provided", BUILT, ids=lambda provided: type(provided).__name__)
def test_a_host_function_has_the_parameters_that_its_wit_declares(provided: Interface) -> None:
    for interface in provided.wit:
        functions = declared(interface)
        for name, function in provided.functions().items():
            parameters = list(inspect.signature(function.run).parameters)
            declared_names = [parameter.name.replace("-", "_") for parameter in functions[name].params]
            # A handle has a name of its own in each class, and `len` is Python's.
            skipped = 2 if name.startswith("[method]") else 1
            given = ["len" if parameter == "length" else parameter for parameter in parameters[skipped:]]
            assert given == ["len" if name == "length" else name for name in declared_names[skipped - 1 :]], name


@pytest.mark.parametrize("provided", BUILT[:2], ids=lambda provided: type(provided).__name__)
def test_of_these_interfaces_nothing_is_missing(provided: Interface) -> None:
    for interface in provided.wit:
        assert sorted(provided.functions()) == sorted(declared(interface))


@pytest.mark.parametrize(
    ("interface", "record", "made"),
    [
        ("astrid:kv/host@1.0.0", "key-page", KeyPage),
        ("astrid:sys/host@1.0.0", "caller-context", CallerContext),
        ("astrid:sys/host@1.0.0", "capability-check-response", CapabilityCheckResponse),
        ("astrid:fs/host@1.0.0", "file-stat", FileStat),
        ("astrid:fs/host@1.0.0", "datetime", Datetime),
    ],
)
def test_what_is_returned_has_the_fields_of_its_record(interface: str, record: str, made: Any) -> None:
    found = PACKAGES.interface(interface)
    assert found is not None
    shape = found.types[record]
    assert isinstance(shape, Record)
    assert tuple(field.name.replace("-", "_") for field in shape.fields) == made._fields


@pytest.mark.parametrize(
    ("interface", "case"),
    [
        ("astrid:approval/host@1.0.0", "store-unavailable"),
        ("astrid:elicit/host@1.0.0", "not-in-lifecycle"),
        ("astrid:fs/host@1.0.0", "capability-denied"),
        ("astrid:http/host@1.0.0", "capability-denied"),
        ("astrid:http/host@1.1.0", "capability-denied"),
        ("astrid:identity/host@1.0.0", "capability-denied"),
        ("astrid:io/poll@1.0.0", "invalid-input"),
        ("astrid:io/streams@1.0.0", "closed"),
        ("astrid:net/host@1.0.0", "capability-denied"),
        ("astrid:process/host@1.0.0", "capability-denied"),
        ("astrid:process/host@1.1.0", "capability-denied"),
        ("astrid:uplink/host@1.0.0", "capability-denied"),
    ],
)
def test_a_function_that_there_is_not_answers_in_its_interfaces_words(interface: str, case: str) -> None:
    found = PACKAGES.interface(interface)
    assert found is not None
    denied = Denied(found).functions()
    assert list(denied) == list(found.functions)
    for name, function in found.functions.items():
        if isinstance(function.result, ResultOf) and function.result.err is not None:
            with pytest.raises(HostError) as caught:
                denied[name].run(object())
            assert (caught.value.case, caught.value.payload) == (case, None), name


@pytest.mark.parametrize("interface", INTERFACES)
def test_only_what_needs_a_handle_ends_the_call_instead(interface: str) -> None:
    """A handle of a resource that nobody can make never arrives, so no guest loses its call to a free function."""
    found = PACKAGES.interface(interface)
    assert found is not None
    built = {name for provided in BUILT if interface in provided.wit for name in provided.functions()}
    for name, function in found.functions.items():
        if nearest(function) is None and name not in built:
            assert function.kind == "method", name
            with pytest.raises(GuestFault):
                Denied(found).functions()[name].run(object())
