"""A folder of WIT packages: what is asked for is read, with what it needs, and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from astrid_host import bundled
from astrid_host.bundled import capsules_folder, wit_folder
from astrid_host.errors import WitError
from astrid_host.wit import Packages, ParsedFile, load_packages, packages

IPC = "astrid:ipc/host@1.0.0"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    names: list[str] = []
    read = packages.read

    def noting(path: Path) -> ParsedFile:
        names.append(path.name)
        return read(path)

    monkeypatch.setattr(packages, "read", noting)
    return names


def test_an_interface_is_read_with_what_it_uses_each_file_once(reads: list[str]) -> None:
    found = Packages(wit_folder())
    assert reads == []
    ipc = found.interface(IPC)
    assert ipc is not None
    assert ipc.id == IPC
    assert reads == ["astrid-ipc@1.0.0.wit", "astrid-io@1.0.0.wit"]
    poll = found.interface("astrid:io/poll@1.0.0")
    assert poll is not None
    assert ipc.types["pollable"] is poll.types["pollable"]
    assert found.interface(IPC) is ipc
    assert len(reads) == 2


def test_reading_one_by_one_gives_what_reading_all_gives() -> None:
    found = Packages(wit_folder())
    everything = [i for package in load_packages(wit_folder()).values() for i in package.interfaces.values()]
    assert [found.interface(interface.id) for interface in everything] == everything
    assert found.interfaces() == sorted(interface.id for interface in everything)
    assert Packages(wit_folder()).interfaces() == found.interfaces()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "astrid:ipc/host",
        "astrid:ipc/host@2.0.0",
        "astrid:ipc/other@1.0.0",
        "astrid:ipc@1.0.0",
        "astrid:guest/interceptor@1.0.0",
        "astrid-ipc/host@1.0.0",
        "env",
        "../wit:ipc/host@1.0.0",
        "..:astrid-ipc/host@1.0.0",
        "astrid:ipc/host@1.0.0\n",
        "a\0b:c/d@1.0.0",
        "a:b/c@" + "1" * 5000,
        "\udc80:b/c@1.0.0",
    ],
)
def test_a_name_that_is_no_interface_of_the_folder_is_none_whatever_a_guest_writes(name: str) -> None:
    assert Packages(wit_folder()).interface(name) is None


def test_a_package_that_is_missing_is_an_error_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "a-b.wit").write_text("package a:b;\ninterface i { use c:d/j.{t}; }\n")
    found = Packages(tmp_path)
    for _ in range(2):
        with pytest.raises(WitError, match=r"a-b\.wit:2:19: there is no package 'c:d'"):
            found.interface("a:b/i")


def test_an_error_does_not_spoil_what_else_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a-b.wit").write_text(
        "package a:b;\ninterface i { use j.{t}; } interface j { use i.{t}; } interface k {}\n"
    )
    (tmp_path / "a-c.wit").write_text("package a:c;\ninterface")
    found = Packages(tmp_path)
    for name in ("a:b/i", "a:b/j", "a:c/i", "a:b/i"):
        with pytest.raises(WitError):
            found.interface(name)
    assert found.interface("a:b/k") is not None


def test_packages_may_use_each_other(tmp_path: Path) -> None:
    (tmp_path / "a-b.wit").write_text("package a:b;\ninterface i { use c:d/j.{t}; } interface k { type u = u8; }\n")
    (tmp_path / "c-d.wit").write_text("package c:d;\ninterface j { use a:b/k.{u}; type t = list<u>; }\n")
    found = Packages(tmp_path).interface("a:b/i")
    assert found is not None
    assert str(found.types["t"]) == "list<u8>"


def test_a_file_whose_name_is_another_package_is_an_error_that_says_the_right_name(tmp_path: Path) -> None:
    (tmp_path / "a-b@1.0.0.wit").write_text("package a:c@1.0.0;\n")
    with pytest.raises(WitError, match=r"belongs in a file named a-c@1\.0\.0\.wit"):
        Packages(tmp_path).interface("a:b/i@1.0.0")
    assert list(load_packages(tmp_path)) == ["a:c@1.0.0"]


def test_a_package_in_braces_belongs_to_its_file_and_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "a-b.wit").write_text(
        "package a:b;\ninterface i { use c:d/j.{t}; } package c:d { interface j { type t = u8; } }"
    )
    found = Packages(tmp_path)
    assert found.interfaces() == ["a:b/i"]
    assert found.interface("a:b/i") is not None
    assert found.interface("c:d/j") is None


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for ask in (load_packages, lambda folder: Packages(folder).interfaces()):
        with pytest.raises(WitError, match="expected a folder of WIT packages"):
            ask(tmp_path / "none")


def test_an_editable_install_reads_the_folders_of_the_checkout() -> None:
    checkout = Path(__file__).parents[2]
    assert wit_folder() == checkout / "wit"
    assert capsules_folder() == checkout / "capsules"


def test_an_installed_package_reads_the_folders_that_it_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wit", "capsules"):
        (tmp_path / "_bundled" / name).mkdir(parents=True)
    monkeypatch.setattr(importlib.import_module(bundled.__name__), "_PACKAGE", tmp_path)
    assert wit_folder() == tmp_path / "_bundled" / "wit"
    assert capsules_folder() == tmp_path / "_bundled" / "capsules"
