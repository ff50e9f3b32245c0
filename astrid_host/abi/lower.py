"""Generating code that lowers: from Python values to core values and guest memory.

A value that does not fit its WIT type is a `TypeError` or `ValueError` that says where; nothing outside what the guest's
allocator gave is ever written. The memory is looked at anew after each allocation, because that may have moved it.
"""

from __future__ import annotations

from astrid_host.abi import layout
from astrid_host.abi.layout import alignment, cases_of, flatten, parts_of
from astrid_host.abi.source import Source, attribute
from astrid_host.wit.types import Borrow, Enum, Flags, ListOf, OptionOf, Own, Primitive, Record, ResultOf, Type

_RANGES = {f"u{n}": (0, (1 << n) - 1) for n in (8, 16, 32, 64)} | {
    f"s{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32, 64)
}


class Lowerer:
    """Emits code into one source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def flat(self, kind: Type, value: str, path: str) -> list[str]:
        """Emit what makes the core values of `value`; their names. Integers are unsigned."""
        source = self._source
        if isinstance(kind, Primitive) and kind.name != "string":
            name = source.fresh()
            made = self._primitive(kind, value, path)
            if kind.name.startswith("s"):
                made = f"{made} & {'0xFFFFFFFFFFFFFFFF' if kind.name == 's64' else '0xFFFFFFFF'}"
            source.add(f"{name} = {made}")
            return [name]
        if isinstance(kind, Primitive | ListOf):
            return list(self._pair(kind, value, path))
        if isinstance(kind, Own | Borrow):
            return [self._handle(kind, value)]
        if isinstance(kind, Flags):
            number = self._bits(kind, value, path)
            return [f"({number} >> {32 * i} & 0xFFFFFFFF)" for i in range(layout.flag_words(len(kind.flags)))]
        parts = parts_of(kind)
        if parts is not None:
            held = self._parts(kind, value, path)
            return [n for part, (name, where) in zip(parts, held, strict=True) for n in self.flat(part, name, where)]
        joined = flatten(kind)
        names = [source.fresh() for _ in joined]
        for name, core in zip(names, joined, strict=True):
            source.add(f"{name} = {'0.0' if core[0] == 'f' else '0'}")

        def case(index: int, payload: Type | None, inner: str) -> None:
            source.add(f"{names[0]} = {index}")
            if payload is not None:
                made = self.flat(payload, inner, path)
                for name, core, made_name, own in zip(names[1:], joined[1:], made, flatten(payload), strict=False):
                    source.add(f"{name} = {_coerced(made_name, core, own)}")

        self._cases(kind, value, path, case)
        return names

    def memory(self, kind: Type, value: str, base: str, offset: int, path: str) -> None:
        """Emit what writes `value` at `base + offset`."""
        source = self._source
        place = f"{base} + {offset}" if offset else base
        if isinstance(kind, Primitive) and kind.name != "string":
            pack = source.packer(layout.PRIMITIVES[kind.name][2])
            source.add(f"{pack}(view, {place}, {self._primitive(kind, value, path)})")
            return
        if isinstance(kind, Primitive | ListOf):
            at, count = self._pair(kind, value, path)
            source.add(f"{source.packer('II')}(view, {place}, {at}, {count})")
            return
        if isinstance(kind, Own | Borrow):
            source.add(f"{source.packer('I')}(view, {place}, {self._handle(kind, value)})")
            return
        if isinstance(kind, Flags):
            number = self._bits(kind, value, path)
            source.add(f"view[{place}:{place} + {layout.size(kind)}] = {number}.to_bytes({layout.size(kind)}, 'little')")
            return
        parts = parts_of(kind)
        if parts is not None:
            at = offset
            for part, (name, where) in zip(parts, self._parts(kind, value, path), strict=True):
                at = layout.align_to(at, alignment(part))
                self.memory(part, name, base, at, where)
                at += layout.size(part)
            return
        cases = cases_of(kind)
        assert cases is not None
        tag = {1: "B", 2: "H", 4: "I"}[layout.discriminant_bytes(len(cases))]

        def case(index: int, payload: Type | None, inner: str) -> None:
            if payload is not None:
                self.memory(payload, inner, base, offset + layout.payload_offset(kind), path)
            if tag == "B":
                source.add(f"view[{place}] = {index}")
            else:
                source.add(f"{source.packer(tag)}(view, {place}, {index})")

        self._cases(kind, value, path, case)

    def _primitive(self, kind: Primitive, value: str, path: str) -> str:
        where = repr(path)
        if kind.name == "bool":
            return f"boolean({where}, {value})"
        if kind.name == "char":
            return f"character({where}, {value})"
        if kind.name == "f32":
            return f"single({where}, {value})"
        if kind.name == "f64":
            return f"real({where}, {value})"
        low, high = _RANGES[kind.name]
        return f"integer({where}, {value}, {low}, {high}, {kind.name!r})"

    def _pair(self, kind: Primitive | ListOf, value: str, path: str) -> tuple[str, str]:
        """A string or list in the guest's memory: where, and how long."""
        source = self._source
        at, count = source.fresh("p"), source.fresh("n")
        octets = isinstance(kind, ListOf) and kind.element == Primitive("u8")
        if isinstance(kind, Primitive) or octets:
            data = source.fresh("d")
            if isinstance(kind, Primitive):
                source.add(f"{data} = encoded({path!r}, {value})")
            else:
                source.add(f"{data} = {value} if type({value}) is bytes else octets({path!r}, {value})")
            source.add(f"{count} = len({data})")
            source.add(f"{at} = guest.realloc(1, {count})")
            source.add("view = guest.view")
            source.add(f"view[{at}:{at} + {count}] = {data}")
            return at, count
        assert isinstance(kind, ListOf)
        length = layout.size(kind.element)
        items, item, place = source.fresh("i"), source.fresh("i"), source.fresh("p")
        source.add(f"{items} = sequence({path!r}, {value})")
        source.add(f"{count} = len({items})")
        source.add(f"{place} = {at} = guest.realloc({alignment(kind.element)}, {count} * {length})")
        source.add("view = guest.view")
        with source.block(f"for {item} in {items}:"):
            self.memory(kind.element, item, place, 0, f"{path}[]")
            source.add(f"{place} += {length}")
        return at, count

    def _handle(self, kind: Own | Borrow, value: str) -> str:
        name = self._source.fresh("h")
        self._source.add(f"{name} = guest.handles.add({self._source.constant(kind.resource, 'RESOURCE')}, {value})")
        return name

    def _bits(self, kind: Flags, value: str, path: str) -> str:
        known = self._source.constant({flag: 1 << i for i, flag in enumerate(kind.flags)}, "FLAGS")
        name = self._source.fresh("b")
        self._source.add(f"{name} = bits({path!r}, {value}, {known}, {kind.name!r})")
        return name

    def _parts(self, kind: Type, value: str, path: str) -> list[tuple[str, str]]:
        source = self._source
        if isinstance(kind, Record):
            names = [source.fresh("f") for _ in kind.fields]
            with source.block("try:"):
                for name, field in zip(names, kind.fields, strict=True):
                    source.add(f"{name} = {value}.{attribute(field.name)}")
            with source.block("except AttributeError as error:"):
                source.add(f"raise wrong_record({path!r}, {value}, {kind.name!r}, error) from None")
            return [(name, f"{path}.{field.name}") for name, field in zip(names, kind.fields, strict=True)]
        parts = parts_of(kind)
        assert parts is not None
        held = source.fresh("t")
        source.add(f"{held} = sequence({path!r}, {value}, {len(parts)})")
        return [(f"{held}[{i}]", f"{path}[{i}]") for i in range(len(parts))]

    def _cases(self, kind: Type, value: str, path: str, emit: object) -> None:
        """Emit one branch for each case; `emit(index, payload type, payload expression)` fills it."""
        source = self._source
        cases = cases_of(kind)
        assert cases is not None
        assert callable(emit)
        held, inner = source.fresh("c"), source.fresh("x")
        source.add(f"{held} = {value}")
        for i, (name, payload) in enumerate(cases):
            test, given = _test(kind, i, name, held)
            with source.block(f"{'if' if i == 0 else 'elif'} {test}:"):
                if payload is not None:
                    source.add(f"{inner} = {given}")
                emit(i, payload, inner)
        with source.block("else:"):
            names = ", ".join(name for name, _ in cases)
            source.add(f"wrong_case({path!r}, {held}, {str(kind)!r}, {names!r})")


def _test(kind: Type, index: int, name: str, held: str) -> tuple[str, str]:
    """How to tell that `held` is this case, and how to get at its payload."""
    if isinstance(kind, Enum):
        return f"{held} == {name!r}", held
    if isinstance(kind, OptionOf):
        if index == 0:
            return f"{held} is None", held
        if isinstance(kind.some, OptionOf):
            return f"type({held}) is Some", f"{held}.value"
        return "True", held
    if isinstance(kind, ResultOf):
        return f"type({held}) is {'Err' if index else 'Ok'}", f"{held}.value"
    return f"type({held}) is Variant and {held}.case == {name!r}", f"{held}.value"


def _coerced(name: str, joined: str, own: str) -> str:
    """A case's core value, as the variant's joined core type."""
    if joined == own or (joined, own) == ("i64", "i32"):
        return name
    if own == "f32":
        return f"i32_of_f32({name})"
    return f"i64_of_f64({name})"
