"""The syntax tree of a WIT text, before names are resolved. `at` is an offset into the text, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from astrid_host.wit.lexer import Text


class TypeRef(msgspec.Struct, eq=False):
    """A type where it is used: declared somewhere, or built in and then perhaps with arguments.

    `%string` is a declared type, `string` the built-in one. A side of a `result` that carries nothing is None.
    """

    name: str
    at: int
    built_in: bool = False
    args: list[TypeRef | None] = []

    def declared(self) -> Iterator[TypeRef]:
        """The references to declared types in it."""
        if not self.built_in:
            yield self
        for arg in self.args:
            if arg is not None:
                yield from arg.declared()


class FieldNode(msgspec.Struct, eq=False):
    """A field, parameter or typed case; `type` is None for what has none, such as the case of an enum."""

    name: str
    type: TypeRef | None
    at: int


class FunctionNode(msgspec.Struct, eq=False):
    """A function; `kind` is free, constructor, method or static."""

    name: str
    params: list[FieldNode]
    result: TypeRef | None
    kind: str
    at: int
    docs: str


class TypeNode(msgspec.Struct, eq=False):
    """A declared type: `kind` is record, variant, enum, flags, type (an alias) or resource."""

    kind: str
    name: str
    at: int
    fields: list[FieldNode] = []
    alias: TypeRef | None = None
    functions: list[FunctionNode] = []


class Ref(msgspec.Struct, eq=False):
    """An interface or world by name: `package` is None for one of the same package, or such as `astrid:ipc@1.0.0`."""

    package: str | None
    name: str
    at: int


class UseNode(msgspec.Struct, eq=False):
    """`use interface.{a, b as c}`: of each name the name there, the name here and where it stands."""

    source: Ref
    names: list[tuple[str, str, int]]


Item: TypeAlias = TypeNode | UseNode | FunctionNode


class InterfaceNode(msgspec.Struct, eq=False):
    name: str
    at: int
    items: list[Item]
    docs: str

    def refs(self) -> Iterator[Ref]:
        """The interfaces that it uses."""
        return (item.source for item in self.items if isinstance(item, UseNode))


class ExternNode(msgspec.Struct, eq=False):
    """An import or export of a world: a function, an interface written there, or one by name."""

    direction: str
    name: str
    of: FunctionNode | InterfaceNode | Ref
    at: int


class IncludeNode(msgspec.Struct, eq=False):
    """`include world with { a as b }`: of each renamed name the old, the new and where it stands."""

    source: Ref
    renamed: list[tuple[str, str, int]]


class WorldNode(msgspec.Struct, eq=False):
    name: str
    at: int
    items: list[TypeNode | UseNode | ExternNode | IncludeNode]
    docs: str

    def refs(self) -> Iterator[Ref]:
        """The interfaces and worlds that it names."""
        for item in self.items:
            if isinstance(item, UseNode | IncludeNode):
                yield item.source
            elif isinstance(item, ExternNode):
                if isinstance(item.of, Ref):
                    yield item.of
                elif isinstance(item.of, InterfaceNode):
                    yield from item.of.refs()


class PackageNode(msgspec.Struct, eq=False):
    """A package, or the part of one that stands in one text.

    `uses` has the names that `use a:b/c as d;` gives in that text.
    """

    id: str
    text: Text
    at: int
    interfaces: list[InterfaceNode] = []
    worlds: list[WorldNode] = []
    uses: dict[str, Ref] = {}
    docs: str = ""

    def nodes(self) -> Iterator[InterfaceNode | WorldNode]:
        """Its interfaces and worlds."""
        yield from self.interfaces
        yield from self.worlds

    def refs(self) -> Iterator[Ref]:
        """All interfaces and worlds that it names."""
        yield from self.uses.values()
        for node in self.nodes():
            yield from node.refs()


class ParsedFile(msgspec.Struct, eq=False):
    """What stands in one text: its own package first, then those written in braces."""

    text: Text
    packages: list[PackageNode]
