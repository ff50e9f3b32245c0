"""Generating code that lifts: from core values and guest memory to Python values. Everything is checked before it is used.

Names in generated code: `guest`, `view` (its memory), `size` (of it), `budget` (bytes that lists may still cost).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from astrid_host.abi import layout
from astrid_host.abi.layout import alignment, cases_of, flatten, parts_of
from astrid_host.abi.source import Region, Source, attribute
from astrid_host.wit.types import Borrow, Enum, Flags, ListOf, OptionOf, Own, Primitive, Record, ResultOf, Type

_NARROW = {
    "u8": "{0} & 0xFF",
    "u16": "{0} & 0xFFFF",
    "u32": "{0} & 0xFFFFFFFF",
    "u64": "{0} & 0xFFFFFFFFFFFFFFFF",
    "s8": "(({0} & 0xFF) ^ 0x80) - 0x80",
    "s16": "(({0} & 0xFFFF) ^ 0x8000) - 0x8000",
    "s32": "(({0} & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000",
    "s64": "(({0} & 0xFFFFFFFFFFFFFFFF) ^ 0x8000000000000000) - 0x8000000000000000",
}


@cache
def record_class(kind: Record) -> type[Any]:
    """The class of lifted records of this type: one attribute for each field."""
    names = [attribute(field.name) for field in kind.fields]
    body: dict[str, Any] = {"__slots__": tuple(names), "__module__": __name__}
    text = f"def __init__(self{''.join(f', {name}' for name in names)}):\n"
    text += "".join(f"    self.{name} = {name}\n" for name in names) or "    pass\n"
    exec(text, {}, body)  # noqa: S102 - made of the field names of our own WIT files

    def same(self: Any, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in names)

    def shown(self: Any) -> str:
        return f"{kind.name}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    body |= {"__eq__": same, "__hash__": None, "__repr__": shown}
    title = "".join(part.capitalize() for part in kind.name.split("-"))
    return type(title, (), body)


class Lifter:
    """Emits code into one source; `what` names the function in messages."""

    def __init__(self, source: Source, what: str) -> None:
        self._source = source
        self._what = repr(what)

    def flat(self, kind: Type, names: list[str]) -> str:
        """Take the core values of `kind` off the front of `names`; the expression of its value."""
        source = self._source
        if isinstance(kind, Primitive):
            if kind.name == "string":
                return self._text(names.pop(0), names.pop(0))
            return self._primitive(kind, names.pop(0))
        if isinstance(kind, ListOf):
            return self._list(kind, names.pop(0), names.pop(0))
        if isinstance(kind, Own | Borrow):
            return self._handle(kind, names.pop(0))
        if isinstance(kind, Flags):
            words = [names.pop(0) for _ in range(layout.flag_words(len(kind.flags)))]
            return self._flags(kind, words)
        parts = parts_of(kind)
        if parts is not None:
            return self._whole(kind, [self.flat(part, names) for part in parts])
        cases = cases_of(kind)
        assert cases is not None
        tag = names.pop(0)
        joined = flatten(kind)[1:]
        payload = [names.pop(0) for _ in joined]
        result = source.fresh()
        for i, (_, of) in enumerate(cases):
            with source.block(f"{'if' if i == 0 else 'elif'} {tag} == {i}:"):
                value = None
                if of is not None:
                    own = flatten(of)
                    value = self.flat(of, [_coerced(n, j, o) for n, j, o in zip(payload, joined, own, strict=False)])
                source.add(f"{result} = {self._case(kind, i, value)}")
        with source.block("else:"):
            source.add(f"no_case({self._what}, {tag}, {len(cases)})")
        return result

    def memory(self, kind: Type, base: str) -> str:
        """Lift from the address in the variable `base`, which was checked; the expression of its value."""
        region = Region(self._source, base)
        value = self._at(kind, base, 0, region)
        held = self._source.fresh()
        self._source.add(f"{held} = {value}")
        region.close()
        return held

    def checked(self, kind: Type, base: str) -> None:
        """Emit the check that a value of `kind` may be read at `base`."""
        length, align = layout.size(kind), alignment(kind)
        if align > 1:
            with self._source.block(f"if {base} % {align}:"):
                self._source.add(f"misaligned({self._what}, {base}, {align})")
        with self._source.block(f"if {base} + {length} > size:"):
            self._source.add(f"out_of_range({self._what}, {base}, {length}, size)")

    def _at(self, kind: Type, base: str, offset: int, region: Region) -> str:
        source = self._source
        if isinstance(kind, Primitive) and kind.name != "string":
            name = region.leaf(offset, layout.PRIMITIVES[kind.name][2])
            return self._primitive(kind, name) if kind.name in ("bool", "char", "f32", "f64") else name
        if isinstance(kind, Primitive):
            return self._text(region.leaf(offset, "I"), region.leaf(offset + 4, "I"))
        if isinstance(kind, ListOf):
            return self._list(kind, region.leaf(offset, "I"), region.leaf(offset + 4, "I"))
        if isinstance(kind, Own | Borrow):
            return self._handle(kind, region.leaf(offset, "I"))
        if isinstance(kind, Flags):
            code = {1: "B", 2: "H"}.get(layout.size(kind), "I")
            words = [region.leaf(offset + 4 * i, code) for i in range(layout.flag_words(len(kind.flags)))]
            return self._flags(kind, words)
        parts = parts_of(kind)
        if parts is not None:
            values, at = [], offset
            for part in parts:
                at = layout.align_to(at, alignment(part))
                values.append(self._at(part, base, at, region))
                at += layout.size(part)
            return self._whole(kind, values)
        cases = cases_of(kind)
        assert cases is not None
        tag = region.leaf(offset, {1: "B", 2: "H", 4: "I"}[layout.discriminant_bytes(len(cases))])
        at = offset + layout.payload_offset(kind)
        alone = sum(of is not None for _, of in cases) == 1
        result = source.fresh()
        for i, (_, of) in enumerate(cases):
            with source.block(f"{'if' if i == 0 else 'elif'} {tag} == {i}:"):
                value = None
                if of is not None and alone:
                    value = self._at(of, base, at, region)
                elif of is not None:
                    inner = Region(source, base)
                    value = source.fresh()
                    source.add(f"{value} = {self._at(of, base, at, inner)}")
                    inner.close()
                source.add(f"{result} = {self._case(kind, i, value)}")
        with source.block("else:"):
            source.add(f"no_case({self._what}, {tag}, {len(cases)})")
        return result

    def _primitive(self, kind: Primitive, name: str) -> str:
        if kind.name == "bool":
            return f"({name} != 0)"
        if kind.name == "char":
            return f"char({self._what}, {name} & 0xFFFFFFFF)"
        if kind.name in ("f32", "f64"):
            return f"({name} if {name} == {name} else NAN)"
        return f"({_NARROW[kind.name].format(name)})"

    def _spend(self, amount: str) -> None:
        """Inside a list each part is paid for, because parts may overlap."""
        if self._source.loops:
            self._source.add(f"budget -= {amount}")
            with self._source.block("if budget < 0:"):
                self._source.add(f"too_much({self._what})")

    def _text(self, at: str, length: str) -> str:
        source = self._source
        with source.block(f"if {at} + {length} > size:"):
            source.add(f"out_of_range({self._what}, {at}, {length}, size)")
        self._spend(length)
        value = source.fresh("s")
        source.add(f"{value} = str(view[{at}:{at} + {length}], 'utf-8')")
        return value

    def _list(self, kind: ListOf, at: str, count: str) -> str:
        source, element = self._source, kind.element
        length, align = layout.size(element), alignment(element)
        if align > 1:
            with source.block(f"if {at} % {align}:"):
                source.add(f"misaligned({self._what}, {at}, {align})")
        with source.block(f"if {at} + {count} * {length} > size" + (f" or {count} > EMPTY_ELEMENTS:" if not length else ":")):
            source.add(f"out_of_range({self._what}, {at}, {count} * {length}, size)")
        self._spend(f"{count} * {max(length, 1)}")
        value = source.fresh("l")
        if element == Primitive("u8"):
            source.add(f"{value} = bytes(view[{at}:{at} + {count}])")
            return value
        if isinstance(element, Primitive) and element.name not in ("string", "bool", "char", "f32", "f64"):
            unpack = source.constant(struct.unpack_from, "UNPACK")
            code = layout.PRIMITIVES[element.name][2]
            source.add(f"{value} = list({unpack}('<%d{code}' % {count}, view, {at}))")
            return value
        source.add(f"{value} = []")
        item = source.fresh("at")
        places = f"range({at}, {at} + {count} * {length}, {length})" if length else f"range({count})"
        source.loops += 1
        with source.block(f"for {item} in {places}:"):
            source.add(f"{value}.append({self.memory(element, item)})")
        source.loops -= 1
        return value

    def _handle(self, kind: Own | Borrow, index: str) -> str:
        resource = self._source.constant(kind.resource, "RESOURCE")
        held = self._source.fresh("h")
        verb = "take" if isinstance(kind, Own) else "get"
        self._source.add(f"{held} = guest.handles.{verb}({resource}, {index})")
        return held

    def _flags(self, kind: Flags, words: list[str]) -> str:
        names = self._source.constant(kind.flags, "FLAGS")
        number = " | ".join(f"({word} & 0xFFFFFFFF) << {32 * i}" for i, word in enumerate(words)) or "0"
        bits = self._source.fresh("b")
        self._source.add(f"{bits} = {number}")
        return f"frozenset([n for i, n in enumerate({names}) if {bits} >> i & 1])"

    def _whole(self, kind: Type, values: list[str]) -> str:
        if isinstance(kind, Record):
            made = self._source.constant(record_class(kind), "Record")
            return f"{made}({', '.join(values)})"
        return f"({', '.join(values)}{',' if len(values) == 1 else ''})"

    def _case(self, kind: Type, index: int, value: str | None) -> str:
        cases = cases_of(kind)
        assert cases is not None
        if isinstance(kind, Enum):
            return repr(cases[index][0])
        if isinstance(kind, OptionOf):
            if index == 0:
                return "None"
            return f"Some({value})" if isinstance(kind.some, OptionOf) else str(value)
        if isinstance(kind, ResultOf):
            return f"{'Err' if index else 'Ok'}({value or ''})"
        return f"Variant({cases[index][0]!r}, {value})"


def _coerced(name: str, joined: str, wanted: str) -> str:
    """A core value of a variant, as the case's own core type."""
    if joined == wanted:
        return name
    if wanted == "i32":
        return f"({name} & 0xFFFFFFFF)"
    if wanted == "f32":
        return f"f32_of_i32({name})"
    return f"f64_of_i64({name})"
