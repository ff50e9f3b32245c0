"""Generating code that lowers: from Python values to core values and guest memory.

A value that does not fit its WIT type is a `TypeError` or `ValueError` that says where. Only what the guest's allocator
gave, and the place that the guest named for a result, is written; the guest's memory is looked at anew after each
allocation, because that may have moved it. `realloc` answers for what it returns (it raises `GuestFault` for a bad place).

Names in generated code: `guest`, `view` (its memory).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from astrid_host.abi import layout
from astrid_host.abi.layout import alignment, flatten, parts_of
from astrid_host.abi.runtime import MOST_BYTES
from astrid_host.abi.source import Source, Writing, attribute, shown
from astrid_host.wit.types import (
    Borrow,
    Enum,
    Flags,
    ListOf,
    OptionOf,
    Own,
    Primitive,
    Record,
    ResultOf,
    TupleOf,
    Type,
    Variant,
)

# Emits one case: the expression of its discriminant, its payload's type (None without one) and variable, its path.
Emit: TypeAlias = Callable[[str, Type | None, str, str], None]

_WORD = "0xFFFFFFFF"
_RANGES = {f"u{n}": (0, (1 << n) - 1) for n in (8, 16, 32, 64)} | {
    f"s{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32, 64)
}


class Lowerer:
    """Emits code into one source.

    Values are named by variables; `path` says in messages where a value stands. Copies of strings and lists into memory
    are put off to the end of their block, so that many allocations cost one look at the memory.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stale = True  # whether `view` has to be read before it is used
        self._copies: list[tuple[str, str, str]] = []

    def flat(self, kind: Type, value: str, path: str) -> list[str]:
        """Emit what makes the core values of a value; their names. Integers are unsigned. `settle` has to follow."""
        source = self._source
        if isinstance(kind, ListOf) or kind == Primitive("string"):
            return list(self._pointed(kind, value, path))
        if isinstance(kind, Primitive):
            made = self._primitive(kind, value, path)
            if kind.name[0] == "s":
                made = f"{made} & {'0xFFFFFFFFFFFFFFFF' if kind.name == 's64' else _WORD}"
            return [source.bind(f"int({made})" if kind.name == "bool" else made)]
        if isinstance(kind, Own | Borrow):
            return [self._handle(kind, value)]
        if isinstance(kind, Flags):
            number = self._bits(kind, value, path)
            return [f"({number} >> {32 * i} & {_WORD})" for i in range(layout.flag_words(len(kind.flags)))]
        if isinstance(kind, Enum):
            return [self._tag(kind, value, path)]
        parts = parts_of(kind)
        if parts is not None:
            held = self._parts(kind, value, path)
            return [flat for part, (name, at) in zip(parts, held, strict=True) for flat in self.flat(part, name, at)]
        joined = flatten(kind)
        names = [source.fresh() for _ in joined]
        for name, core in zip(names[1:], joined[1:], strict=True):
            source.add(f"{name} = {'0.0' if core[0] == 'f' else '0'}")

        def emit(tag: str, payload: Type | None, inner: str, at: str) -> None:
            source.add(f"{names[0]} = {tag}")
            if payload is not None:
                made = zip(names[1:], joined[1:], self.flat(payload, inner, at), flatten(payload), strict=False)
                for name, core, given, own in made:
                    source.add(f"{name} = {_coerced(given, core, own)}")

        self._cases(kind, value, path, emit)
        return names

    def memory(self, kind: Type, value: str, base: str, path: str) -> None:
        """Emit what writes a value at the address in the variable `base`."""
        writing = Writing(self._source, base)
        self._at(kind, value, 0, path, writing)
        self.settle(writing)

    def together(self, kinds: tuple[Type, ...], values: list[str], paths: list[str]) -> None:
        """Emit what writes parameters that are too many to be passed as they are, and returns the one address of them."""
        whole, source = TupleOf(kinds), self._source
        base = self._allocate(str(layout.size(whole)), alignment(whole), paths[0])
        writing = Writing(source, base)
        for kind, at, value, path in zip(kinds, layout.offsets(whole), values, paths, strict=True):
            self._at(kind, value, at, path, writing)
        self.settle(writing)
        source.add(f"return ({base},)")

    def good(self, kind: ResultOf, value: str, base: str, path: str) -> None:
        """Emit what writes the good case of a function's result; `value` is its payload."""
        writing = Writing(self._source, base)
        writing.leaf(0, "B", "0")
        if kind.ok is None:
            self.nothing(value, path)
        else:
            self._at(kind.ok, value, layout.payload_offset(kind), path, writing)
        self.settle(writing)

    def bad(self, kind: ResultOf, case: str, payload: str, base: str, path: str) -> None:
        """Emit what writes the bad case of a function's result: `case` of its variant or enum, and that case's payload."""
        at, err = layout.payload_offset(kind), kind.err
        writing = Writing(self._source, base)
        writing.leaf(0, "B", "1")
        if isinstance(err, Variant):
            self._variant(err, case, payload, path, self._emit_at(err, base, at))
        else:
            assert isinstance(err, Enum), "a host function's errors have cases"
            self.nothing(payload, path)
            writing.leaf(at, layout.tag_code(err), self._tag(err, case, path))
        self.settle(writing)

    def nothing(self, value: str, path: str) -> None:
        """Emit the check that where WIT has no value there is none."""
        self._source.check(f"{value} is not None", f"wrong_payload({shown(path)}, {value})")

    def settle(self, writing: Writing | None = None) -> None:
        """Emit the copies that were put off, and what `writing` has gathered."""
        if self._copies or (writing is not None and not writing.empty):
            self._look()
        for at, length, data in self._copies:
            self._source.add(f"view[{at}:{at} + {length}] = {data}")
        self._copies = []
        if writing is not None:
            writing.close()

    def _look(self) -> None:
        """Emit that `view` is the memory as it is now."""
        if self._stale:
            self._source.add("view = guest.view")
            self._stale = False

    @contextmanager
    def _branch(self, head: str, ends: list[bool]) -> Generator[None]:
        """One of several ways: what it puts off ends with it. Each begins with the view as it was before all of them."""
        copies, stale = self._copies, self._stale
        self._copies = []
        with self._source.block(head):
            yield
            self.settle()
        ends.append(self._stale)
        self._copies, self._stale = copies, stale

    def _at(self, kind: Type, value: str, offset: int, path: str, writing: Writing) -> None:
        """Emit what lowers a value to `offset` in `writing`; its fixed places are only gathered there."""
        if isinstance(kind, ListOf) or kind == Primitive("string"):
            at, count = self._pointed(kind, value, path)
            writing.leaf(offset, "I", at)
            writing.leaf(offset + 4, "I", count)
        elif isinstance(kind, Primitive):
            writing.leaf(offset, layout.PRIMITIVES[kind.name][2], self._primitive(kind, value, path))
        elif isinstance(kind, Own | Borrow):
            writing.leaf(offset, "I", self._handle(kind, value))
        elif isinstance(kind, Enum):
            writing.leaf(offset, layout.tag_code(kind), self._tag(kind, value, path))
        elif isinstance(kind, Flags):
            number, code = self._bits(kind, value, path), layout.UNSIGNED[min(layout.size(kind), 4)]
            for i in range(layout.flag_words(len(kind.flags))):
                writing.leaf(offset + 4 * i, code, f"{number} >> {32 * i} & {_WORD}")
        elif (parts := parts_of(kind)) is not None:
            held = self._parts(kind, value, path)
            for part, at_part, (name, where) in zip(parts, layout.offsets(kind), held, strict=True):
                self._at(part, name, offset + at_part, where, writing)
        else:
            writing.hole(offset)
            self._cases(kind, value, path, self._emit_at(kind, writing.base, offset))

    def _emit_at(self, kind: Type, base: str, offset: int) -> Emit:
        """For whatever has a discriminant: writes the case, and nothing of what other cases have more."""

        def emit(tag: str, payload: Type | None, inner: str, path: str) -> None:
            writing = Writing(self._source, base)
            writing.leaf(offset, layout.tag_code(kind), tag)
            if payload is not None:
                self._at(payload, inner, offset + layout.payload_offset(kind), path, writing)
            self.settle(writing)

        return emit

    def _primitive(self, kind: Primitive, value: str, path: str) -> str:
        where = shown(path)
        if kind.name == "bool":
            return f"({value} if type({value}) is bool else boolean({where}, {value}))"
        if kind.name == "char":
            return f"character({where}, {value})"
        if kind.name == "f32":
            return f"real({where}, {value}, 'f32')"
        if kind.name == "f64":
            return f"({value} if type({value}) is float else real({where}, {value}, 'f64'))"
        low, high = _RANGES[kind.name]
        otherwise = f"integer({where}, {value}, {low}, {high}, {kind.name!r})"
        return f"({value} if type({value}) is int and {low} <= {value} <= {high} else {otherwise})"

    def _pointed(self, kind: Type, value: str, path: str) -> tuple[str, str]:
        """A string or list in the guest's memory: where, and how long."""
        source, where = self._source, shown(path)
        if not isinstance(kind, ListOf):
            plain = f"type({value}) is str and {value}.isascii()"
            return self._copied(f"{value}.encode() if {plain} else encoded({where}, {value})", 1, path)
        element = kind.element
        if element == Primitive("u8"):
            return self._copied(f"{value} if type({value}) is bytes else octets({where}, {value})", 1, path)
        length = layout.size(element)
        if isinstance(element, Primitive) and element.name not in ("string", "char"):
            low, high = _RANGES.get(element.name, (0, 0))
            code = layout.PRIMITIVES[element.name][2]
            made = f"numbers({where}, {value}, {element.name!r}, {code!r}, {low}, {high})"
            at, bytes_ = self._copied(made, length, path)
            return at, source.bind(f"{bytes_} // {length}", "n")
        given = source.bind(f"{value} if type({value}) is list else sequence({where}, {value}, {str(kind)!r})", "i")
        count = source.bind(f"len({given})", "n")
        at = self._allocate(f"{count} * {length}", alignment(element), path)
        self._look()
        item = source.fresh("i")
        if length:
            place = source.fresh("p")
            head = f"for {place}, {item} in zip(range({at}, {at} + {count} * {length}, {length}), {given})"
            index = f"[{{({place} - {at}) // {length}}}]"
        else:
            place, head, index = at, f"for {item} in {given}", "[]"
        copies, self._copies = self._copies, []
        with source.loop(head):
            self.memory(element, item, place, path + index)
            self._look()
        self._copies = copies
        return at, count

    def _copied(self, data: str, align: int, path: str) -> tuple[str, str]:
        """Bytes that are copied as they are: where, and how many."""
        held = self._source.bind(data, "d")
        length = self._source.bind(f"len({held})", "n")
        at = self._allocate(length, align, path)
        self._copies.append((at, length, held))
        return at, length

    def _allocate(self, length: str, align: int, path: str) -> str:
        self._source.check(f"{length} > {MOST_BYTES}", f"too_large({shown(path)}, {length})")
        self._stale = True
        return self._source.bind(f"guest.realloc({align}, {length})", "p")

    def _handle(self, kind: Own | Borrow, value: str) -> str:
        resource = self._source.constant(kind.resource, "RESOURCE")
        return self._source.bind(f"guest.handles.add({resource}, {value})", "h")

    def _bits(self, kind: Flags, value: str, path: str) -> str:
        known = self._source.constant({flag: 1 << i for i, flag in enumerate(kind.flags)}, "FLAGS")
        return self._source.bind(f"bits({shown(path)}, {value}, {known}, {kind.name!r})", "b")

    def _parts(self, kind: Type, value: str, path: str) -> list[tuple[str, str]]:
        """The variables and paths of a record's fields or a tuple's items."""
        source, parts = self._source, parts_of(kind)
        assert parts is not None
        names = [source.fresh("f") for _ in parts]
        if not isinstance(kind, Record):
            source.add(
                f"{''.join(f'{n}, ' for n in names) or '()'} = items({shown(path)}, {value}, {len(parts)}, {str(kind)!r})"
            )
            return [(name, f"{path}[{i}]") for i, name in enumerate(names)]
        fields = [attribute(field.name) for field in kind.fields]
        with source.block("try"):
            for name, field in zip(names, fields, strict=True):
                source.add(f"{name} = {value}.{field}")
        with source.block("except AttributeError as error"):
            given = f"{shown(path)}, {value}, {kind.name!r}, {', '.join(fields)!r}, error"
            source.add(f"raise wrong_record({given}) from None")
        return [(name, f"{path}.{field.name}") for name, field in zip(names, kind.fields, strict=True)]

    def _tag(self, kind: Enum | Variant, case: str, path: str) -> str:
        """The variable that has the discriminant of a case without payload."""
        names = kind.cases if isinstance(kind, Enum) else tuple(case.name for case in kind.cases)
        empty = [True] * len(names) if isinstance(kind, Enum) else [case.type is None for case in kind.cases]
        tags = self._source.constant({name: i for i, name in enumerate(names) if empty[i]}, "TAGS")
        tag = self._source.bind(f"{tags}.get({case}) if type({case}) is str else None", "t")
        cases = self._source.constant(names, "CASES")
        self._source.check(f"{tag} is None", f"wrong_case({shown(path)}, {case}, {kind.name!r}, {cases})")
        return tag

    def _cases(self, kind: Type, value: str, path: str, emit: Emit) -> None:
        """Emit a way for each case of an option, result or variant."""
        source, ends = self._source, list[bool]()
        if isinstance(kind, Variant):
            source.check(
                f"type({value}) is not Variant", f"wrong_type({shown(path)}, {value}, {f'a Variant for {kind}'!r})"
            )
            self._variant(kind, source.bind(f"{value}.case"), source.bind(f"{value}.value"), path, emit)
            return
        if isinstance(kind, OptionOf):
            wraps = isinstance(kind.some, OptionOf)
            with self._branch(f"if {value} is None", ends):
                emit("0", None, "", path)
            with self._branch(f"elif type({value}) is Some" if wraps else "else", ends):
                emit("1", kind.some, source.bind(f"{value}.value") if wraps else value, path)
            wanted = f"None or Some for {kind}" if wraps else ""
        else:
            assert isinstance(kind, ResultOf)
            for i, (name, of) in enumerate((("Ok", kind.ok), ("Err", kind.err))):
                with self._branch(f"{'elif' if i else 'if'} type({value}) is {name}", ends):
                    inner, where = source.bind(f"{value}.value"), f"{path}.{'error' if i else 'ok'}"
                    if of is None:
                        self.nothing(inner, where)
                    emit(str(i), of, inner, where)
            wanted = f"Ok or Err for {kind}"
        if wanted:
            with source.block("else"):
                source.add(f"wrong_type({shown(path)}, {value}, {wanted!r})")
        self._stale = any(ends)

    def _variant(self, kind: Variant, case: str, payload: str, path: str, emit: Emit) -> None:
        """Emit a way for each case with a payload, and one for all others."""
        ends, word = list[bool](), "if"
        for i, of in enumerate(kind.cases):
            if of.type is not None:
                with self._branch(f"{word} {case} == {of.name!r}", ends):
                    emit(str(i), of.type, payload, f"{path}.{of.name}")
                word = "elif"
        if len(ends) == len(kind.cases):
            with self._source.block("else"):
                self._tag(kind, case, path)  # only to refuse it
        else:
            with self._branch("else" if ends else "if True", ends):
                tag = self._tag(kind, case, path)
                self.nothing(payload, path)
                emit(tag, None, "", path)
        self._stale = any(ends)


def _coerced(name: str, joined: str, own: str) -> str:
    """A case's core value, as the variant's joined core type."""
    if joined == own or (joined, own) == ("i64", "i32"):
        return name
    return f"i32_of_f32({name})" if own == "f32" else f"i64_of_f64({name})"
