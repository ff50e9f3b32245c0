"""Generating code that lifts: from core values and guest memory to Python values.

Everything that a guest gave is checked before it is used; what is wrong with it is a `GuestFault`. All strings, bytes and
lists of a call are paid from one budget before they are copied, also those that lie in the same place of the guest's memory.

Names in generated code: `guest`, `view` (its memory), `size` (of it, in bytes), `budget` (bytes that may still be lifted),
`taken` (what was given away) and `lent` (the handles that are lent to this call).
"""

from __future__ import annotations

from functools import cache
from struct import unpack_from
from typing import Any

import msgspec

from astrid_host.abi import layout
from astrid_host.abi.layout import alignment, cases_of, flatten, parts_of
from astrid_host.abi.source import Reading, Source, attribute, shown
from astrid_host.wit.types import Borrow, Enum, Flags, ListOf, OptionOf, Own, Primitive, Record, ResultOf, Type

_WORD = "0xFFFFFFFF"
_NARROW = {
    "bool": "{0} != 0",
    "u8": "{0} & 0xFF",
    "u16": "{0} & 0xFFFF",
    "u32": "{0} & 0xFFFFFFFF",
    "u64": "{0} & 0xFFFFFFFFFFFFFFFF",
    "s8": "(({0} & 0xFF) ^ 0x80) - 0x80",
    "s16": "(({0} & 0xFFFF) ^ 0x8000) - 0x8000",
    "s32": "(({0} & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000",
    "s64": "(({0} & 0xFFFFFFFFFFFFFFFF) ^ 0x8000000000000000) - 0x8000000000000000",
}
_SLOT, _OBJECT = 8, 56  # bytes of a list's slot, and of a small Python object


@cache
def record_class(kind: Record) -> type[Any]:
    """The class of lifted records of this type: one attribute for each field, in order, by its Python name."""
    title = "".join(part.capitalize() for part in kind.name.split("-"))
    return msgspec.defstruct(title, [(attribute(field.name), Any) for field in kind.fields], module=__name__)


@cache
def host_cost(kind: Type) -> int:
    """About how many bytes a lifted value takes, its slot included, without what its strings and lists hold."""
    parts = parts_of(kind)
    if parts is not None:
        return _SLOT + _OBJECT + sum(map(host_cost, parts))
    if isinstance(kind, Flags):
        return _SLOT + 4 * _OBJECT + 32 * len(kind.flags)
    if isinstance(kind, Enum | Own | Borrow) or kind == Primitive("bool"):
        return _SLOT
    cases = cases_of(kind)
    if cases is not None:
        wrapper = 0 if isinstance(kind, OptionOf) and not isinstance(kind.some, OptionOf) else _OBJECT
        return _SLOT + wrapper + max((host_cost(of) for _, of in cases if of is not None), default=0)
    return _SLOT + _OBJECT


class Lifter:
    """Emits code into one source. Methods return expressions; `path` says in messages what is lifted.

    Args:
        source: what is being generated.
        kinds: the types of all that will be lifted.
        most: bytes that it may take in the host, all together.
        case: the error that answers more than that; None for a fault.
    """

    def __init__(self, source: Source, kinds: tuple[Type, ...], most: int, case: str | None = None) -> None:
        self._source = source
        self._most, self._case = most, case
        self.takes = any(layout.mentions(kind, Own) for kind in kinds)
        self.lends = any(layout.mentions(kind, Borrow) for kind in kinds)
        self.looks = self.has_lists = False  # whether what was emitted needs the memory, and the budget

    def flat(self, kind: Type, names: list[str], path: str) -> str:
        """Take the core values of `kind` off the front of `names`; the expression of its value."""
        if isinstance(kind, ListOf) or kind == Primitive("string"):
            return self._pointed(kind, names.pop(0), names.pop(0), path)
        if isinstance(kind, Primitive):
            return self._primitive(kind, names.pop(0), path)
        if isinstance(kind, Own | Borrow):
            return self._handle(kind, names.pop(0), path)
        if isinstance(kind, Flags):
            return self._flags(kind, [names.pop(0) for _ in range(layout.flag_words(len(kind.flags)))])
        parts = parts_of(kind)
        if parts is not None:
            return self._whole(kind, [self.flat(part, names, path) for part in parts])
        joined = flatten(kind)[1:]
        held = names.pop(0)
        payload = [names.pop(0) for _ in joined]

        def lift(of: Type) -> str:
            own = flatten(of)
            given = [_coerced(name, core, wanted) for name, core, wanted in zip(payload, joined, own, strict=False)]
            return self.flat(of, given, path)

        return self._cases(kind, held, lift, path)

    def memory(self, kind: Type, base: str, path: str) -> str:
        """Lift from the address in the variable `base`, which was checked; the name of its value."""
        reading = Reading(self._source, base)
        held = self._source.bind(self._at(kind, base, 0, reading, path))
        reading.close()
        return held

    def checked(self, kind: Type, base: str, path: str) -> None:
        """Emit the check that a value of `kind` may be read or written at `base`."""
        self._check_place(base, str(layout.size(kind)), alignment(kind), path)

    def _check_place(self, base: str, length: str, align: int, path: str, bounded: bool = False) -> None:
        unless = f"{base} + {length} > size"
        if bounded:
            unless = f"{length} > MOST_BYTES or {unless}"
        if align > 1:
            unless = f"{base} & {align - 1} or {unless}"
        self.looks = True
        self._source.check(unless, f"bad_place({shown(path)}, {base}, {length}, {align}, size)")

    def _at(self, kind: Type, base: str, offset: int, reading: Reading, path: str) -> str:
        if isinstance(kind, ListOf) or kind == Primitive("string"):
            return self._pointed(kind, reading.leaf(offset, "I"), reading.leaf(offset + 4, "I"), path)
        if isinstance(kind, Primitive):
            name = reading.leaf(offset, layout.PRIMITIVES[kind.name][2])
            return self._primitive(kind, name, path) if kind.name in ("char", "f32", "f64") else name
        if isinstance(kind, Own | Borrow):
            return self._handle(kind, reading.leaf(offset, "I"), path)
        if isinstance(kind, Flags):
            code = layout.UNSIGNED[min(layout.size(kind), 4)]
            words = range(layout.flag_words(len(kind.flags)))
            return self._flags(kind, [reading.leaf(offset + 4 * i, code) for i in words])
        parts = parts_of(kind)
        if parts is not None:
            places = zip(parts, layout.offsets(kind), strict=True)
            return self._whole(kind, [self._at(of, base, offset + at, reading, path) for of, at in places])
        cases = cases_of(kind)
        assert cases is not None
        tag = reading.leaf(offset, layout.tag_code(kind))
        at = offset + layout.payload_offset(kind)
        # With one payload there is only one way to read that place, so it is read together with all else.
        alone = sum(of is not None for _, of in cases) == 1

        def lift(of: Type) -> str:
            if alone:
                return self._at(of, base, at, reading, path)
            inner = Reading(self._source, base)
            held = self._source.bind(self._at(of, base, at, inner, path))
            inner.close()
            return held

        return self._cases(kind, tag, lift, path)

    def _primitive(self, kind: Primitive, name: str, path: str) -> str:
        if kind.name == "char":
            return f"char({shown(path)}, {name} & {_WORD})"
        if kind.name in ("f32", "f64"):
            return f"({name} if {name} == {name} else NAN)"
        return f"({_NARROW[kind.name].format(name)})"

    def _pointed(self, kind: Type, at: str, count: str, path: str) -> str:
        """A string or a list: its address and length are given."""
        source = self._source
        element = kind.element if isinstance(kind, ListOf) else None
        if element is None or element == Primitive("u8"):
            self._check_place(at, count, 1, path, bounded=True)
            self._spend(count, path)
            return source.bind(f"view[{at}:{at} + {count}].tobytes(){'.decode()' if element is None else ''}")
        length, align = layout.size(element), alignment(element)
        self._check_place(at, f"{count} * {length}", align, path, bounded=True)
        if not length:
            source.check(f"{count} > EMPTY_ELEMENTS", f"too_many({shown(path)}, {count})")
        self._spend(f"{count} * {host_cost(element)}", path)
        if isinstance(element, Primitive) and element.name not in ("string", "char"):
            return self._numbers(element, at, count)
        held = source.bind("[]", "l")
        item = source.fresh("at")
        where = f"range({at}, {at} + {count} * {length}, {length})" if length else f"[{at}] * {count}"
        with source.loop(f"for {item} in {where}"):
            source.add(f"{held}.append({self.memory(element, item, f'{path}[]')})")
        return held

    def _numbers(self, element: Primitive, at: str, count: str) -> str:
        unpack = self._source.constant(unpack_from, "UNPACK")
        code = layout.PRIMITIVES[element.name][2]
        held = self._source.bind(f"list({unpack}('<%d{code}' % {count}, view, {at}))", "l")
        return f"[n if n == n else NAN for n in {held}]" if code in "fd" else held

    def _spend(self, amount: str, path: str) -> None:
        self.has_lists = True
        self._source.add(f"budget -= {amount}")
        self._source.check("budget < 0", f"too_much({shown(path)}, {self._most}, {self._case!r})")

    def _handle(self, kind: Own | Borrow, index: str, path: str) -> str:
        source = self._source
        owned = isinstance(kind, Own)
        resource = source.constant(kind.resource, "RESOURCE")
        if owned and self.lends:
            source.check(f"{index} in lent", f"still_lent({shown(path)}, {index})")
        held = source.bind(f"guest.handles.{'take' if owned else 'get'}({resource}, {index})", "h")
        if self.takes:
            source.add(f"taken.append({held})" if owned else f"lent.append({index})")
        return held

    def _flags(self, kind: Flags, words: list[str]) -> str:
        names = self._source.constant(kind.flags, "FLAGS")
        number = " | ".join(f"({word} & {_WORD}) << {32 * i}" for i, word in enumerate(words)) or "0"
        bits = self._source.bind(number, "b")
        return f"frozenset([n for i, n in enumerate({names}) if {bits} >> i & 1])"

    def _whole(self, kind: Type, values: list[str]) -> str:
        if isinstance(kind, Record):
            return f"{self._source.constant(record_class(kind), 'Record')}({', '.join(values)})"
        return f"({', '.join(values)}{',' if len(values) == 1 else ''})"

    def _cases(self, kind: Type, tag: str, lift: Any, path: str) -> str:
        """Whatever has a discriminant; `lift(type)` emits what lifts a payload, and gives its expression."""
        source, cases = self._source, cases_of(kind)
        assert cases is not None
        fault = f"no_case({shown(path)}, {tag}, {len(cases)})"
        names = source.constant(tuple(name for name, _ in cases), "CASES")
        if isinstance(kind, Enum):
            source.check(f"{tag} >= {len(cases)}", fault)
            return source.bind(f"{names}[{tag}]", "c")
        held, word = source.fresh("c"), "if"
        for i, (name, of) in enumerate(cases):
            if of is None and not isinstance(kind, OptionOf | ResultOf):
                continue
            with source.block(f"{word} {tag} == {i}"):
                value = lift(of) if of is not None else None
                source.add(f"{held} = {_case(kind, name, value)}")
            word = "elif"
        if any(of is None for _, of in cases) and not isinstance(kind, OptionOf | ResultOf):
            with source.block(f"{word} {tag} < {len(cases)}"):
                source.add(f"{held} = Variant({names}[{tag}])")
        with source.block("else"):
            source.add(fault)
        return held


def _case(kind: Type, name: str, value: str | None) -> str:
    if isinstance(kind, OptionOf):
        if value is None:
            return "None"
        return f"Some({value})" if isinstance(kind.some, OptionOf) else value
    if isinstance(kind, ResultOf):
        return f"{'Ok' if name == 'ok' else 'Err'}({value or ''})"
    return f"Variant({name!r}, {value})"


def _coerced(name: str, joined: str, wanted: str) -> str:
    """A core value of a variant, as the case's own core type."""
    if joined == wanted:
        return name
    if wanted == "i32":
        return f"({name} & {_WORD})"
    return f"f32_of_i32({name})" if wanted == "f32" else f"f64_of_i64({name})"
