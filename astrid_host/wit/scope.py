"""What type names mean in one interface or world.

Aliases are replaced by what they name and `use` by the very object used. A name that is unknown, declared twice or defined
by itself is a `WitError` where it stands. (Component model, "WIT.md", "Types".)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from astrid_host.errors import WitError
from astrid_host.wit.cursor import PRIMITIVES
from astrid_host.wit.lexer import Text
from astrid_host.wit.order import settle
from astrid_host.wit.sizes import Sizes
from astrid_host.wit.syntax import FieldNode, FunctionNode, TypeNode, TypeRef, UseNode
from astrid_host.wit.types import (
    Borrow,
    Case,
    Enum,
    Field,
    Flags,
    Function,
    Interface,
    ListOf,
    OptionOf,
    Own,
    Primitive,
    Record,
    Resource,
    ResultOf,
    TupleOf,
    Type,
    Variant,
)

_PRIMITIVES = {name: Primitive(cast(Any, name)) for name in PRIMITIVES}


class Names:
    """The names given in one place: each once, and no two that differ in case only."""

    def __init__(self, text: Text, where: str) -> None:
        self._text = text
        self._where = where
        self._taken: set[str] = set()

    def claim(self, name: str, at: int) -> None:
        """Take a name.

        Raises:
            WitError: it is taken.
        """
        key = name.lower()
        if key in self._taken:
            raise self._text.error(f"{name!r} is declared twice in {self._where}", at)
        self._taken.add(key)


class Scope:
    """The types that names mean in one interface or world.

    Args:
        text: where it stands, for messages.
        name: its full name, under which its resources are known.
        sizes: of all types, shared between scopes.
    """

    def __init__(self, text: Text, name: str, sizes: Sizes) -> None:
        self._text = text
        self._name = name
        self._sizes = sizes
        self._nodes: dict[str, TypeNode] = {}
        self._meant: dict[str, Type | Resource] = {}
        self.names = Names(text, name)
        self.types: dict[str, Type | Resource] = {}
        self.uses: dict[str, tuple[str, str]] = {}

    def declare(self, items: Iterable[TypeNode | UseNode], interfaces: Mapping[int, Interface]) -> None:
        """Take in all types that are declared or used.

        Args:
            interfaces: those used, by the offset of the reference to them.

        Raises:
            WitError: a name is unknown, declared twice or defined by itself, or a type is too large.
        """
        order: list[str] = []
        for item in items:
            if isinstance(item, UseNode):
                order += self._use(item, interfaces[item.source.at])
            else:
                self.names.claim(item.name, item.at)
                self._nodes[item.name] = item
                order.append(item.name)
        for name in order:
            settle(name, self._needs, self._meant, self._make, self._circle)
        self.types = {name: self._meant[name] for name in order}

    def _use(self, item: UseNode, source: Interface) -> Iterator[str]:
        for name, local, at in item.names:
            if name not in source.types:
                known = ", ".join(source.types) or "none"
                raise self._text.error(f"there is no type {name!r} in {source.id}; its types: {known}", at)
            self.names.claim(local, at)
            self._meant[local] = source.types[name]
            self.uses[local] = (source.id, name)
            yield local

    def _needs(self, name: str) -> Iterator[tuple[str, int]]:
        node = self._nodes[name]
        for ref in (node.alias, *(field.type for field in node.fields)):
            for declared in ref.declared() if ref is not None else ():
                if declared.name not in self._meant and declared.name not in self._nodes:
                    raise self._unknown(declared)
                yield declared.name, declared.at

    def _circle(self, name: str, needed: str, at: int) -> WitError:
        by = "itself" if name == needed else f"itself, by way of {name!r}"
        return self._text.error(f"the type {needed!r} is defined by {by}", at)

    def _unknown(self, ref: TypeRef) -> WitError:
        return self._text.error(f"there is no type {ref.name!r} here: declare it or 'use' it", ref.at)

    def _make(self, name: str) -> None:
        node = self._nodes[name]
        made = self._build(node)
        if not isinstance(made, Resource):
            self._check_size(made, node.at)
        self._meant[name] = made

    def _check_size(self, made: Type, at: int) -> None:
        problem = self._sizes.problem(made)
        if problem is not None:
            raise self._text.error(problem, at)

    def _build(self, node: TypeNode) -> Type | Resource:
        if node.kind == "resource":
            return Resource(self._name, node.name)
        if node.alias is not None:
            meant = None if node.alias.built_in else self._meant[node.alias.name]
            return meant if isinstance(meant, Resource) else self.type(node.alias)
        names = Names(self._text, node.name)
        for field in node.fields:
            names.claim(field.name, field.at)
        if node.kind == "record":
            return Record(node.name, self._fields(node.fields))
        if node.kind == "variant":
            cases = tuple(Case(case.name, None if case.type is None else self.type(case.type)) for case in node.fields)
            return Variant(node.name, cases)
        words = tuple(field.name for field in node.fields)
        return Enum(node.name, words) if node.kind == "enum" else Flags(node.name, words)

    def _fields(self, nodes: Iterable[FieldNode]) -> tuple[Field, ...]:
        return tuple(Field(node.name, self.type(cast(TypeRef, node.type))) for node in nodes)

    def type(self, ref: TypeRef) -> Type:
        """The type that a reference means; a resource's bare name means a handle that owns it.

        Raises:
            WitError: a name in it is unknown.
        """
        if not ref.built_in:
            meant = self._meant.get(ref.name)
            if meant is None:
                raise self._unknown(ref)
            return Own(meant) if isinstance(meant, Resource) else meant
        if not ref.args:
            return _PRIMITIVES[ref.name]
        if ref.name in ("own", "borrow"):
            resource = self._resource(ref.name, cast(TypeRef, ref.args[0]))
            return Own(resource) if ref.name == "own" else Borrow(resource)
        args = [None if arg is None else self.type(arg) for arg in ref.args]
        if ref.name == "result":
            return ResultOf(args[0], args[1])
        of = cast(tuple[Type, ...], tuple(args))
        if ref.name == "tuple":
            return TupleOf(of)
        return ListOf(of[0]) if ref.name == "list" else OptionOf(of[0])

    def _resource(self, handle: str, ref: TypeRef) -> Resource:
        meant = self._meant.get(ref.name)
        if meant is None:
            raise self._unknown(ref)
        if not isinstance(meant, Resource):
            raise self._text.error(f"{handle} takes a resource, and {ref.name!r} is none", ref.at)
        return meant

    def function(self, node: FunctionNode, resource: Resource | None = None) -> Function:
        """A function, of a resource or free.

        Raises:
            WitError: a name is unknown or stands twice, a type is too large, or a result is none that there may be.
        """
        names = Names(self._text, node.name)
        first: tuple[Field, ...] = ()
        if resource is not None and node.kind == "method":
            names.claim("self", node.at)
            first = (Field("self", Borrow(resource)),)
        for param in node.params:
            names.claim(param.name, param.at)
        params = first + self._fields(node.params)
        for field, param in zip(params[len(first) :], node.params, strict=True):
            self._check_size(field.type, cast(TypeRef, param.type).at)
        return Function(node.name, params, self._result(node, resource), cast(Any, node.kind), resource, node.docs)

    def _result(self, node: FunctionNode, resource: Resource | None) -> Type | None:
        if node.result is None:
            return Own(resource) if resource is not None and node.kind == "constructor" else None
        result = self.type(node.result)
        self._check_size(result, node.result.at)
        if self._sizes.of(result).borrows:
            raise self._text.error("expected a result without borrowed handles: they end with the call", node.result.at)
        if resource is not None and node.kind == "constructor":
            made = result.ok if isinstance(result, ResultOf) else result
            if made != Own(resource):
                wanted = f"{resource.name} or result<{resource.name}, …>"
                raise self._text.error(f"expected a constructor to return {wanted}", node.result.at)
        return result
