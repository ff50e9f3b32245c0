"""The types of WIT, resolved: aliases are replaced by what they name, `use` by the very object that it names.

Everything is immutable and compares by structure. `str()` of a type is its WIT spelling, with named types by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

PrimitiveName: TypeAlias = Literal[
    "bool", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64", "char", "string"
]


class Primitive(msgspec.Struct, frozen=True):
    """A type that needs no declaration; strings among them."""

    name: PrimitiveName

    def __str__(self) -> str:
        return self.name


class ListOf(msgspec.Struct, frozen=True):
    element: Type

    def __str__(self) -> str:
        return f"list<{self.element}>"


class OptionOf(msgspec.Struct, frozen=True):
    some: Type

    def __str__(self) -> str:
        return f"option<{self.some}>"


class ResultOf(msgspec.Struct, frozen=True):
    ok: Type | None
    err: Type | None

    def __str__(self) -> str:
        if self.err is None:
            return "result" if self.ok is None else f"result<{self.ok}>"
        return f"result<{'_' if self.ok is None else self.ok}, {self.err}>"


class TupleOf(msgspec.Struct, frozen=True):
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.items))}>"


class Field(msgspec.Struct, frozen=True):
    """One field of a record, or one parameter of a function."""

    name: str
    type: Type


class Record(msgspec.Struct, frozen=True):
    name: str
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return self.name


class Case(msgspec.Struct, frozen=True):
    """One case of a variant; `type` is None for a case without payload."""

    name: str
    type: Type | None


class Variant(msgspec.Struct, frozen=True):
    name: str
    cases: tuple[Case, ...]

    def __str__(self) -> str:
        return self.name


class Enum(msgspec.Struct, frozen=True):
    name: str
    cases: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


class Flags(msgspec.Struct, frozen=True):
    name: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


class Resource(msgspec.Struct, frozen=True):
    """A resource type: identified by the interface that declares it (`astrid:ipc/host@1.0.0`) and its name."""

    interface: str
    name: str

    def __str__(self) -> str:
        return self.name


class Own(msgspec.Struct, frozen=True):
    """A handle that carries ownership. In WIT a resource's bare name means this."""

    resource: Resource

    def __str__(self) -> str:
        return self.resource.name


class Borrow(msgspec.Struct, frozen=True):
    """A handle that is lent for the length of one call."""

    resource: Resource

    def __str__(self) -> str:
        return f"borrow<{self.resource.name}>"


Type: TypeAlias = Primitive | ListOf | OptionOf | ResultOf | TupleOf | Record | Variant | Enum | Flags | Own | Borrow
FunctionKind: TypeAlias = Literal["free", "constructor", "method", "static"]


class Function(msgspec.Struct, frozen=True):
    """A function of an interface or world.

    `params` of a method begin with `self: borrow<resource>`; a constructor's `result` is `own<resource>`.
    """

    name: str
    params: tuple[Field, ...]
    result: Type | None
    kind: FunctionKind = "free"
    resource: Resource | None = None
    docs: str = ""

    @property
    def core_name(self) -> str:
        """The name under which a core module imports it, such as `[method]subscription.recv`."""
        if self.kind == "free" or self.resource is None:
            return self.name
        if self.kind == "constructor":
            return f"[constructor]{self.resource.name}"
        return f"[{self.kind}]{self.resource.name}.{self.name}"


class Interface(msgspec.Struct, frozen=True):
    """An interface; `id` is its full name, such as `astrid:ipc/host@1.0.0`.

    `types` has every type by its local name, used ones and aliases included, in order of declaration; `uses` maps a local
    name to the (interface id, name) it came from. `functions` has every function by core name.
    """

    id: str
    name: str
    types: Mapping[str, Type | Resource]
    functions: Mapping[str, Function]
    uses: Mapping[str, tuple[str, str]] = {}
    docs: str = ""


class World(msgspec.Struct, frozen=True):
    """A world: imported and exported interfaces by id, and functions by name."""

    name: str
    imports: Mapping[str, Interface | Function]
    exports: Mapping[str, Interface | Function]
    types: Mapping[str, Type | Resource] = {}
    docs: str = ""


class Package(msgspec.Struct, frozen=True):
    """A package; `id` is `astrid:ipc@1.0.0`."""

    id: str
    interfaces: Mapping[str, Interface]
    worlds: Mapping[str, World]
    docs: str = ""
