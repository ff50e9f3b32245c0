"""Resolving names between interfaces, worlds and packages, which may refer to each other in any order.

A name that is unknown or declared twice, and an interface or world that uses itself, are a `WitError` where they stand.
(Component model, "WIT.md", "Packages" and "Worlds".)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from msgspec.structs import replace

from astrid_host.errors import WitError
from astrid_host.wit.order import settle
from astrid_host.wit.scope import Names, Scope
from astrid_host.wit.sizes import Sizes
from astrid_host.wit.syntax import (
    ExternNode,
    FunctionNode,
    IncludeNode,
    InterfaceNode,
    PackageNode,
    ParsedFile,
    Ref,
    TypeNode,
    UseNode,
    WorldNode,
)
from astrid_host.wit.types import Function, Interface, Package, Resource, World

Externs = dict[str, Interface | Function]


def resolve(files: Iterable[ParsedFile]) -> Mapping[str, Package]:
    """All packages of these texts, by id, sorted.

    Args:
        files: in any order; a package may be spread over several.

    Raises:
        WitError: a name cannot be resolved.
    """
    resolver = Resolver()
    for file in files:
        resolver.add(file)
    return {package: resolver.package(package) for package in resolver.ids()}


class Resolver:
    """Resolves what is asked for, each thing once. It stays usable after an error."""

    def __init__(self) -> None:
        self._parts: dict[str, list[PackageNode]] = {}
        self._taken: set[str] = set()
        self._nodes: dict[str, tuple[PackageNode, InterfaceNode | WorldNode]] = {}
        self._done: dict[str, Interface | World] = {}
        self._packages: dict[str, Package] = {}
        self._sizes = Sizes()

    def add(self, file: ParsedFile) -> None:
        """Take in a text.

        Raises:
            WitError: it declares something that is declared already; nothing more of it is taken in then.
        """
        added: dict[str, tuple[PackageNode, InterfaceNode | WorldNode]] = {}
        taken: set[str] = set()
        for part in file.packages:
            for node in part.nodes():
                name = full_name(part.id, node.name)
                if name.lower() in self._taken or name.lower() in taken:
                    raise part.text.error(f"{node.name!r} is declared twice in {part.id}", node.at)
                if node.name in part.uses:
                    raise part.text.error(f"{node.name!r} is declared here and used from elsewhere", node.at)
                taken.add(name.lower())
                added[name] = (part, node)
        for part in file.packages:
            self._parts.setdefault(part.id, []).append(part)
        self._nodes.update(added)
        self._taken |= taken

    def ids(self) -> list[str]:
        """The ids of all packages, sorted."""
        return sorted(self._parts)

    def interface(self, name: str) -> Interface | None:
        """The interface of that full name, or None.

        Raises:
            WitError: a name in it cannot be resolved.
        """
        known = self._nodes.get(name)
        return self._interface(name) if known is not None and isinstance(known[1], InterfaceNode) else None

    def package(self, name: str) -> Package:
        """The package of that id.

        Raises:
            KeyError: no text has it.
            WitError: a name in it cannot be resolved.
        """
        if name not in self._packages:
            parts = self._parts[name]
            for part in parts:
                for ref in part.uses.values():
                    self._find(part, ref)
            interfaces = {
                node.name: self._interface(full_name(name, node.name)) for p in parts for node in p.interfaces
            }
            worlds = {node.name: self._world(full_name(name, node.name)) for p in parts for node in p.worlds}
            docs = "\n".join(part.docs for part in parts if part.docs)
            self._packages[name] = Package(name, interfaces, worlds, docs)
        return self._packages[name]

    def _interface(self, name: str) -> Interface:
        self._settle(name)
        return cast(Interface, self._done[name])

    def _world(self, name: str) -> World:
        self._settle(name)
        return cast(World, self._done[name])

    # Finding what a reference means.

    def _find(self, part: PackageNode, ref: Ref, wanted: type[InterfaceNode] | type[WorldNode] | None = None) -> str:
        """The full name of what a reference means: an interface, a world, or either."""
        kind = {InterfaceNode: "interface", WorldNode: "world", None: "interface or world"}[wanted]
        meant = part.uses.get(ref.name, ref) if ref.package is None else ref
        package = part.id if meant.package is None else meant.package
        if package not in self._parts:
            versions = [name for name in self.ids() if name.split("@")[0] == package.split("@")[0]]
            known = ", ".join(versions or self.ids())
            raise part.text.error(f"there is no package {package!r}; there are {known}", ref.at)
        name = full_name(package, meant.name)
        found = self._nodes.get(name)
        if found is None or (wanted is not None and not isinstance(found[1], wanted)):
            raise part.text.error(f"there is no {kind} {meant.name!r} in {package}", ref.at)
        return name

    def _settle(self, name: str) -> None:
        settle(name, self._needs, self._done, self._make, self._circle)

    def _needs(self, name: str) -> Iterator[tuple[str, int]]:
        part, node = self._nodes[name]
        included = {id(item.source) for item in node.items if isinstance(item, IncludeNode)}
        for ref in node.refs():
            yield self._find(part, ref, WorldNode if id(ref) in included else InterfaceNode), ref.at

    def _circle(self, name: str, needed: str, at: int) -> WitError:
        by = "" if name == needed else f", by way of {name}"
        return self._nodes[name][0].text.error(f"{needed} uses itself{by}", at)

    def _make(self, name: str) -> None:
        part, node = self._nodes[name]
        self._done[name] = (
            self._make_interface(part, node, name)
            if isinstance(node, InterfaceNode)
            else self._make_world(part, node, name)
        )

    def _scope(self, part: PackageNode, node: InterfaceNode | WorldNode, name: str) -> Scope:
        scope = Scope(part.text, name, self._sizes)
        uses = [item.source for item in node.items if isinstance(item, UseNode)]
        used = {ref.at: cast(Interface, self._done[self._find(part, ref, InterfaceNode)]) for ref in uses}
        scope.declare([item for item in node.items if isinstance(item, TypeNode | UseNode)], used)
        return scope

    def _make_interface(self, part: PackageNode, node: InterfaceNode, name: str) -> Interface:
        scope = self._scope(part, node, name)
        made: list[Function] = []
        for item in node.items:
            if isinstance(item, FunctionNode):
                scope.names.claim(item.name, item.at)
                made.append(scope.function(item))
            elif isinstance(item, TypeNode) and item.kind == "resource":
                names = Names(part.text, item.name)
                for function in item.functions:
                    # Methods and statics share names; a method may even be named %constructor.
                    names.claim("[constructor]" if function.kind == "constructor" else function.name, function.at)
                    made.append(scope.function(function, cast(Resource, scope.types[item.name])))
        functions = {function.core_name: function for function in made}
        return Interface(name, node.name, scope.types, functions, scope.uses, node.docs)

    # Worlds.

    def _make_world(self, part: PackageNode, node: WorldNode, name: str) -> World:
        scope = self._scope(part, node, name)
        sides: dict[str, Externs] = {"import": {}, "export": {}}
        for item in node.items:
            if isinstance(item, ExternNode):
                key, made = self._extern(part, scope, item, name)
                if key in sides[item.direction] or (item.direction == "import" and key in scope.types):
                    raise part.text.error(f"{key!r} is declared twice in {name}", item.at)
                sides[item.direction][key] = made
        for item in node.items:
            if isinstance(item, IncludeNode):
                self._include(part, item, sides)
        return World(node.name, sides["import"], sides["export"], scope.types, node.docs)

    def _extern(
        self, part: PackageNode, scope: Scope, item: ExternNode, world: str
    ) -> tuple[str, Interface | Function]:
        if isinstance(item.of, FunctionNode):
            return item.name, scope.function(item.of)
        if isinstance(item.of, InterfaceNode):
            return item.name, self._make_interface(part, item.of, f"{world}#{item.name}")
        found = self._find(part, item.of, InterfaceNode)
        return found, cast(Interface, self._done[found])

    def _include(self, part: PackageNode, item: IncludeNode, sides: Mapping[str, Externs]) -> None:
        world = cast(World, self._done[self._find(part, item.source, WorldNode)])
        renamed: dict[str, str] = {}
        for old, new, at in item.renamed:
            if old in renamed or (old not in world.imports and old not in world.exports):
                what = "renamed twice" if old in renamed else f"no import or export of {world.name}"
                raise part.text.error(f"{old!r} is {what}", at)
            renamed[old] = new
        for into, found in ((sides["import"], world.imports), (sides["export"], world.exports)):
            for key, extern in found.items():
                name = renamed.get(key, key)
                made = replace(extern, name=name) if isinstance(extern, Function) else extern
                if into.setdefault(name, made) != made:
                    message = f"{name!r} of {world.name} is declared here already: rename it, 'with {{ {key} as … }}'"
                    raise part.text.error(message, item.source.at)


def full_name(package: str, name: str) -> str:
    """The full name of an interface or world: `astrid:ipc/host@1.0.0`."""
    plain, at, version = package.partition("@")
    return f"{plain}/{name}{at}{version}"
