"""The syntax tree of a WIT text, before names are resolved. `at` is an offset into the text, for messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from astrid_host.wit.lexer import Text


@dataclass(slots=True)
class NameRef:
    """A type by name, or a built-in with arguments: `list<u8>` is `list` with one; `_` in a result is None."""

    name: str
    at: int
    args: list[NameRef | None] = field(default_factory=list)


@dataclass(slots=True)
class FieldNode:
    name: str
    type: NameRef | None
    at: int


@dataclass(slots=True)
class FunctionNode:
    name: str
    params: list[FieldNode]
    result: NameRef | None
    kind: str
    at: int
    docs: str


@dataclass(slots=True)
class TypeNode:
    """A declared type: `kind` is record, variant, enum, flags, alias or resource."""

    kind: str
    name: str
    at: int
    fields: list[FieldNode] = field(default_factory=list)
    alias: NameRef | None = None
    functions: list[FunctionNode] = field(default_factory=list)


@dataclass(slots=True)
class InterfaceRef:
    """An interface by name: `package` is None for one of the same package, or `ns:name` with a version or without."""

    package: str | None
    version: str | None
    name: str
    at: int


@dataclass(slots=True)
class UseNode:
    """`use interface.{a, b as c}`."""

    source: InterfaceRef
    names: list[tuple[str, str, int]]


Item: TypeAlias = TypeNode | UseNode | FunctionNode


@dataclass(slots=True)
class InterfaceNode:
    name: str
    at: int
    items: list[Item]
    docs: str


@dataclass(slots=True)
class ExternNode:
    """An import or export of a world: a function, an interface written there, or one by name."""

    direction: str
    name: str
    of: FunctionNode | InterfaceNode | InterfaceRef
    at: int


@dataclass(slots=True)
class IncludeNode:
    source: InterfaceRef
    renamed: dict[str, str]


@dataclass(slots=True)
class WorldNode:
    name: str
    at: int
    items: list[TypeNode | UseNode | ExternNode | IncludeNode]
    docs: str


@dataclass(slots=True)
class PackageNode:
    """A package, or the part of one that stands in one text."""

    name: str
    version: str | None
    text: Text
    at: int
    interfaces: list[InterfaceNode] = field(default_factory=list)
    worlds: list[WorldNode] = field(default_factory=list)
    uses: dict[str, InterfaceRef] = field(default_factory=dict)
    docs: str = ""

    @property
    def id(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


@dataclass(slots=True)
class ParsedFile:
    """What stands in one text."""

    text: Text
    packages: list[PackageNode]
