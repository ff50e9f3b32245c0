"""Compiling a WIT function into Python code that lifts and lowers for it, once.

For an import: `lift_params` takes a guest's core arguments to Python values, `lower_result` or `lower_error` the other way.
For an export: `lower_params` and `lift_result`. Lifting raises `GuestFault` for whatever a guest may have got wrong, and
reads nothing outside its memory. Lowering raises `TypeError` or `ValueError` when the host's own value does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeAlias

from astrid_host.abi import layout
from astrid_host.abi.layout import CoreSignature, core_signature, spills_params, spills_result
from astrid_host.abi.lift import Lifter
from astrid_host.abi.lower import Lowerer
from astrid_host.abi.resources import HandleTable
from astrid_host.abi.source import Source
from astrid_host.wit.types import Enum, Function, Resource, ResultOf, TupleOf, Variant

Flat: TypeAlias = int | float | None


class Guest(Protocol):
    """What generated code needs of an instance."""

    handles: HandleTable

    @property
    def view(self) -> memoryview:
        """The guest's memory now: writable, of bytes."""
        ...

    def realloc(self, align: int, size: int) -> int:
        """Memory of the guest's allocator, checked for range and alignment."""
        ...


class ImportCode:
    """The code of a function that guests import."""

    __slots__ = ("lift_params", "lower_error", "lower_result", "signature")

    def __init__(self, function: Function) -> None:
        self.signature = core_signature(function, "import")
        self.lift_params: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]] = _lift_params(function)
        self.lower_result: Callable[[Any, tuple[Any, ...], Any], Flat] = _lower_result(function)
        self.lower_error: Callable[[Any, tuple[Any, ...], str, Any], Flat] = _lower_error(function)


class ExportCode:
    """The code of a function that guests export."""

    __slots__ = ("lift_result", "lower_params", "post_return_signature", "signature")

    def __init__(self, function: Function) -> None:
        self.signature = core_signature(function, "export")
        self.post_return_signature = CoreSignature(self.signature.results, ())
        self.lower_params: Callable[..., tuple[Any, ...]] = _lower_params(function)
        self.lift_result: Callable[[Any, Flat], Any] = _lift_result(function)


class DropCode:
    """The code of `[resource-drop]`: takes the handle, closing what it held."""

    __slots__ = ("lift_params", "signature")

    def __init__(self, resource: Resource) -> None:
        self.signature = CoreSignature(("i32",), ())

        def lift_params(guest: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            guest.handles.drop(resource, args[0])
            return ()

        self.lift_params = lift_params

    @staticmethod
    def lower_result(_guest: Any, _args: tuple[Any, ...], _value: Any) -> Flat:
        return None

    @staticmethod
    def lower_error(_guest: Any, _args: tuple[Any, ...], case: str, _payload: Any) -> Flat:
        raise TypeError(f"dropping a handle answers nothing, so it cannot answer {case!r}")


@cache
def compile_import(function: Function) -> ImportCode:
    """The code for a host function."""
    return ImportCode(function)


@cache
def compile_export(function: Function) -> ExportCode:
    """The code for an exported function."""
    return ExportCode(function)


@cache
def compile_drop(resource: Resource) -> DropCode:
    """The code for dropping a handle of that resource."""
    return DropCode(resource)


def _lifting(source: Source, what: str, body: Callable[[Lifter], str]) -> Any:
    source.add("view = guest.view")
    source.add("size = budget = len(view)")
    with source.block("try:"):
        source.add(f"return {body(Lifter(source, what))}")
    with source.block("except UnicodeDecodeError as error:"):
        source.add(f"raise not_utf8({what!r}, error) from None")
    return source.compile()


def _lift_params(function: Function) -> Any:
    kinds = tuple(param.type for param in function.params)
    if not kinds:
        return lambda _guest, _args: ()
    source = Source("def lift_params(guest, args)")
    retptr = spills_result(function)

    def body(lifter: Lifter) -> str:
        if spills_params(function):
            whole = TupleOf(kinds)
            source.add("base = args[0]")
            lifter.checked(whole, "base")
            return lifter.memory(whole, "base")
        names = [f"a{i}" for i in range(sum(len(layout.flatten(kind)) for kind in kinds))]
        unpacked = [*names, "_retptr"] if retptr else names
        source.add(f"{', '.join(unpacked)}{',' if unpacked else '()'} = args")
        values = [lifter.flat(kind, names) for kind in kinds]
        return f"({', '.join(values)},)"

    return _lifting(source, f"{function.core_name}", body)


def _lift_result(function: Function) -> Any:
    if function.result is None:
        return lambda _guest, _flat: None
    result = function.result
    source = Source("def lift_result(guest, flat)")

    def body(lifter: Lifter) -> str:
        if spills_result(function):
            lifter.checked(result, "flat")
            return lifter.memory(result, "flat")
        return lifter.flat(result, ["flat"] if layout.flatten(result) else [])

    return _lifting(source, f"the result of {function.core_name}", body)


def _lower_params(function: Function) -> Any:
    names = [f"x{i}" for i in range(len(function.params))]
    source = Source(f"def lower_params(guest{''.join(f', {name}' for name in names)})")
    lowerer = Lowerer(source)
    if spills_params(function):
        whole = TupleOf(tuple(param.type for param in function.params))
        source.add(f"base = guest.realloc({layout.alignment(whole)}, {layout.size(whole)})")
        source.add("view = guest.view")
        lowerer.memory(whole, f"({', '.join(names)},)", "base", 0, function.core_name)
        source.add("return (base,)")
        return source.compile()
    flat: list[str] = []
    for name, param in zip(names, function.params, strict=True):
        flat += lowerer.flat(param.type, name, f"{function.core_name}.{param.name}")
    source.add(f"return ({''.join(f'{name}, ' for name in flat)})")
    return source.compile()


def _lower_result(function: Function) -> Any:
    """For a function whose result is a `result`, the value is that of its good case."""
    if function.result is None:
        return lambda _guest, _args, _value: None
    source = Source("def lower_result(guest, args, value)")
    given = "Ok(value)" if isinstance(function.result, ResultOf) else "value"
    return _lower_outcome(function, source, given)


def _lower_error(function: Function) -> Any:
    result = function.result
    err = result.err if isinstance(result, ResultOf) else None
    if not isinstance(err, Variant | Enum):

        def refuse(_guest: Any, _args: tuple[Any, ...], case: str, _payload: Any) -> Flat:
            raise TypeError(f"{function.core_name} answers no error, so it cannot answer {case!r}")

        return refuse
    source = Source("def lower_error(guest, args, case, payload)")
    given = "Err(case)" if isinstance(err, Enum) else "Err(Variant(case, payload))"
    return _lower_outcome(function, source, given)


def _lower_outcome(function: Function, source: Source, given: str) -> Any:
    result = function.result
    assert result is not None
    lowerer = Lowerer(source)
    source.add(f"outcome = {given}")
    if not spills_result(function):
        names = lowerer.flat(result, "outcome", f"the result of {function.core_name}")
        source.add(f"return {names[0] if names else 'None'}")
        return source.compile()
    length, align = layout.size(result), layout.alignment(result)
    source.add("view = guest.view")
    source.add("base = args[-1]")
    what = f"the result of {function.core_name}"
    if align > 1:
        with source.block(f"if base % {align}:"):
            source.add(f"misaligned({what!r}, base, {align})")
    with source.block(f"if base + {length} > len(view):"):
        source.add(f"out_of_range({what!r}, base, {length}, len(view))")
    lowerer.memory(result, "outcome", "base", 0, what)
    return source.compile()
