"""The WIT packages in a folder, read when they are asked for.

A package `astrid:ipc@1.0.0` stands in the file `astrid-ipc@1.0.0.wit`; what it uses of others is read with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from astrid_host.errors import WitError
from astrid_host.wit.parser import parse
from astrid_host.wit.resolve import resolve
from astrid_host.wit.syntax import InterfaceRef, ParsedFile, UseNode
from astrid_host.wit.types import Interface, Package

_ID = re.compile(r"([^:/@]+):([^:/@]+)/([^:/@]+)@([0-9][0-9A-Za-z.+-]*)")


class Packages:
    """The packages below one folder.

    Args:
        folder: with one file for each package and version.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, Package] = {}

    def interface(self, name: str) -> Interface | None:
        """The interface of that id (`astrid:ipc/host@1.0.0`); None when there is no such package or interface.

        Raises:
            WitError: its file cannot be read.
        """
        parts = _ID.fullmatch(name)
        if parts is None:
            return None
        namespace, package, interface, version = parts.groups()
        found = self._package(f"{namespace}:{package}@{version}")
        return found.interfaces.get(interface) if found is not None else None

    def interfaces(self) -> list[str]:
        """The ids of all interfaces in the folder."""
        return sorted(
            interface.id
            for package in load_packages(self._folder).values()
            for interface in package.interfaces.values()
        )

    def _package(self, name: str) -> Package | None:
        if name not in self._loaded:
            files: dict[str, ParsedFile] = {}
            if not self._read(name, files):
                return None
            self._loaded.update(resolve(files.values()))
        return self._loaded.get(name)

    def _read(self, name: str, into: dict[str, ParsedFile]) -> bool:
        """Parse a package and, transitively, those it uses; False when there is no file for it."""
        path = self._folder / f"{name.replace(':', '-')}.wit"
        if name in into:
            return True
        if not path.is_file():
            return False
        into[name] = parsed = read(path)
        for ref in _references(parsed):
            if ref.package is not None and ref.version is not None:
                self._read(f"{ref.package}@{ref.version}", into)
        return True


def _references(file: ParsedFile) -> list[InterfaceRef]:
    return [
        item.source
        for package in file.packages
        for interface in package.interfaces
        for item in interface.items
        if isinstance(item, UseNode)
    ]


def read(path: Path) -> ParsedFile:
    """Parse a file.

    Raises:
        WitError: it cannot be read, or is no WIT.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WitError(f"cannot be read: {error}", path, 1, 1) from None
    return parse(text, path)


def load_packages(folder: Path) -> Mapping[str, Package]:
    """All packages below a folder, by id.

    Raises:
        WitError: a file cannot be read.
    """
    return resolve([read(path) for path in sorted(folder.rglob("*.wit"))])
