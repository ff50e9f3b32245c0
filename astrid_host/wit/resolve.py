"""Resolving names: from syntax trees to types that stand on their own.

Aliases are replaced by what they name and `use` by the very object used; a name that is unknown, declared twice or defined by
itself is a `WitError` where it stands. Packages may refer to each other in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from astrid_host.wit.parser import PRIMITIVES
from astrid_host.wit.syntax import (
    ExternNode,
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
    Package,
    Primitive,
    Record,
    Resource,
    ResultOf,
    TupleOf,
    Type,
    Variant,
    World,
)


def resolve(files: Iterable[ParsedFile]) -> Mapping[str, Package]:
    """All packages of these texts, by id.

    Raises:
        WitError: a name cannot be resolved.
    """
    resolver = _Resolver()
    for file in files:
        for package in file.packages:
            resolver.add(package)
    return resolver.packages()


class _Resolver:
    def __init__(self) -> None:
        self._nodes: dict[str, list[PackageNode]] = {}
        self._interfaces: dict[str, Interface] = {}
        self._worlds: dict[str, World] = {}
        self._under_way: list[str] = []

    def add(self, package: PackageNode) -> None:
        self._nodes.setdefault(package.id, []).append(package)

    def packages(self) -> Mapping[str, Package]:
        found = {}
        for name, nodes in sorted(self._nodes.items()):
            interfaces: dict[str, Interface] = {}
            worlds: dict[str, World] = {}
            for node in nodes:
                for interface in node.interfaces:
                    if interface.name in interfaces or interface.name in worlds:
                        raise node.text.error(f"{interface.name!r} is declared twice in {name}", interface.at)
                    interfaces[interface.name] = self._interface(node, interface)
                for world in node.worlds:
                    if world.name in interfaces or world.name in worlds:
                        raise node.text.error(f"{world.name!r} is declared twice in {name}", world.at)
                    worlds[world.name] = self._world(node, world)
            found[name] = Package(name, interfaces, worlds, nodes[0].docs)
        return found

    # Finding interfaces and worlds by name.

    def _package_nodes(self, package: PackageNode, ref: InterfaceRef) -> list[PackageNode]:
        if ref.package is None:
            return self._nodes[package.id]
        wanted = ref.package if ref.version is None else f"{ref.package}@{ref.version}"
        nodes = self._nodes.get(wanted)
        if nodes is None and ref.version is None:
            versions = [name for name in self._nodes if name.startswith(f"{ref.package}@")]
            nodes = self._nodes[versions[0]] if len(versions) == 1 else None
        if nodes is None:
            known = ", ".join(sorted(self._nodes))
            raise package.text.error(f"there is no package {wanted}; there are {known}", ref.at)
        return nodes

    def _find(self, package: PackageNode, ref: InterfaceRef) -> Interface:
        if ref.package is None and ref.name in package.uses:
            ref = package.uses[ref.name]
        for node in self._package_nodes(package, ref):
            for interface in node.interfaces:
                if interface.name == ref.name:
                    return self._interface(node, interface)
        raise package.text.error(f"there is no interface {ref.name!r} in {ref.package or package.id}", ref.at)

    def _interface(self, package: PackageNode, node: InterfaceNode) -> Interface:
        name = interface_id(package, node.name)
        known = self._interfaces.get(name)
        if known is not None:
            return known
        if name in self._under_way:
            raise package.text.error(f"the interface {node.name!r} uses itself, by way of others", node.at)
        self._under_way.append(name)
        made = self._interfaces[name] = self._build_interface(package, node, name)
        self._under_way.pop()
        return made

    def _build_interface(self, package: PackageNode, node: InterfaceNode, name: str) -> Interface:
        scope = _Scope(self, package, name)
        scope.declare(node.items)
        functions: dict[str, Function] = {}
        for item in node.items:
            made: list[tuple[Function, int]] = []
            if isinstance(item, FunctionNode):
                made = [(scope.function(item, None), item.at)]
            elif isinstance(item, TypeNode) and item.kind == "resource":
                resource = cast(Resource, scope.types[item.name])
                made = [(scope.function(function, resource), function.at) for function in item.functions]
            for function, at in made:
                if function.core_name in functions or function.core_name in scope.types:
                    raise package.text.error(f"{function.core_name!r} is declared twice", at)
                functions[function.core_name] = function
        return Interface(name, node.name, scope.types, functions, scope.uses, node.docs)

    # Worlds.

    def _world(self, package: PackageNode, node: WorldNode) -> World:
        name = interface_id(package, node.name)
        known = self._worlds.get(name)
        if known is not None:
            return known
        if name in self._under_way:
            raise package.text.error(f"the world {node.name!r} includes itself, by way of others", node.at)
        self._under_way.append(name)
        scope = _Scope(self, package, name)
        scope.declare([item for item in node.items if isinstance(item, TypeNode | UseNode)])
        imports: dict[str, Interface | Function] = {}
        exports: dict[str, Interface | Function] = {}
        for item in node.items:
            if isinstance(item, IncludeNode):
                self._include(package, item, imports, exports)
            elif isinstance(item, ExternNode):
                key, made = self._extern(package, scope, item, name)
                into = imports if item.direction == "import" else exports
                if key in into:
                    raise package.text.error(f"{key!r} is {item.direction}ed twice", item.at)
                into[key] = made
        made_world = self._worlds[name] = World(node.name, imports, exports, scope.types, node.docs)
        self._under_way.pop()
        return made_world

    def _extern(
        self, package: PackageNode, scope: _Scope, item: ExternNode, world: str
    ) -> tuple[str, Interface | Function]:
        if isinstance(item.of, FunctionNode):
            return item.name, scope.function(item.of, None)
        if isinstance(item.of, InterfaceNode):
            return item.name, self._build_interface(package, item.of, f"{world}#{item.name}")
        found = self._find(package, item.of)
        return found.id, found

    def _include(
        self,
        package: PackageNode,
        item: IncludeNode,
        imports: dict[str, Interface | Function],
        exports: dict[str, Interface | Function],
    ) -> None:
        for node in self._package_nodes(package, item.source):
            for world in node.worlds:
                if world.name == item.source.name:
                    found = self._world(node, world)
                    for into, of in ((imports, found.imports), (exports, found.exports)):
                        into.update({item.renamed.get(key, key): value for key, value in of.items()})
                    return
        where = item.source.package or package.id
        raise package.text.error(f"there is no world {item.source.name!r} in {where}", item.source.at)


class _Scope:
    """The types that names mean in one interface or world."""

    def __init__(self, resolver: _Resolver, package: PackageNode, name: str) -> None:
        self._resolver = resolver
        self._package = package
        self._name = name
        self._nodes: dict[str, TypeNode] = {}
        self._under_way: list[str] = []
        self.types: dict[str, Type | Resource] = {}
        self.uses: dict[str, tuple[str, str]] = {}

    def declare(self, items: Iterable[Item]) -> None:
        used: dict[str, Type | Resource] = {}
        order: list[str] = []
        for item in items:
            if isinstance(item, UseNode):
                source = self._resolver._find(self._package, item.source)
                for name, local, at in item.names:
                    if name not in source.types:
                        raise self._error(f"there is no type {name!r} in {source.id}", at)
                    self._claim(local, at, used)
                    used[local] = source.types[name]
                    self.uses[local] = (source.id, name)
                    order.append(local)
            elif isinstance(item, TypeNode):
                self._claim(item.name, item.at, used)
                self._nodes[item.name] = item
                order.append(item.name)
        self.types = used
        for name in order:
            if name not in self.types:
                self._declared(name)
        self.types = {name: self.types[name] for name in order}

    def _claim(self, name: str, at: int, used: Mapping[str, Any]) -> None:
        if name in used or name in self._nodes:
            raise self._error(f"{name!r} is declared twice", at)

    def _error(self, message: str, at: int) -> Exception:
        return self._package.text.error(message, at)

    def _declared(self, name: str) -> Type | Resource:
        node = self._nodes[name]
        if name in self._under_way:
            raise self._error(f"the type {name!r} is defined by itself", node.at)
        if len(self._under_way) >= 64:
            raise self._error("types refer to each other more than 64 deep", node.at)
        self._under_way.append(name)
        self.types[name] = self._build(node)
        self._under_way.pop()
        return self.types[name]

    def _build(self, node: TypeNode) -> Type | Resource:
        if node.kind == "resource":
            return Resource(self._name, node.name)
        if node.kind == "alias":
            assert node.alias is not None
            named = self._named(node.alias.name) if not node.alias.args else None
            return named if isinstance(named, Resource) else self.type(node.alias)
        seen = set[str]()
        for field in node.fields:
            if field.name in seen:
                raise self._error(f"{field.name!r} stands twice in {node.name!r}", field.at)
            seen.add(field.name)
        if node.kind == "record":
            return Record(node.name, tuple(Field(f.name, self.type(cast(NameRef, f.type))) for f in node.fields))
        if node.kind == "variant":
            cases = tuple(Case(f.name, None if f.type is None else self.type(f.type)) for f in node.fields)
            return Variant(node.name, cases)
        names = tuple(field.name for field in node.fields)
        return Enum(node.name, names) if node.kind == "enum" else Flags(node.name, names)

    def _named(self, name: str) -> Type | Resource | None:
        if name in self.types:
            return self.types[name]
        return self._declared(name) if name in self._nodes else None

    def type(self, ref: NameRef) -> Type:
        """The type that a reference means; a resource's bare name means a handle that owns it."""
        if ref.name in PRIMITIVES and not ref.args:
            return Primitive(cast(Any, ref.name))
        if ref.args or ref.name == "tuple":
            return self._generic(ref)
        found = self._named(ref.name)
        if found is None:
            raise self._error(f"there is no type {ref.name!r}", ref.at)
        return Own(found) if isinstance(found, Resource) else found

    def _generic(self, ref: NameRef) -> Type:
        if ref.name in ("own", "borrow"):
            inner = cast(NameRef, ref.args[0])
            resource = self._named(inner.name)
            if not isinstance(resource, Resource):
                raise self._error(f"{ref.name} takes a resource, and {inner.name!r} is none", inner.at)
            return Own(resource) if ref.name == "own" else Borrow(resource)
        args = [None if arg is None else self.type(arg) for arg in ref.args]
        if ref.name == "result":
            return ResultOf(args[0], args[1])
        if ref.name == "tuple":
            return TupleOf(tuple(cast(Type, arg) for arg in args))
        only = cast(Any, args[0])
        return ListOf(only) if ref.name == "list" else OptionOf(only)

    def function(self, node: FunctionNode, resource: Resource | None) -> Function:
        seen = set[str]()
        for param in node.params:
            if param.name in seen:
                raise self._error(f"the parameter {param.name!r} stands twice", param.at)
            seen.add(param.name)
        params = tuple(Field(param.name, self.type(cast(NameRef, param.type))) for param in node.params)
        result = self.type(node.result) if node.result is not None else None
        kind = cast(Any, node.kind if resource is not None else "free")
        if resource is not None and kind == "method":
            params = (Field("self", Borrow(resource)), *params)
        if resource is not None and kind == "constructor" and result is None:
            result = Own(resource)
        return Function(node.name or "constructor", params, result, kind, resource, node.docs)


def interface_id(package: PackageNode, name: str) -> str:
    """The full name of an interface or world: `astrid:ipc/host@1.0.0`."""
    version = "" if package.version is None else f"@{package.version}"
    return f"{package.name}/{name}{version}"
