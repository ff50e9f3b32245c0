"""Any package that is printed is read as it was; any text that is not WIT is a `WitError` and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from astrid_host.bundled import wit_folder
from astrid_host.errors import WitError
from astrid_host.wit import (
    Borrow,
    Case,
    Enum,
    Field,
    Flags,
    Function,
    FunctionKind,
    Interface,
    ListOf,
    OptionOf,
    Own,
    Package,
    ParsedFile,
    Primitive,
    PrimitiveName,
    Record,
    Resource,
    ResultOf,
    TupleOf,
    Type,
    Variant,
    World,
    parse,
    resolve,
)
from astrid_host.wit.cursor import KEYWORDS

REAL = {path.name: path.read_text() for path in sorted(wit_folder().glob("*.wit"))}
PARSED = {name: parse(text) for name, text in REAL.items()}
PRIMITIVES: tuple[PrimitiveName, ...] = get_args(PrimitiveName)
WORDS = ("a", "b2", "list", "string", "self", "URL", "u8", "own", "x-1", "use", "func", "interface", "get", "set", "e")
TOKENS = (
    sorted(KEYWORDS)
    + list('{}()<>:;,.=@/*%_-\n"0')
    + ["->", "///", "/*", "*/", "1.0.0", "a", "%list", "é", "a:b@1.0.0"]
)
KINDS: tuple[FunctionKind, ...] = ("method", "static")
BLANKS = st.sampled_from((" ", "\n", " /* /* in */ out */ ", " // note\n", "\t\r\n"))


def taken(draw: st.DrawFn, names: set[str]) -> str:
    """A name that is not among these in any case, and is from now on."""
    name = "-".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
    while name.lower() in names:
        name += f"-{len(names)}"
    names.add(name.lower())
    return name


@dataclass
class Writer:
    """Draws an interface and writes it down as it goes: `types` is what its names mean."""

    draw: st.DrawFn
    id: str
    types: dict[str, Type | Resource] = field(default_factory=dict)
    uses: dict[str, tuple[str, str]] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)

    def name(self, name: str) -> str:
        escape: bool = self.draw(st.booleans())
        return f"%{name}" if escape or name in KEYWORDS else name

    def listed(self, items: list[str]) -> str:
        """Items with commas, and sometimes one behind the last."""
        comma = "," if self.draw(st.booleans()) and items else ""
        return ("," + self.draw(BLANKS)).join(items) + comma

    def type(self, borrows: bool = False, depth: int = 0) -> tuple[str, Type]:
        """A type and its text."""
        kinds = ["primitive", "named", "named"]
        if depth < 3:
            kinds += ["list", "option", "tuple", "result"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "named" and self.types:
            return self.named(borrows)
        if kind in ("list", "option"):
            text, of = self.type(borrows, depth + 1)
            return f"{kind}<{text}>", ListOf(of) if kind == "list" else OptionOf(of)
        if kind == "tuple":
            items = [self.type(borrows, depth + 1) for _ in range(self.draw(st.integers(1, 3)))]
            return f"tuple<{self.listed([text for text, _ in items])}>", TupleOf(tuple(of for _, of in items))
        if kind == "result":
            return self.result(borrows, depth + 1)
        primitive: PrimitiveName = self.draw(st.sampled_from(PRIMITIVES))
        return primitive, Primitive(primitive)

    def named(self, borrows: bool) -> tuple[str, Type]:
        name = self.draw(st.sampled_from(sorted(self.types)))
        meant = self.types[name]
        if not isinstance(meant, Resource):
            return self.name(name), meant
        form = self.draw(st.sampled_from(("", "own", "borrow") if borrows else ("", "own")))
        text = f"{form}<{self.name(name)}>" if form else self.name(name)
        return text, Borrow(meant) if form == "borrow" else Own(meant)

    def result(self, borrows: bool, depth: int) -> tuple[str, Type]:
        ok = self.type(borrows, depth) if self.draw(st.booleans()) else None
        err = self.type(borrows, depth) if self.draw(st.booleans()) else None
        sides = "" if ok is err is None else f"<{ok[0] if ok else '_'}{f', {err[0]}' if err else ''}>"
        return f"result{sides}", ResultOf(ok[1] if ok else None, err[1] if err else None)

    def declare(self) -> None:
        """One more type."""
        kind = self.draw(st.sampled_from(("record", "variant", "enum", "flags", "type", "resource")))
        name = taken(self.draw, self.names)
        if kind == "resource":
            self.resource(name)
        elif kind == "type":
            text, of = self.type()
            self.texts.append(f"type {self.name(name)} = {text};")
            local = text.removeprefix("%")
            meant = self.types.get(local) if text[0] == "%" or text not in PRIMITIVES else None
            self.types[name] = meant if isinstance(meant, Resource) else of
        else:
            self.types[name] = self.aggregate(kind, name)

    def aggregate(self, kind: str, name: str) -> Type:
        used: set[str] = set()
        parts = [taken(self.draw, used) for _ in range(self.draw(st.integers(1, 4)))]
        typed: dict[str, tuple[str, Type]] = {}
        for part in parts:
            if kind == "record" or (kind == "variant" and self.draw(st.booleans())):
                typed[part] = self.type()
        texts: list[str] = []
        for part in parts:
            of = typed[part][0] if part in typed else ""
            texts.append(self.name(part) + (f": {of}" if kind == "record" else f"({of})" if of else ""))
        self.texts.append(f"{kind} {self.name(name)} {{ {self.listed(texts)} }}")
        if kind == "record":
            return Record(name, tuple(Field(part, typed[part][1]) for part in parts))
        if kind == "variant":
            return Variant(name, tuple(Case(part, typed[part][1] if part in typed else None) for part in parts))
        return Enum(name, tuple(parts)) if kind == "enum" else Flags(name, tuple(parts))

    def resource(self, name: str) -> None:
        made = self.types[name] = Resource(self.id, name)
        texts: list[str] = []
        names: set[str] = {"constructor"}
        if self.draw(st.booleans()):
            texts.append("constructor" + self.function("constructor", "constructor", made))
        for _ in range(self.draw(st.integers(0, 2))):
            kind: FunctionKind = self.draw(st.sampled_from(KINDS))
            method = taken(self.draw, names)
            static = "static func" if kind == "static" else "func"
            texts.append(f"{self.name(method)}: {static}{self.function(method, kind, made)}")
        empty = not texts and self.draw(st.booleans())
        self.texts.append(f"resource {self.name(name)}" + (";" if empty else f" {{ {' '.join(texts)} }}"))

    def function(self, name: str, kind: FunctionKind, resource: Resource | None = None) -> str:
        """The text of a signature; the function itself is noted."""
        names = {"self"} if kind == "method" else set()
        params: list[Field] = []
        texts: list[str] = []
        for _ in range(self.draw(st.integers(0, 3))):
            param = taken(self.draw, names)
            text, of = self.type(borrows=True)
            params.append(Field(param, of))
            texts.append(f"{self.name(param)}: {text}")
        result: Type | None = Own(resource) if kind == "constructor" and resource is not None else None
        arrow = ""
        if kind != "constructor" and self.draw(st.booleans()):
            text, result = self.type()
            arrow = f" -> {text}"
        first = [Field("self", Borrow(resource))] if kind == "method" and resource is not None else []
        made = Function(name, (*first, *params), result, kind, resource)
        self.functions[made.core_name] = made
        return f"({self.listed(texts)}){arrow};"

    def use(self, package: str, other: Interface) -> None:
        """Use some of another interface's types, some under other names."""
        if not other.types:
            return
        names = self.draw(st.lists(st.sampled_from(sorted(other.types)), min_size=1, max_size=3, unique=True))
        texts: list[str] = []
        for name in names:
            local = name
            if name.lower() in self.names or self.draw(st.booleans()):
                local = taken(self.draw, self.names)
            self.names.add(local.lower())
            self.types[local] = other.types[name]
            self.uses[local] = (other.id, name)
            texts.append(self.name(name) + (f" as {self.name(local)}" if local != name else ""))
        same = other.id.startswith(package.split("@")[0] + "/") and self.draw(st.booleans())
        source = self.name(other.name) if same else spelled_id(other.id)
        self.texts.append(f"use {source}.{{{self.listed(texts)}}};")

    def build(self, name: str) -> tuple[str, Interface]:
        """The text, its items in any order, and what it has to be read as."""
        for _ in range(self.draw(st.integers(0, 5))):
            self.declare()
        for _ in range(self.draw(st.integers(0, 3))):
            free = taken(self.draw, self.names)
            self.texts.append(f"{self.name(free)}: func{self.function(free, 'free')}")
        texts = self.draw(st.permutations(self.texts))
        blank = self.draw(BLANKS)
        return f"{{{blank}{blank.join(texts)}{blank}}}", Interface(self.id, name, self.types, self.functions, self.uses)


def spelled_id(name: str) -> str:
    """An interface's id with every name in it escaped."""
    package, _, rest = name.partition("/")
    plain, at, version = rest.partition("@")
    return ":".join(f"%{part}" for part in package.split(":")) + f"/%{plain}{at}{version}"


@st.composite
def packages(draw: st.DrawFn) -> tuple[list[str], dict[str, Package]]:
    """Texts of up to three packages, and what they have to be read as."""
    texts: list[str] = []
    found: dict[str, Package] = {}
    earlier: list[Interface] = []
    for number in range(draw(st.integers(1, 3))):
        plain, version = f"n{number}:p", draw(st.sampled_from(("", "@1.0.0", "@0.2.1-rc.1+b-2")))
        package, names = plain + version, set[str]()
        items: list[str] = []
        interfaces: dict[str, Interface] = {}
        for _ in range(draw(st.integers(1, 2))):
            name = taken(draw, names)
            writer = Writer(draw, f"{plain}/{name}{version}")
            for other in draw(st.lists(st.sampled_from(earlier), max_size=2, unique_by=id)) if earlier else ():
                writer.use(package, other)
            text, interface = writer.build(name)
            items.append(f"interface %{name} {text}")
            interfaces[name] = interface
            earlier.append(interface)
        text, worlds = world(draw, plain, version, earlier, names)
        items.append(text)
        texts.append(f"package %n{number}:p{version};\n" + draw(BLANKS).join(draw(st.permutations(items))))
        found[package] = Package(package, interfaces, worlds)
    return draw(st.permutations(texts)), found


def world(
    draw: st.DrawFn, plain: str, version: str, earlier: list[Interface], names: set[str]
) -> tuple[str, dict[str, World]]:
    """A world with some of the interfaces and a function of its own on each side."""
    name = taken(draw, names)
    writer = Writer(draw, f"{plain}/{name}{version}")
    sides: list[dict[str, Interface | Function]] = [{}, {}]
    lines: list[str] = []
    for direction, side in zip(("import", "export"), sides, strict=True):
        for interface in draw(st.lists(st.sampled_from(earlier), max_size=2, unique_by=id)):
            side[interface.id] = interface
            lines.append(f"{direction} {spelled_id(interface.id)};")
        lines.append(f"{direction} f-{direction}: func{writer.function(f'f-{direction}', 'free')}")
        side[f"f-{direction}"] = writer.functions[f"f-{direction}"]
    text = " ".join(draw(st.permutations(lines)))
    return f"world %{name} {{ {text} }}", {name: World(name, sides[0], sides[1])}


@settings(deadline=None, max_examples=60)
@given(packages())
def test_a_printed_package_is_read_as_it_was(drawn: tuple[list[str], dict[str, Package]]) -> None:
    texts, expected = drawn
    assert resolve([parse(text) for text in texts]) == expected


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(TOKENS), max_size=60).map(" ".join), st.booleans())
def test_any_tokens_are_read_or_a_wit_error(soup: str, headed: bool) -> None:
    allow(("package a:b;\ninterface a { " if headed else "") + soup)


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_any_text_is_read_or_a_wit_error(text: str) -> None:
    allow(text)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_real_file_with_changes_is_read_or_a_wit_error_inside_it(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(REAL)))
    text = REAL[name]
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.sampled_from((0, 1, 2, 8, 40))))
        piece = data.draw(st.one_of(st.sampled_from(TOKENS), st.just(""), st.just(text[begin : begin + 30] * 2)))
        text = text[:begin] + piece + text[end:]
    error = allow(text, [parsed for other, parsed in PARSED.items() if other != name])
    if error is not None:
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text.split("\n")[error.line - 1]) + 1


def allow(text: str, others: list[ParsedFile] | None = None) -> WitError | None:
    """Read a text; a `WitError` is fine, anything else is not."""
    try:
        resolve([parse(text), *(others or [])])
    except WitError as error:
        return error
    return None
