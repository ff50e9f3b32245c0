"""What a wheel takes with it is in the checkout, so an installed host has its contracts and its capsules."""

from __future__ import annotations

import tomllib
from pathlib import Path

import astrid_host
from astrid_host import bundled

CHECKOUT = Path(astrid_host.__file__).parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))


def test_every_folder_that_the_wheel_takes_with_it_exists() -> None:
    taken = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert sorted(taken.values()) == ["astrid_host/_bundled/capsules", "astrid_host/_bundled/wit"]
    assert [source for source in taken if not (CHECKOUT / source).is_dir()] == []


def test_every_path_that_the_source_archive_takes_with_it_exists() -> None:
    taken = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [path for path in taken if not (CHECKOUT / path).exists()] == []


def test_the_readme_and_the_licence_that_the_metadata_names_exist() -> None:
    named = [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]]
    assert [path for path in named if not (CHECKOUT / path).is_file()] == []


def test_a_checkout_reads_its_own_contracts_and_capsules() -> None:
    assert any(bundled.wit_folder().rglob("*.wit"))
    assert any(bundled.capsules_folder().glob("*/Capsule.toml"))


def test_the_version_that_the_package_tells_is_the_one_that_it_is_published_with() -> None:
    assert astrid_host.__version__ == PROJECT["project"]["version"]
