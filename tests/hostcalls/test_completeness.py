"""Every host function that `wit/` declares is written, is called by a guest, and is named in a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_guest import FOLDER, Notes

from astrid_host import open_host
from astrid_host.abi import core_module
from astrid_host.bundled import wit_folder
from astrid_host.imports import DROP
from astrid_host.wit import Packages, Resource

TESTS = Path(__file__).parents[1]
PROBE = TESTS.parent / "guests" / "rust" / "probe" / "src"


def declared(drops: bool = False) -> Iterator[tuple[str, str]]:
    """Every function of the host's interfaces, by interface and name."""
    packages = Packages(wit_folder())
    for module in packages.interfaces():
        interface = packages.interface(module)
        assert interface is not None
        yield from ((module, name) for name in interface.functions)
        for name, of in interface.types.items():
            if drops and isinstance(of, Resource) and of.interface == module:
                yield module, f"{DROP}{name}"


def told(functions: set[tuple[str, str]]) -> list[str]:
    return [" ".join(function) for function in sorted(functions)]


async def test_every_host_function_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a method of the host's own: the refusals that stand in for what a host does not have do not count."""
    notes = Notes(monkeypatch)
    (tmp_path / "none").mkdir()
    async with open_host([tmp_path / "none"], state_dir=":memory:", workspace=tmp_path):
        written = notes.functions()
    assert told(set(declared()) - written.keys()) == []


async def test_nothing_is_written_that_is_not_declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notes = Notes(monkeypatch)
    (tmp_path / "none").mkdir()
    async with open_host([tmp_path / "none"], state_dir=":memory:", workspace=tmp_path):
        written = notes.functions()
    assert told(written.keys() - set(declared())) == []


def test_a_guest_calls_every_host_function() -> None:
    """Its compiler leaves out what it does not call."""
    imported = {(needed.module, needed.name) for needed in core_module((FOLDER / "probe.wasm").read_bytes()).imports}
    assert told(set(declared(drops=True)) - imported) == []


async def test_every_host_function_is_named_in_a_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its WIT name, in quotes, or by a call of its method."""
    notes = Notes(monkeypatch)
    (tmp_path / "none").mkdir()
    async with open_host([tmp_path / "none"], state_dir=":memory:", workspace=tmp_path):
        methods = {key: function.run.__name__ for key, function in notes.functions().items()}
    sources = [*TESTS.glob("hostcalls/*.py"), *PROBE.glob("*.rs")]
    text = "\n".join(source.read_text() for source in sources if source != Path(__file__))
    quoted, called = set(re.findall(r'"([^"\s]+)"', text)), set(re.findall(r"\.(\w+)\(", text))
    unnamed = {key for key in declared() if key[1] not in quoted and methods.get(key) not in called}
    assert told(unnamed) == []
