"""The project's WIT files declare the host ABI: every name, type and order of the table beside this file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from astrid_host.bundled import wit_folder
from astrid_host.wit import Enum, Field, Function, Interface, Package, Record, Resource, Type, Variant, load_packages

TABLE: dict[str, Any] = {
    entry["package"]: entry for entry in json.loads((Path(__file__).parent / "host-abi.json").read_text())
}
PACKAGES: Mapping[str, Package] = load_packages(wit_folder())
INTERFACES = [(package, name) for package, entry in TABLE.items() for name in entry["interfaces"]]


def name(text: str) -> str:
    """A name without the sign that escapes it in WIT."""
    return text.removeprefix("%")


def spelled(fields: tuple[Field, ...]) -> list[list[str]]:
    return [[field.name, str(field.type)] for field in fields]


def shape(declared: Type | Resource, interface: Interface) -> object:
    """A declared type in the words of the table."""
    if isinstance(declared, Record):
        return {"record": spelled(declared.fields)}
    if isinstance(declared, Variant):
        return {"variant": [[case.name, None if case.type is None else str(case.type)] for case in declared.cases]}
    if isinstance(declared, Enum):
        return {"enum": list(declared.cases)}
    if isinstance(declared, Resource):
        methods = [function for function in interface.functions.values() if function.resource == declared]
        return {"resource": {method.name: signature(method) for method in methods}}
    return {"alias": str(declared)}


def signature(function: Function) -> object:
    params = function.params
    if function.kind == "method":
        assert function.resource is not None
        assert str(params[0].type) == f"borrow<{function.resource.name}>"
        params = params[1:]
    return {"params": spelled(params), "result": None if function.result is None else str(function.result)}


def expected(entry: Any) -> Any:
    """An interface of the table as resolving changes it: aliases by what they name, and no escapes."""
    text = json.dumps(entry).replace('"%', '"')
    for alias, declared in entry["types"].items():
        if "alias" in declared:
            text = re.sub(rf'(?<=[<" ]){alias}(?=[>",])(?!": )', declared["alias"], text)
    return json.loads(text)


def test_there_are_the_packages_of_the_table_and_no_others() -> None:
    assert set(PACKAGES) == set(TABLE)


def test_every_package_stands_in_the_file_of_its_name() -> None:
    names = {f"{package.replace(':', '-')}.wit" for package in TABLE}
    assert {path.name for path in wit_folder().iterdir()} == names


@pytest.mark.parametrize("package", TABLE)
def test_a_package_has_the_interfaces_and_worlds_of_the_table(package: str) -> None:
    found = PACKAGES[package]
    assert found.id == package
    assert list(found.interfaces) == list(TABLE[package]["interfaces"])
    assert list(found.worlds) == list(TABLE[package]["worlds"])


@pytest.mark.parametrize(("package", "interface"), INTERFACES)
def test_an_interface_uses_what_the_table_says(package: str, interface: str) -> None:
    found = PACKAGES[package].interfaces[interface]
    plain, version = package.split("@")
    uses = {}
    for use in TABLE[package]["interfaces"][interface]["uses"]:
        source = use["from"] if ":" in use["from"] else f"{plain}/{use['from']}@{version}"
        uses.update({name(used): (source, name(used)) for used in use["names"]})
    assert found.uses == uses
    for local, (source, used) in uses.items():
        owner = source.split("/")[0] + "@" + source.split("@")[1]
        assert found.types[local] is PACKAGES[owner].interfaces[source.split("/")[1].split("@")[0]].types[used]


@pytest.mark.parametrize(("package", "interface"), INTERFACES)
def test_an_interface_declares_the_types_of_the_table_in_order(package: str, interface: str) -> None:
    found = PACKAGES[package].interfaces[interface]
    own = {key: shape(declared, found) for key, declared in found.types.items() if key not in found.uses}
    types = expected(TABLE[package]["interfaces"][interface])["types"]
    assert own == types
    assert list(own) == list(types)
    for resource in (key for key, declared in types.items() if "resource" in declared):
        methods = [function.name for function in found.functions.values() if str(function.resource) == resource]
        assert methods == list(types[resource]["resource"])


@pytest.mark.parametrize(("package", "interface"), INTERFACES)
def test_an_interface_has_the_functions_of_the_table_in_order(package: str, interface: str) -> None:
    found = PACKAGES[package].interfaces[interface]
    free = {key: signature(function) for key, function in found.functions.items() if function.resource is None}
    functions = expected(TABLE[package]["interfaces"][interface])["functions"]
    assert free == functions
    assert list(free) == list(functions)


@pytest.mark.parametrize("package", TABLE)
def test_a_world_exports_the_functions_of_the_table(package: str) -> None:
    for world, entry in TABLE[package]["worlds"].items():
        found = PACKAGES[package].worlds[world]
        exports = {key: signature(made) for key, made in found.exports.items() if isinstance(made, Function)}
        assert exports == entry["exports"]
        assert len(found.exports) == len(exports)
        assert list(found.imports) == entry["imports"]
        assert list(found.types) == [used for use in entry["uses"] for used in use["names"]]


def test_the_host_has_200_functions_in_14_packages_methods_included_and_drops_not() -> None:
    counts = {key: sum(len(i.functions) for i in package.interfaces.values()) for key, package in PACKAGES.items()}
    assert sum(counts.values()) == 200
    assert [package for package, count in counts.items() if not count] == ["astrid:guest@1.0.0"]
    assert len(counts) == 15
    resources = {t for p in PACKAGES.values() for i in p.interfaces.values() for t in i.types.values()}
    assert sum(isinstance(declared, Resource) for declared in resources) == 15


def test_everything_a_guest_can_import_or_export_is_documented() -> None:
    bare = []
    for package in PACKAGES.values():
        bare += [] if package.docs else [package.id]
        for interface in package.interfaces.values():
            bare += [] if interface.docs else [interface.id]
            bare += [f"{interface.id} {key}" for key, function in interface.functions.items() if not function.docs]
        for world in package.worlds.values():
            bare += [] if world.docs else [world.name]
            bare += [f"{world.name} {key}" for key, made in world.exports.items() if not made.docs]
    assert bare == []
