"""Reading WebAssembly binaries: sections, types, imports, exports, code. No length in a file is trusted.

Malformed input is a `ModuleRefused` that says where. Nothing here validates a module: the engine does that when it compiles,
and whatever it would refuse may be read here as something else, but never beyond the file. Python objects are made of a file
only up to a bound (`Bound`): a module with more sections, entries or names than any capsule has is refused before they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from astrid_host.errors import ModuleRefused

MAGIC = b"\0asm"
CORE, COMPONENT = b"\x01\0\0\0", b"\x0d\0\x01\0"
_TYPES = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64", 0x7B: "v128", 0x70: "funcref", 0x6F: "externref"}
_KINDS = ("func", "table", "memory", "global", "tag")
# Of one file, all modules in a component together. A capsule made from JavaScript, engine included, has 30,000 functions.
SECTIONS = 10_000
ENTRIES = 400_000  # sections, types and their parts, imports, functions (which count twice), exports
NAME_BYTES = 1 << 20
IMPORTS = EXPORTS = 10_000
Limits: TypeAlias = tuple[int, int | None]  # at first and at most, None without a bound


class Bound:
    """How much more of a file is read. One belongs to one file."""

    __slots__ = ("entries", "names", "sections")

    def __init__(self) -> None:
        self.sections, self.entries, self.names = SECTIONS, ENTRIES, NAME_BYTES

    def section(self) -> None:
        self.sections -= 1
        if self.sections < 0:
            raise ModuleRefused(f"it has more than {SECTIONS} sections: no capsule is built so")

    def take(self, entries: int) -> None:
        self.entries -= entries
        if self.entries < 0:
            raise ModuleRefused(
                f"its types, imports, functions and exports are more than {ENTRIES} entries: build it with link-time "
                "optimisation, or split the capsule"
            )

    def name(self, size: int) -> None:
        self.names -= size
        if self.names < 0:
            raise ModuleRefused(f"the names in it have more than {NAME_BYTES} bytes: no capsule needs so many")


class Reader:
    """A cursor over bytes that never leaves them. With a bound it refuses what is too much before it reads that."""

    __slots__ = ("at", "bound", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None, bound: Bound | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end
        self.bound = bound

    def fail(self, what: str) -> ModuleRefused:
        return ModuleRefused(f"malformed WebAssembly: {what} at byte {self.at:#x}")

    def byte(self) -> int:
        if self.at >= self.end:
            raise self.fail("it ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self, bits: int = 32) -> int:
        """An unsigned LEB128 number."""
        at = self.at
        if at < self.end and self.data[at] < 0x80:  # most are short, and a module has thousands
            self.at = at + 1
            return self.data[at]
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
            shift += 7
            if shift >= bits:
                raise self.fail("a number is too long")
        if value >= 1 << bits:
            raise self.fail("a number is too large")
        return value

    def skip_signed(self) -> None:
        """A signed LEB128 number of any width."""
        for _ in range(10):
            if not self.byte() & 0x80:
                return
        raise self.fail("a number is too long")

    def skip(self, count: int) -> None:
        if count > self.end - self.at:
            raise self.fail("it ends too early")
        self.at += count

    def name(self) -> str:
        length = self.number()
        begin = self.at
        self.skip(length)
        if self.bound is not None:
            self.bound.name(length)
        try:
            return self.data[begin : self.at].decode()
        except UnicodeDecodeError:
            raise self.fail("a name is not UTF-8") from None

    def part(self) -> Reader:
        """A reader of what follows, which has its length before it."""
        length = self.number()
        begin = self.at
        self.skip(length)
        return Reader(self.data, begin, self.at, self.bound)

    def count(self) -> int:
        """How many entries follow: each takes a byte at least."""
        count = self.number()
        if count > self.end - self.at:
            raise self.fail("it names more entries than it has bytes")
        if self.bound is not None:
            self.bound.take(count)
        return count


class CoreImport(msgspec.Struct, frozen=True):
    """One import of a core module.

    `params` and `results` are core types when it is a function; `pages` are the limits of a memory, in units of 64 KiB.
    """

    module: str
    name: str
    kind: str
    params: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    pages: Limits | None = None

    def describe(self) -> str:
        """Its type, for people."""
        return _describe(self)


class CoreExport(msgspec.Struct, frozen=True):
    """One export of a core module; `index` counts imports of its kind too. The rest is as in `CoreImport`."""

    name: str
    kind: str
    index: int
    params: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    pages: Limits | None = None

    def describe(self) -> str:
        """Its type, for people."""
        return _describe(self)


def _describe(of: CoreImport | CoreExport) -> str:
    if of.kind == "func":
        return f"({', '.join(of.params)}) -> ({', '.join(of.results)})"
    if of.pages is None:
        return of.kind
    least, most = of.pages
    return f"memory of {least * 64} KiB, {'no maximum' if most is None else f'at most {most * 64} KiB'}"


class Outline(msgspec.Struct):
    """What a core module consists of, as far as it is needed here."""

    types: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    imports: list[CoreImport] = []
    functions: list[int] = []  # type index of each function, imported ones first
    imported_functions: int = 0
    exports: list[CoreExport] = []
    tables: list[int] = []  # with how many elements each begins, imported ones left out
    memories: list[Limits] = []  # in pages, imported ones first
    bodies: list[tuple[int, int]] = []  # of the functions defined here
    customs: list[str] = []


def sections(
    data: bytes, begin: int = 8, end: int | None = None, bound: Bound | None = None
) -> Iterator[tuple[int, Reader]]:
    """The sections of a module or component: their numbers and contents."""
    reader = Reader(data, begin, end, bound)
    while reader.at < reader.end:
        if bound is not None:
            bound.section()
        number = reader.byte()
        yield number, reader.part()


def read_outline(data: bytes, bound: Bound) -> Outline:
    """Read a core module.

    Args:
        data: the module.
        bound: of the file that it is in.

    Raises:
        ModuleRefused: it is malformed, or more than the bound allows.
    """
    outline = Outline()
    readers = {
        1: _read_types,
        2: _read_imports,
        3: _read_functions,
        4: _read_tables,
        5: _read_memories,
        7: _read_exports,
        10: _read_code,
    }
    for number, reader in sections(data, bound=bound):
        if number == 0:
            outline.customs.append(reader.name())
        elif number in readers:
            readers[number](outline, reader)
    return outline


def _value_type(reader: Reader) -> str:
    byte = reader.byte()
    if byte in (0x63, 0x64):  # a reference, with the type that it refers to
        reader.skip_signed()
        return "ref"
    return _TYPES.get(byte, f"<type {byte:#x}>")


def _value_types(reader: Reader) -> tuple[str, ...]:
    return tuple(_value_type(reader) for _ in range(reader.count()))


def _read_types(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        form = reader.byte()
        if form != 0x60:
            raise ModuleRefused(f"it uses types that capsules may not have (form {form:#x}): build for the wasm32 MVP")
        outline.types.append((_value_types(reader), _value_types(reader)))


def _read_imports(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        if len(outline.imports) == IMPORTS:
            raise ModuleRefused(f"it has more than {IMPORTS} imports: this host has a few hundred functions")
        module, name, kind = reader.name(), reader.name(), reader.byte()
        if kind == 0:
            index = reader.number()
            params, results = _type(outline, index, reader)
            outline.functions.append(index)
            outline.imported_functions += 1
            outline.imports.append(CoreImport(module, name, "func", params, results))
            continue
        pages = None
        if kind == 1:
            _value_type(reader)
            _limits(reader)
        elif kind == 2:
            pages = _limits(reader)
            outline.memories.append(pages)
        elif kind == 3:
            _value_type(reader)
            reader.skip(1)
        elif kind == 4:
            reader.skip(1)
            reader.number()
        else:
            raise reader.fail(f"an import of kind {kind}")
        outline.imports.append(CoreImport(module, name, _KINDS[kind], pages=pages))


def _type(outline: Outline, index: int, reader: Reader) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if index >= len(outline.types):
        raise reader.fail(f"there is no type {index}")
    return outline.types[index]


def _limits(reader: Reader) -> Limits:
    flags = reader.byte()
    least = reader.number(64)
    return least, reader.number(64) if flags & 1 else None


def _read_functions(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        index = reader.number()
        _type(outline, index, reader)
        outline.functions.append(index)


def _read_tables(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        if reader.data[reader.at : reader.at + 1] == b"\x40":
            raise ModuleRefused("it has a table with an initial value for its elements, which capsules may not have")
        _value_type(reader)
        outline.tables.append(_limits(reader)[0])


def _read_memories(outline: Outline, reader: Reader) -> None:
    outline.memories.extend(_limits(reader) for _ in range(reader.count()))


def _read_exports(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        if len(outline.exports) == EXPORTS:
            raise ModuleRefused(f"it has more than {EXPORTS} exports: a capsule needs a handful")
        name, kind, index = reader.name(), reader.byte(), reader.number()
        if kind >= len(_KINDS):
            raise reader.fail(f"an export of kind {kind}")
        params: tuple[str, ...] = ()
        results: tuple[str, ...] = ()
        pages = None
        if kind == 0:
            if index >= len(outline.functions):
                raise reader.fail(f"there is no function {index}")
            params, results = outline.types[outline.functions[index]]
        elif kind == 2:
            if index >= len(outline.memories):
                raise reader.fail(f"there is no memory {index}")
            pages = outline.memories[index]
        outline.exports.append(CoreExport(name, _KINDS[kind], index, params, results, pages))


def _read_code(outline: Outline, reader: Reader) -> None:
    for _ in range(reader.count()):
        body = reader.part()
        outline.bodies.append((body.at, body.end))
