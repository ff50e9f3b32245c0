"""The engine's own component API is the oracle: one guest, called through it and through our canonical ABI, does the same.

The guest is a core module that passes on whatever it is given to a host function, and gives back what that returns. It
runs inside a component, and as it is; what the host function saw and what the caller got has to be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import wasmtime
import wasmtime.component as oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from astrid_host.abi import Err, Ok, Some, Variant, compile_export, compile_import
from astrid_host.abi.layout import alignment, size, spills_result
from astrid_host.abi.lift import record_class
from astrid_host.abi.source import attribute
from astrid_host.errors import GuestFault, HostError
from astrid_host.wit import types as wit

Make = Callable[..., Any]
ERRORS: list[wit.Type] = [
    wit.Enum("why", ("busy", "gone")),
    wit.Variant(
        "error-code", (wit.Case("denied", None), wit.Case("unknown", wit.Primitive("string")), wit.Case("x", None))
    ),
]


def passing_on(ways: Any, called: wit.Function) -> str:
    """The module that passes on its parameters to the host's `f`, and its result to the caller."""
    exported, imported = compile_export(called).signature, compile_import(called).signature
    given_on = " ".join(f"(local.get {i})" for i in range(len(exported.params)))
    body = f"(call $f {given_on})"
    if spills_result(called):
        assert called.result is not None
        body = f"""(local.set $place (call $realloc (i32.const 0) (i32.const 0) (i32.const {alignment(called.result)})
            (i32.const {size(called.result)}))) (call $f {given_on} (local.get $place)) (local.get $place)"""
    return f"""(core module $main
        (import "memory" "cabi_realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
        (import "host" "f" (func $f {ways.signature(imported)}))
        (func (export "f") {ways.signature(exported)} (local $place i32) {body}))"""


def throwing_in(ways: Any, called: wit.Function, args: tuple[Any, ...], content: bytes) -> str:
    """The module that calls the host's `f` with these core values over this memory, and drops its result."""
    imported = compile_import(called).signature
    given = " ".join(f"({kind}.const {_literal(kind, arg)})" for kind, arg in zip(imported.params, args, strict=True))
    text = "".join(f"\\{byte:02x}" for byte in content)
    return f"""(core module $main
        (import "memory" "memory" (memory 1)) (data (i32.const 0) "{text}")
        (import "host" "f" (func $f {ways.signature(imported)}))
        (func (export "f") (call $f {given}) {"drop" * len(imported.results)}))"""


def _literal(kind: str, arg: Any) -> str:
    if kind[0] == "i":
        return str(arg)
    return "nan" if math.isnan(arg) else "inf" if arg == math.inf else "-inf" if arg == -math.inf else float(arg).hex()


class Spelling:
    """WIT types as component text: those that have a name are declared, each before its first use."""

    def __init__(self) -> None:
        self.declared: dict[wit.Type, str] = {}
        self.lines: list[str] = []

    def name(self, kind: wit.Type) -> str:
        match kind:
            case wit.Primitive(name):
                return name
            case wit.ListOf(inner):
                return f"(list {self.name(inner)})"
            case wit.OptionOf(inner):
                return f"(option {self.name(inner)})"
            case wit.TupleOf(items):
                return f"(tuple {' '.join(map(self.name, items))})"
            case wit.ResultOf(ok, err):
                good = "" if ok is None else self.name(ok)
                return f"(result {good} {'' if err is None else f'(error {self.name(err)})'})"
        if kind not in self.declared:
            spelt = self._declaration(kind)
            number = len(self.declared)
            self.declared[kind] = f"$t{number}"
            self.lines += [f"(type $d{number} {spelt})", f'(export "t{number}" (type $t{number} (eq $d{number})))']
        return self.declared[kind]

    def _declaration(self, kind: wit.Type) -> str:
        match kind:
            case wit.Record(_, fields):
                parts = [f'(field "{of.name}" {self.name(of.type)})' for of in fields]
                return f"(record {' '.join(parts)})"
            case wit.Variant(_, cases):
                return f"(variant {' '.join(self._case(case) for case in cases)})"
            case wit.Enum(_, names):
                return f"(enum {_quoted(names)})"
            case wit.Flags(_, names):
                return f"(flags {_quoted(names)})"
        raise AssertionError(kind)

    def _case(self, case: wit.Case) -> str:
        return f'(case "{case.name}" {"" if case.type is None else self.name(case.type)})'


def _quoted(names: tuple[str, ...]) -> str:
    return " ".join(f'"{name}"' for name in names)


def component(ways: Any, called: wit.Function, main: str, passes_on: bool = True) -> str:
    spelling = Spelling()
    params = " ".join(f'(param "{of.name}" {spelling.name(of.type)})' for of in called.params)
    result = "" if called.result is None else f"(result {spelling.name(called.result)})"
    lifted = f"{params} {result}" if passes_on else ""
    aliases = " ".join(f'(alias export $host "{name[1:]}" (type {name}))' for name in spelling.declared.values())
    options = '(memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))'
    return f"""(component
        (import "host" (instance $host {" ".join(spelling.lines)} (export "f" (func {params} {result}))))
        {aliases} {ways.memory} {main}
        (core instance $memory (instantiate $memory))
        (core func $f (canon lower (func $host "f") {options}))
        (core instance $imports (export "f" (func $f)))
        (core instance $main (instantiate $main (with "memory" (instance $memory)) (with "host" (instance $imports))))
        (func (export "f") {lifted} (canon lift (core func $main "f") {options})))"""


# The component API spells some values differently, and lets a variant's payload stand for itself where its class says
# which case it is. Where it mistakes cases for each other, it is no oracle.


def cases_of(kind: wit.Type) -> list[tuple[str, wit.Type | None]]:
    match kind:
        case wit.OptionOf(some):
            return [("none", None), ("some", some)]
        case wit.ResultOf(ok, err):
            return [("ok", ok), ("err", err)]
        case wit.Variant(_, cases):
            return [(case.name, case.type) for case in cases]
    return []


def classes(kind: wit.Type | None) -> set[str]:
    match kind:
        case None:
            return {"object"}
        case wit.Primitive("bool" | "f32" | "f64" as name):
            return {name[0]}
        case wit.Primitive("char" | "string") | wit.Enum():
            return {"str"}
        case wit.Primitive():
            return {"int"}
        case wit.ListOf(wit.Primitive("u8")):
            return {"bytes"}
        case wit.ListOf() | wit.TupleOf() | wit.Record() | wit.Flags():
            return {type(kind).__name__}
    return {"Variant"} if tagged(kind) else set().union(*(classes(of) for _, of in cases_of(kind)))


def tagged(kind: wit.Type) -> bool:
    seen: set[str] = set()
    for _, of in cases_of(kind):
        if seen & classes(of):
            return True
        seen |= classes(of)
    return False


def mistakable(kind: wit.Type | None) -> bool:
    match kind:
        case wit.ListOf(inner):
            return mistakable(inner)
        case wit.TupleOf(items):
            return any(map(mistakable, items))
        case wit.Record(_, fields):
            return any(mistakable(of.type) for of in fields)
    if kind is None or not cases_of(kind):
        return False
    payloads = [of for _, of in cases_of(kind)]
    if not tagged(kind):
        every = set().union(*map(classes, payloads))
        if {"b", "int"} <= every or any(of is not None and "object" in classes(of) for of in payloads):
            return True
    return any(map(mistakable, payloads))


def to_oracle(kind: wit.Type | None, value: Any) -> Any:
    match kind:
        case wit.ListOf(element) if element != wit.Primitive("u8"):
            return [to_oracle(element, item) for item in value]
        case wit.TupleOf(items):
            return tuple(to_oracle(of, item) for of, item in zip(items, value, strict=True))
        case wit.Flags():
            return set(value)
        case wit.Record(_, fields):
            made = oracle.Record()
            for of in fields:
                setattr(made, of.name, to_oracle(of.type, getattr(value, attribute(of.name))))
            return made
        case wit.OptionOf(some):
            present = value.value if isinstance(some, wit.OptionOf) and value is not None else value
            case_name, payload = ("none", None) if value is None else ("some", to_oracle(some, present))
        case wit.ResultOf(ok, err):
            good = type(value) is Ok
            case_name, payload = ("ok" if good else "err"), to_oracle(ok if good else err, value.value)
        case wit.Variant(_, cases):
            case_name = value.case
            payload = to_oracle({case.name: case.type for case in cases}[case_name], value.value)
        case _:
            return value
    return oracle.Variant(case_name, payload) if tagged(kind) else payload


def from_oracle(kind: wit.Type | None, value: Any) -> Any:
    match kind:
        case wit.ListOf(element) if element != wit.Primitive("u8"):
            return [from_oracle(element, item) for item in value]
        case wit.TupleOf(items):
            return tuple(from_oracle(of, item) for of, item in zip(items, value, strict=True))
        case wit.Flags():
            return frozenset(value)
        case wit.Record(_, fields):
            return record_class(kind)(*(from_oracle(of.type, getattr(value, of.name)) for of in fields))
        case wit.OptionOf() | wit.ResultOf() | wit.Variant():
            return _from_case(kind, value)
    return value


def _from_case(kind: wit.Type, value: Any) -> Any:
    cases = dict(cases_of(kind))
    if tagged(kind):
        name, payload = value.tag, from_oracle(cases[value.tag], value.payload)
    else:
        (name,) = (name for name, of in cases.items() if _class_of(value) in classes(of))
        payload = from_oracle(cases[name], value)
    match kind:
        case wit.OptionOf(some):
            wraps = name == "some" and isinstance(some, wit.OptionOf)
            return Some(payload) if wraps else payload
        case wit.ResultOf():
            return Ok(payload) if name == "ok" else Err(payload)
    return Variant(name, payload)


def _class_of(value: Any) -> str:
    names = {
        bool: "b",
        float: "f",
        int: "int",
        str: "str",
        bytes: "bytes",
        list: "ListOf",
        tuple: "TupleOf",
        set: "Flags",
    }
    names |= {type(None): "object", oracle.Record: "Record", oracle.Variant: "Variant"}
    return names[type(value)]


def run_in_component(ways: Any, called: wit.Function, values: list[Any], returned: Any) -> tuple[tuple[Any, ...], Any]:
    seen: list[tuple[Any, ...]] = []

    def f(_store: Any, *args: Any) -> Any:
        seen.append(args)
        return returned

    with ways.in_component(
        component(ways, called, passing_on(ways, called)), lambda host: host.add_func("f", f)
    ) as call:
        result = call(*values)
    (args,) = seen
    return args, result


def run_as_it_is(ways: Any, called: wit.Function, values: list[Any], returned: Any) -> tuple[tuple[Any, ...], Any]:
    seen: list[tuple[Any, ...]] = []

    def f(*args: Any) -> Any:
        seen.append(args)
        if not isinstance(called.result, wit.ResultOf):
            return returned
        if type(returned) is Ok:
            return returned.value
        case = returned.value
        raise HostError(case.case, case.value) if type(case) is Variant else HostError(case)

    with ways.as_it_is(passing_on(ways, called), {("host", "f"): (compile_import(called), f)}) as guest:
        result = guest.call(compile_export(called), "f", *values)
    (args,) = seen
    return args, result


@settings(max_examples=60)
@given(data=st.data())
def test_hosts_and_callers_see_the_same_values_as_with_the_component_api(
    data: st.DataObject, ways: Any, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    few = wit_types(most_flags=32)
    kinds = data.draw(st.lists(few, max_size=3)) + [wit.Primitive("u16")] * data.draw(st.sampled_from((0, 0, 17)))
    result = data.draw(st.none() | few | st.builds(wit.ResultOf, st.none() | few, st.sampled_from(ERRORS)))
    assume(not any(map(mistakable, (*kinds, result))))
    # Host functions raise their errors, and those have cases.
    assume(not isinstance(result, wit.ResultOf) or isinstance(result.err, wit.Variant | wit.Enum))
    called = wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(kinds)), result)
    values = [data.draw(wit_values(kind)) for kind in kinds]
    returned = None if result is None else data.draw(wit_values(result))
    given_values = [to_oracle(kind, value) for kind, value in zip(kinds, values, strict=True)]
    oracle_args, oracle_result = run_in_component(ways, called, given_values, to_oracle(result, returned))
    args, lifted = run_as_it_is(ways, called, values, returned)

    expected = [comparable(*pair) for pair in zip(kinds, values, strict=True)]
    assert [comparable(kind, from_oracle(kind, arg)) for kind, arg in zip(kinds, oracle_args, strict=True)] == expected
    assert [comparable(kind, arg) for kind, arg in zip(kinds, args, strict=True)] == expected
    assert comparable(result, from_oracle(result, oracle_result)) == comparable(result, returned)
    assert comparable(result, lifted) == comparable(result, returned)


SMALL = st.integers(0, 32) | st.integers(0, 1 << 12)
CORE = {
    "i32": SMALL | st.integers(0, (1 << 32) - 1),
    "i64": SMALL | st.integers(0, (1 << 64) - 1),
    "f32": st.floats(width=32),
    "f64": st.floats(),
}
# Mostly small numbers, so that pointers, lengths and discriminants are often right.
CONTENT = st.lists(st.sampled_from((0, 0, 0, 1, 2, 3, 8, 16, 65, 0xC3, 0xFF)), min_size=64, max_size=256).map(bytes)


@settings(max_examples=150)
@given(data=st.data())
def test_what_a_guest_makes_up_is_a_fault_exactly_where_the_component_api_traps(
    data: st.DataObject, ways: Any, wit_types: Make, wit_values: Make, comparable: Make
) -> None:
    few = wit_types(most_flags=32)
    kinds = data.draw(st.lists(few, max_size=3))
    result = data.draw(st.none() | few.filter(lambda kind: not isinstance(kind, wit.ResultOf)))
    assume(not any(map(mistakable, (*kinds, result))))
    called = wit.Function("f", tuple(wit.Field(f"p{i}", kind) for i, kind in enumerate(kinds)), result)
    returned = None if result is None else data.draw(wit_values(result))
    args = tuple(data.draw(CORE[core]) for core in compile_import(called).signature.params)
    main = throwing_in(ways, called, args, data.draw(CONTENT) * 16)
    ours: list[list[Any]] = []
    theirs: list[list[Any]] = []

    def as_it_is(*lifted: Any) -> Any:
        ours.append([comparable(*pair) for pair in zip(kinds, lifted, strict=True)])
        return returned

    def in_component(_store: Any, *lifted: Any) -> Any:
        theirs.append([comparable(kind, from_oracle(kind, arg)) for kind, arg in zip(kinds, lifted, strict=True)])
        return to_oracle(result, returned)

    ended_well = True
    with ways.as_it_is(main, {("host", "f"): (compile_import(called), as_it_is)}) as guest:
        try:
            guest.call(compile_export(wit.Function("f", (), None)), "f")
        except GuestFault as fault:
            assume("times the guest's memory" not in str(fault))  # a bound that is ours alone
            ended_well = False
    text = component(ways, called, main, passes_on=False)
    with ways.in_component(text, lambda host: host.add_func("f", in_component)) as call:
        try:
            call()
            ends_well = True
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            ends_well = False
    assert ended_well == ends_well
    # A bad place for the result is found before the call here, after it there.
    assert ours == theirs or (ours == [] and not ends_well)
