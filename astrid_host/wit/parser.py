"""Parsing WIT. Every mistake is a `WitError` at the token where it shows, with what was expected there.

Feature gates (`@since`, `@unstable`, `@deprecated`) are read and left out. Asynchronous functions and types are refused:
no capsule interface has any. (Component model, "WIT.md".)
"""

from __future__ import annotations

from pathlib import Path

from astrid_host.wit.cursor import ASYNCHRONOUS, GENERICS, PRIMITIVES, Cursor
from astrid_host.wit.lexer import Text, Token
from astrid_host.wit.sizes import DEEPEST
from astrid_host.wit.syntax import (
    ExternNode,
    FieldNode,
    FunctionNode,
    IncludeNode,
    InterfaceNode,
    Item,
    PackageNode,
    ParsedFile,
    Ref,
    TypeNode,
    TypeRef,
    UseNode,
    WorldNode,
)

DECLARATIONS = frozenset(("record", "variant", "enum", "flags", "type", "resource"))


def parse(text: str, file: Path | None = None) -> ParsedFile:
    """Parse one WIT text.

    Args:
        file: named in messages.

    Raises:
        WitError: it cannot be read.
    """
    return _Parser(Text(text, file)).file()


class _Types(Cursor):
    """Types, functions and the items of an interface."""

    def _type(self, depth: int = 1) -> TypeRef:
        token = self._tokens[self._index]
        if depth > DEEPEST:
            raise self.source.error(f"types nest deeper than {DEEPEST} here", token.at)
        if token.text in PRIMITIVES:
            self._index += 1
            return TypeRef(token.text, token.at, built_in=True)
        if token.text in ASYNCHRONOUS:
            raise self.source.error(f"expected a type, found {token.text!r}: capsules have no such types", token.at)
        if token.text in GENERICS:
            self._index += 1
            return TypeRef(token.text, token.at, True, self._arguments(token, depth + 1))
        name = self.name("a type")
        return TypeRef(name.text, name.at)

    def _arguments(self, of: Token, depth: int) -> list[TypeRef | None]:
        """What stands in the angles of a built-in type: for a result both sides, the left one first."""
        if of.text == "result":
            if not self.accept("<"):
                return [None, None]
            ok = None if self.accept("_") else self._type(depth)
            if ok is None:
                self.expect(",")
            elif not self.accept(","):
                self.expect(",", ">")
                return [ok, None]
            err = self._type(depth)
            self.expect(">")
            return [ok, err]
        self.expect("<")
        if of.text == "tuple":
            items: list[TypeRef | None] = list(self.separated(">", lambda: self._type(depth)))
            if not items:
                raise self.source.error("a tuple needs at least one type", of.at)
            return items
        only = self._handled(of.text) if of.text in ("own", "borrow") else self._type(depth)
        self.expect(">")
        return [only]

    def _handled(self, handle: str) -> TypeRef:
        name = self.name(f"the resource that {handle} is of")
        return TypeRef(name.text, name.at)

    def _field(self, what: str) -> FieldNode:
        name = self.name(what)
        self.expect(":")
        return FieldNode(name.text, self._type(), name.at)

    def _param(self) -> FieldNode:
        return self._field("a parameter's name")

    def _case(self) -> FieldNode:
        name = self.name("a case of the variant")
        of: TypeRef | None = None
        if self.accept("("):
            of = self._type()
            self.expect(")")
        return FieldNode(name.text, of, name.at)

    def _declaration(self) -> TypeNode:
        kind = self.next().text
        name = self.name(f"the name of the {kind}")
        if kind == "type":
            self.expect("=")
            alias = self._type()
            self.expect(";")
            return TypeNode(kind, name.text, name.at, alias=alias)
        if kind == "resource":
            return TypeNode(kind, name.text, name.at, functions=self._methods())
        self.expect("{")
        if kind == "record":
            fields = self.separated("}", lambda: self._field("a field of the record"))
        elif kind == "variant":
            fields = self.separated("}", self._case)
        else:
            words = self.separated("}", lambda: self.name("a flag" if kind == "flags" else "a case of the enum"))
            fields = [FieldNode(word.text, None, word.at) for word in words]
        if not fields:
            part = {"record": "field", "flags": "flag"}.get(kind, "case")
            raise self.source.error(f"the {kind} {name.text!r} needs at least one {part}", name.at)
        if kind == "flags" and len(fields) > 32:
            raise self.source.error(f"{name.text!r} has {len(fields)} flags, 32 are allowed", fields[32].at)
        return TypeNode(kind, name.text, name.at, fields)

    def _methods(self) -> list[FunctionNode]:
        found: list[FunctionNode] = []
        if self.accept(";"):
            return found
        self.expect("{", ";")
        while not self.accept("}"):
            docs = self.gates()
            if self.stands("constructor"):
                head = self.next()
                params, result = self._signature()
                found.append(FunctionNode("constructor", params, result, "constructor", head.at, docs))
                continue
            name = self.name("a method, 'constructor' or '}'")
            self.expect(":")
            kind = "static" if self.accept("static") else "method"
            found.append(self._function(name, kind, docs))
        return found

    def _function(self, name: Token, kind: str, docs: str) -> FunctionNode:
        if self.stands("async"):
            raise self.source.error("expected 'func', found 'async': capsules have no such functions", self.token.at)
        self.expect("func")
        params, result = self._signature()
        return FunctionNode(name.text, params, result, kind, name.at, docs)

    def _signature(self) -> tuple[list[FieldNode], TypeRef | None]:
        self.expect("(")
        params = self.separated(")", self._param)
        result = self._type() if self.accept("->") else None
        self.expect(";") if result is not None else self.expect("->", ";")
        return params, result

    def _interface_items(self) -> list[Item]:
        self.expect("{")
        items: list[Item] = []
        while not self.accept("}"):
            docs = self.gates()
            if self.stands("use"):
                items.append(self._use())
            elif self.token.text in DECLARATIONS:
                items.append(self._declaration())
            else:
                name = self.name("a function, a type, 'use' or '}'")
                self.expect(":")
                items.append(self._function(name, "free", docs))
        return items

    # Names of other packages.

    def _package_name(self) -> str:
        namespace = self.name("a namespace").text
        self.expect(":")
        return f"{namespace}:{self.name('a package name').text}"

    def _version(self) -> str:
        """`@1.0.0`, or nothing."""
        if not self.accept("@"):
            return ""
        if self.token.kind != "version":
            raise self.unexpected("a version such as 1.0.0")
        return f"@{self.next().text}"

    def _ref(self, what: str) -> Ref:
        first = self.token
        if first.kind == "id" and self._tokens[self._index + 1].text == ":":
            package = self._package_name()
            self.expect("/")
            name = self.name(what).text
            return Ref(package + self._version(), name, first.at)
        return Ref(None, self.name(what).text, first.at)

    def _use(self) -> UseNode:
        self.expect("use")
        source = self._ref("an interface")
        self.expect(".")
        self.expect("{")

        def one() -> tuple[str, str, int]:
            name = self.name("a type's name")
            return name.text, self.name("a name").text if self.accept("as") else name.text, name.at

        names = self.separated("}", one)
        if not names:
            raise self.source.error("expected at least one type to use", source.at)
        self.expect(";")
        return UseNode(source, names)


class _Parser(_Types):
    """Files, packages and worlds."""

    def file(self) -> ParsedFile:
        packages: list[PackageNode] = []
        if not self.stands("package"):
            raise self.unexpected("'package namespace:name@version;' before everything else")
        own: PackageNode | None = None
        while self.token.kind != "end":
            if self.stands("package"):
                package = self._package_head()
                if self.expect(";", "{").text == "{":
                    while not self.accept("}"):
                        self._package_item(package)
                elif packages:
                    raise self.source.error("expected a text to name its package once and first", package.at)
                else:
                    own = package
                packages.append(package)
            elif own is None:
                raise self.unexpected("'package'")
            else:
                self._package_item(own)
        return ParsedFile(self.source, packages)

    def _package_head(self) -> PackageNode:
        head = self.expect("package")
        name = self._package_name()
        return PackageNode(name + self._version(), self.source, head.at, docs=head.docs)

    def _package_item(self, package: PackageNode) -> None:
        docs = self.gates()
        if self.accept("interface"):
            name = self.name("the interface's name")
            package.interfaces.append(InterfaceNode(name.text, name.at, self._interface_items(), docs))
        elif self.accept("world"):
            package.worlds.append(self._world(docs))
        elif self.accept("use"):
            source = self._ref("an interface")
            name = self.name("a name") if self.accept("as") else Token("id", source.name, source.at)
            self.expect(";")
            if name.text in package.uses:
                raise self.source.error(f"{name.text!r} is used twice", name.at)
            package.uses[name.text] = source
        else:
            raise self.unexpected("'interface', 'world', 'use' or 'package'")

    def _world(self, docs: str) -> WorldNode:
        name = self.name("the world's name")
        self.expect("{")
        node = WorldNode(name.text, name.at, [], docs)
        while not self.accept("}"):
            docs = self.gates()
            if self.stands("use"):
                node.items.append(self._use())
            elif self.stands("include"):
                node.items.append(self._include())
            elif self.stands("import") or self.stands("export"):
                node.items.append(self._extern(docs))
            elif self.token.text in DECLARATIONS:
                node.items.append(self._declaration())
            else:
                raise self.unexpected("'import', 'export', 'use', 'include', a type or '}'")
        return node

    def _include(self) -> IncludeNode:
        self.expect("include")
        source = self._ref("a world")
        if not self.accept("with"):
            self.expect(";", "with")
            return IncludeNode(source, [])
        self.expect("{")

        def one() -> tuple[str, str, int]:
            name = self.name("the name of an import or export")
            self.expect("as")
            return name.text, self.name("a name").text, name.at

        renamed = self.separated("}", one)
        self.accept(";")
        return IncludeNode(source, renamed)

    def _extern(self, docs: str) -> ExternNode:
        direction = self.next().text
        after = [token.text for token in self._tokens[self._index + 1 : self._index + 3]]
        if after not in ([":", "func"], [":", "async"], [":", "interface"]):
            ref = self._ref("a name or an interface")
            self.expect(";")
            return ExternNode(direction, ref.name, ref, ref.at)
        name = self.name("a name")
        self.expect(":")
        if self.accept("interface"):
            inline = InterfaceNode(name.text, name.at, self._interface_items(), docs)
            return ExternNode(direction, name.text, inline, name.at)
        return ExternNode(direction, name.text, self._function(name, "free", docs), name.at)
