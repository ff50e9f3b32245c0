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
from astrid_host.abi.runtime import HOST_BYTES, RESULT_BYTES
from astrid_host.abi.source import Source, deferred
from astrid_host.wit.types import Enum, Function, Resource, ResultOf, TupleOf, Type, Variant

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
    """The code of a function that guests import.

    `lift_params(guest, args)` gives the parameters as Python values; `args` are the flat core values, integers unsigned, with
    the place for the result last where there is one. That place is checked here too, so that a bad one stops the call
    before it has done anything. Parameters that take more than `most` bytes in the host are refused before they are copied: with
    the function's own error where it has a case for that, else as a `GuestFault`. `lower_result(guest, args, value)` and
    `lower_error(guest, args, case, payload)` are called with the same `args` and give the flat result, None without one.
    Lifting raises `GuestFault`, lowering `TypeError` or `ValueError`, and `GuestFault` from the guest's allocator.
    """

    __slots__ = ("lift_params", "lower_error", "lower_result", "signature")

    def __init__(self, function: Function, most: int = HOST_BYTES) -> None:
        self.signature = core_signature(function, "import")
        self.lift_params: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]] = _lift_params(function, most)
        self.lower_result: Callable[[Any, tuple[Any, ...], Any], Flat] = _lower_result(function)
        self.lower_error: Callable[[Any, tuple[Any, ...], str, Any], Flat] = _lower_error(function)


class ExportCode:
    """The code of a function that guests export.

    `lower_params(guest, *values)` gives the flat core values, integers unsigned; it raises as `ImportCode.lower_result` does.
    `lift_result(guest, flat)` gives the result of what the guest returned (None without one), and raises `GuestFault`.
    """

    __slots__ = ("lift_result", "lower_params", "post_return_signature", "signature")

    def __init__(self, function: Function, most: int = RESULT_BYTES) -> None:
        self.signature = core_signature(function, "export")
        self.post_return_signature = CoreSignature(self.signature.results, ())
        self.lower_params: Callable[..., tuple[Any, ...]] = _lower_params(function)
        self.lift_result: Callable[[Any, Flat], Any] = _lift_result(function, most)


class DropCode:
    """The code of `[resource-drop]`, of the shape of `ImportCode`: `lift_params` ends the handle and closes what it held."""

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
def compile_import(function: Function, most: int = HOST_BYTES) -> ImportCode:
    """The code for a host function whose parameters take so many bytes at most; the same object for the same function."""
    return ImportCode(function, most)


@cache
def compile_export(function: Function, most: int = RESULT_BYTES) -> ExportCode:
    """The code for an exported function whose result takes so many bytes at most; the same object for the same function."""
    return ExportCode(function, most)


@cache
def compile_drop(resource: Resource) -> DropCode:
    """The code for dropping a handle of that resource; the same object for the same resource."""
    return DropCode(resource)


# The cases, best first, with which a function may answer that its arguments are too large.
_TOO_MUCH = ("too-large", "body-too-large", "invalid-input", "invalid-request", "quota")


def _case_for_too_much(function: Function) -> str | None:
    result = function.result
    if not isinstance(result, ResultOf) or not isinstance(result.err, Variant | Enum):
        return None
    empty = [name for name, of in layout.cases_of(result.err) or () if of is None]
    return next((case for case in _TOO_MUCH if case in empty), None)


def _lift_params(function: Function, most: int) -> Any:
    kinds = tuple(param.type for param in function.params)
    retptr = spills_result(function)
    if not kinds and not retptr:
        return lambda _guest, _args: ()
    whole = TupleOf(kinds)

    def body(source: Source, lifter: Lifter) -> str:
        names = ["base"] if spills_params(function) else [f"a{i}" for i in range(len(layout.flatten(whole)))]
        source.add(f"{''.join(f'{name}, ' for name in [*names, *['place'] * retptr]) or '()'} = args")
        if retptr:
            assert function.result is not None
            lifter.checked(function.result, "place", f"{function.core_name}: the place for its result")
        if spills_params(function):
            path = f"{function.core_name}: its parameters"
            lifter.checked(whole, "base", path)
            return lifter.memory(whole, "base", path)
        values = [lifter.flat(param.type, names, f"{function.core_name}: {param.name}") for param in function.params]
        return f"({''.join(f'{value}, ' for value in values)})"

    return _lifting("def lift_params(guest, args)", function.core_name, kinds, body, most, _case_for_too_much(function))


def _lift_result(function: Function, most: int) -> Any:
    if function.result is None:
        return lambda _guest, _flat: None
    result, path = function.result, f"{function.core_name}: its result"

    def body(_source: Source, lifter: Lifter) -> str:
        if spills_result(function):
            lifter.checked(result, "flat", path)
            return lifter.memory(result, "flat", path)
        return lifter.flat(result, ["flat"] if layout.flatten(result) else [], path)

    return _lifting("def lift_result(guest, flat)", path, (result,), body, most)


def _lifting(
    signature: str,
    what: str,
    kinds: tuple[Type, ...],
    body: Callable[[Source, Lifter], str],
    most: int,
    case: str | None = None,
) -> Any:
    """A function that lifts these types, of so many bytes at most: what `body` emits, with what it needs around it."""

    def emit(source: Source) -> None:
        lifter = Lifter(source, kinds, most, case)
        with source.block("try"):
            value = body(source, lifter)
            source.add(f"return {value}")
        with source.block("except UnicodeDecodeError as error"):
            if lifter.takes:
                source.add("discard(taken)")
            source.add(f"raise not_utf8({what!r}, error) from None")
        if lifter.takes:
            with source.block("except (GuestFault, HostError)"):
                source.add("discard(taken)")
                source.add("raise")
        needs = ["view = guest.view", "size = len(view)"] if lifter.looks else []
        needs += [f"budget = min(size * HOST_BYTES_PER_GUEST_BYTE, {most})"] if lifter.has_lists else []
        needs += ["taken, lent = [], []"] if lifter.takes else []
        source.lines[1:1] = [f"    {line}" for line in needs]

    return deferred(signature, emit)


def _lower_params(function: Function) -> Any:
    names = [f"x{i}" for i in range(len(function.params))]

    def emit(source: Source) -> None:
        lowerer = Lowerer(source)
        kinds = tuple(param.type for param in function.params)
        paths = [f"{function.core_name}: {param.name}" for param in function.params]
        if spills_params(function):
            lowerer.together(kinds, names, paths)
            return
        flat: list[str] = []
        for kind, name, path in zip(kinds, names, paths, strict=True):
            flat += lowerer.flat(kind, name, path)
        lowerer.settle()
        source.add(f"return ({''.join(f'{name}, ' for name in flat)})")

    return deferred(f"def lower_params({', '.join(['guest', *names])})", emit)


def _lower_result(function: Function) -> Any:
    """For a function whose result is a `result`, the value is that of its good case."""
    result, path = function.result, f"{function.core_name}: result"

    def emit(source: Source) -> None:
        lowerer = Lowerer(source)
        if result is None:
            lowerer.nothing("value", path)
        elif not spills_result(function):
            if isinstance(result, ResultOf):
                source.add("value = Ok(value)")
            names = lowerer.flat(result, "value", path)
            lowerer.settle()
            source.add(f"return {names[0] if names else 'None'}")
        else:
            source.add("place = args[-1]")
            if isinstance(result, ResultOf):
                lowerer.good(result, "value", "place", f"{path}.ok")
            else:
                lowerer.memory(result, "value", "place", path)

    return deferred("def lower_result(guest, args, value)", emit)


def _lower_error(function: Function) -> Any:
    result = function.result
    if not isinstance(result, ResultOf) or not isinstance(result.err, Variant | Enum):

        def refuse(_guest: Any, _args: tuple[Any, ...], case: str, _payload: Any) -> Flat:
            raise TypeError(f"{function.core_name} answers no error with cases, so it cannot answer {case!r}")

        return refuse

    def emit(source: Source) -> None:
        source.add("place = args[-1]")
        Lowerer(source).bad(result, "case", "payload", "place", f"{function.core_name}: result.error")

    return deferred("def lower_error(guest, args, case, payload)", emit)
