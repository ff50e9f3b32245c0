"""Parsing WIT. Every mistake is a `WitError` at the token where it shows, with what was expected there.

Feature gates (`@since`, `@unstable`, `@deprecated`) are read and left out. (Component model, "WIT.md".)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from astrid_host.wit.lexer import Text, Token, tokens
from astrid_host.wit.syntax import (
    ExternNode,
    FieldNode,
    FunctionNode,
    IncludeNode,
    InterfaceNode,
    InterfaceRef,
    Item,
    NameRef,
    PackageNode,
    ParsedFile,
    TypeNode,
    UseNode,
    WorldNode,
)

T = TypeVar("T")

NESTING = 64
PRIMITIVES = frozenset(
    ("bool", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64", "char", "string")
)
GENERICS = {"list": 1, "option": 1, "result": 2, "tuple": -1, "own": 1, "borrow": 1}
KEYWORDS = (
    PRIMITIVES
    | frozenset(GENERICS)
    | frozenset(
        "as async constructor enum export flags from func future import include interface package record "
        "resource static stream type use variant with world".split()
    )
)
GATES = frozenset(("since", "unstable", "deprecated"))


def parse(text: str, file: Path | None = None) -> ParsedFile:
    """Parse one WIT text.

    Args:
        file: named in messages.

    Raises:
        WitError: it cannot be read.
    """
    source = Text(text, file)
    return _Parser(source).file()


class _Parser:
    def __init__(self, source: Text) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._index = 0

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._index += 1
        return token

    def _is(self, text: str) -> bool:
        token = self._token
        return token.text == text and token.kind != "end"

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._index += 1
            return True
        return False

    def _expect(self, *texts: str) -> Token:
        if not any(self._is(text) for text in texts):
            raise self._unexpected(" or ".join(map(repr, texts)))
        return self._next()

    def _unexpected(self, wanted: str) -> Exception:
        token = self._token
        given = token.text if token.kind == "end" else repr(token.text)
        return self._source.error(f"expected {wanted}, found {given}", token.at)

    def _name(self, what: str) -> Token:
        token = self._token
        if token.kind != "id":
            raise self._unexpected(what)
        if token.text in KEYWORDS:
            raise self._source.error(
                f"expected {what}, found the keyword {token.text!r}: write %{token.text} to use it as a name", token.at
            )
        self._index += 1
        return Token("id", token.text.removeprefix("%"), token.at, token.docs)

    def _gates(self) -> None:
        while self._is("@"):
            self._next()
            gate = self._name("a feature gate")
            if gate.text not in GATES:
                raise self._source.error(f"unknown feature gate @{gate.text}", gate.at)
            self._expect("(")
            while not self._accept(")"):
                if self._token.kind == "end":
                    raise self._unexpected("')'")
                self._next()

    def _list(self, close: str, item: Callable[[], T]) -> list[T]:
        """Items with commas between them, up to `close`; one may stand behind the last."""
        found: list[T] = []
        while not self._accept(close):
            found.append(item())
            if not self._accept(","):
                self._expect(close, ",")
                break
        return found

    # Files and packages.

    def file(self) -> ParsedFile:
        packages: list[PackageNode] = []
        docs = self._token.docs
        main: PackageNode | None = None
        while self._token.kind != "end":
            if self._is("package"):
                docs = self._token.docs
                package = self._package_head(docs)
                if self._accept("{"):
                    while not self._accept("}"):
                        self._package_item(package)
                    packages.append(package)
                    continue
                self._expect(";")
                if main is not None:
                    raise self._source.error("a text declares its package once", package.at)
                main = package
                packages.insert(0, package)
                continue
            if main is None:
                if packages:
                    raise self._unexpected("'package'")
                raise self._source.error("expected 'package' before anything else", self._token.at)
            self._package_item(main)
        if not packages:
            raise self._source.error("expected 'package namespace:name@version;'", self._token.at)
        return ParsedFile(self._source, packages)

    def _package_head(self, docs: str) -> PackageNode:
        at = self._expect("package").at
        name, version = self._package_name()
        return PackageNode(name, version, self._source, at, docs=docs)

    def _package_name(self) -> tuple[str, str | None]:
        namespace = self._name("a namespace").text
        self._expect(":")
        name = f"{namespace}:{self._name('a package name').text}"
        return name, self._version()

    def _version(self) -> str | None:
        if not self._accept("@"):
            return None
        if self._token.kind != "version":
            raise self._unexpected("a version such as 1.0.0")
        return self._next().text

    def _package_item(self, package: PackageNode) -> None:
        self._gates()
        if self._is("interface"):
            package.interfaces.append(self._interface())
        elif self._is("world"):
            package.worlds.append(self._world())
        elif self._is("use"):
            self._next()
            source = self._interface_ref()
            name = self._name("a name").text if self._accept("as") else source.name
            self._expect(";")
            package.uses[name] = source
        else:
            raise self._unexpected("'interface', 'world' or 'use'")

    def _interface(self) -> InterfaceNode:
        head = self._expect("interface")
        name = self._name("the interface's name")
        return InterfaceNode(name.text, name.at, self._interface_items(), head.docs)

    def _interface_items(self) -> list[Item]:
        self._expect("{")
        items: list[Item] = []
        while not self._accept("}"):
            self._gates()
            if self._is("use"):
                items.append(self._use())
            elif self._token.text in ("record", "variant", "enum", "flags", "type", "resource"):
                items.append(self._type_item())
            else:
                items.append(self._function())
        return items

    def _use(self) -> UseNode:
        self._expect("use")
        source = self._interface_ref()
        self._expect(".")
        self._expect("{")

        def one() -> tuple[str, str, int]:
            name = self._name("a type's name")
            return name.text, self._name("a name").text if self._accept("as") else name.text, name.at

        names = self._list("}", one)
        self._expect(";")
        return UseNode(source, names)

    def _interface_ref(self) -> InterfaceRef:
        first = self._name("an interface")
        if not self._accept(":"):
            return InterfaceRef(None, None, first.text, first.at)
        package = f"{first.text}:{self._name('a package name').text}"
        self._expect("/")
        name = self._name("an interface").text
        return InterfaceRef(package, self._version(), name, first.at)

    # Types.

    def _type_item(self) -> TypeNode:
        kind = self._next().text
        name = self._name(f"the name of the {kind}")
        if kind == "type":
            self._expect("=")
            alias = self._type(0)
            self._expect(";")
            return TypeNode("alias", name.text, name.at, alias=alias)
        if kind == "resource":
            return self._resource(name)
        self._expect("{")

        def one() -> FieldNode:
            self._gates()
            field = self._name(f"a name in the {kind}")
            of: NameRef | None = None
            if kind == "record":
                self._expect(":")
                of = self._type(0)
            elif kind == "variant" and self._accept("("):
                of = self._type(0)
                self._expect(")")
            return FieldNode(field.text, of, field.at)

        fields = self._list("}", one)
        if not fields and kind in ("variant", "enum"):
            raise self._source.error(f"the {kind} {name.text!r} needs at least one case", name.at)
        return TypeNode(kind, name.text, name.at, fields)

    def _resource(self, name: Token) -> TypeNode:
        node = TypeNode("resource", name.text, name.at)
        if self._accept(";"):
            return node
        self._expect("{")
        while not self._accept("}"):
            self._gates()
            if self._is("constructor"):
                head = self._next()
                self._expect("(")
                params = self._list(")", self._param)
                result = self._type(0) if self._accept("->") else None
                self._expect(";")
                node.functions.append(FunctionNode("", params, result, "constructor", head.at, head.docs))
            else:
                node.functions.append(self._function(method=True))
        return node

    def _param(self) -> FieldNode:
        name = self._name("a parameter's name")
        self._expect(":")
        return FieldNode(name.text, self._type(0), name.at)

    def _function(self, method: bool = False) -> FunctionNode:
        name = self._name("a function's name")
        self._expect(":")
        kind = "static" if method and self._accept("static") else "method" if method else "free"
        node = self._signature(name, kind)
        self._expect(";")
        return node

    def _signature(self, name: Token, kind: str) -> FunctionNode:
        self._expect("func")
        self._expect("(")
        params = self._list(")", self._param)
        result = self._type(0) if self._accept("->") else None
        return FunctionNode(name.text, params, result, kind, name.at, name.docs)

    def _type(self, depth: int) -> NameRef:
        token = self._token
        if depth > NESTING:
            raise self._source.error(f"types nest more than {NESTING} deep", token.at)
        if token.text in PRIMITIVES:
            self._next()
            return NameRef(token.text, token.at)
        if token.text not in GENERICS:
            name = self._name("a type")
            return NameRef(name.text, name.at)
        self._next()
        most = GENERICS[token.text]
        if not self._is("<"):
            if token.text == "result":
                return NameRef("result", token.at, [None, None])
            self._expect("<")
        self._expect("<")
        args: list[NameRef | None] = []
        if token.text == "result" and self._accept("_"):
            args.append(None)
            self._expect(",")
            args.append(self._type(depth + 1))
            self._expect(">")
        else:
            args += self._list(">", lambda: self._type(depth + 1))
        if token.text == "result" and len(args) == 1:
            args.append(None)
        if most > 0 and len(args) != most:
            raise self._source.error(f"{token.text} takes {most} types, found {len(args)}", token.at)
        return NameRef(token.text, token.at, args)

    # Worlds.

    def _world(self) -> WorldNode:
        head = self._expect("world")
        name = self._name("the world's name")
        self._expect("{")
        node = WorldNode(name.text, name.at, [], head.docs)
        while not self._accept("}"):
            self._gates()
            if self._is("use"):
                node.items.append(self._use())
            elif self._is("include"):
                node.items.append(self._include())
            elif self._is("import") or self._is("export"):
                node.items.append(self._extern())
            elif self._token.text in ("record", "variant", "enum", "flags", "type", "resource"):
                node.items.append(self._type_item())
            else:
                raise self._unexpected("'import', 'export', 'use', 'include', a type or '}'")
        return node

    def _include(self) -> IncludeNode:
        self._expect("include")
        source = self._interface_ref()
        renamed: list[tuple[str, str]] = []
        if self._accept("with"):
            self._expect("{")

            def one() -> tuple[str, str]:
                name = self._name("a name").text
                self._expect("as")
                return name, self._name("a name").text

            renamed = self._list("}", one)
            self._accept(";")
        else:
            self._expect(";")
        return IncludeNode(source, dict(renamed))

    def _extern(self) -> ExternNode:
        direction = self._next().text
        token = self._token
        following = self._tokens[self._index + 1 : self._index + 3]
        if len(following) == 2 and following[0].text == ":" and following[1].text in ("func", "interface"):
            name = self._name("a name")
            self._expect(":")
            if self._is("func"):
                function = self._signature(name, "free")
                self._expect(";")
                return ExternNode(direction, name.text, function, name.at)
            self._expect("interface")
            inline = InterfaceNode(name.text, name.at, self._interface_items(), token.docs)
            return ExternNode(direction, name.text, inline, name.at)
        ref = self._interface_ref()
        self._expect(";")
        return ExternNode(direction, ref.name, ref, ref.at)
