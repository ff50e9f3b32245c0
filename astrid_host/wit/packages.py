"""The WIT packages in a folder, read when they are asked for.

A package `astrid:ipc@1.0.0` stands in the file `astrid-ipc@1.0.0.wit`, in the folder or below it. What it uses of other
packages is read with it. A file that cannot be read, or is not the package that its name says, is a `WitError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from astrid_host.errors import WitError
from astrid_host.wit.parser import parse
from astrid_host.wit.resolve import Resolver, full_name, resolve
from astrid_host.wit.syntax import ParsedFile
from astrid_host.wit.types import Interface, Package

_ID = re.compile(r"([^:/@]+:[^:/@]+)/([^:/@]+)((?:@[0-9A-Za-z.+-]+)?)")


class Packages:
    """The packages below one folder. Each file is read once, when something of it is first asked for.

    Args:
        folder: with one file for each package and version.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] | None = None
        self._files: dict[str, ParsedFile] = {}
        self._resolver = Resolver()

    def interface(self, name: str) -> Interface | None:
        """The interface of that id, such as `astrid:ipc/host@1.0.0`.

        Args:
            name: anything; guests choose it.

        Returns:
            None when there is no such package or interface.

        Raises:
            WitError: its file, or one that it needs, cannot be read.
        """
        parts = _ID.fullmatch(name)
        if parts is None or _stem(parts[1] + parts[3]) not in self._stems():
            return None
        self._load(parts[1] + parts[3])
        return self._resolver.interface(name)

    def interfaces(self) -> list[str]:
        """The ids of all interfaces below the folder, sorted. Reads every file.

        Raises:
            WitError: one cannot be read.
        """
        return sorted(
            full_name(package.id, interface.name)
            for stem in self._stems()
            for package in self._file(stem).packages
            if _stem(package.id) == stem
            for interface in package.interfaces
        )

    def _stems(self) -> dict[str, Path]:
        """The files by name without `.wit`. Listing them once keeps names that guests chose away from the file system."""
        if self._paths is None:
            self._paths = {path.name[:-4]: path for path in wit_files(self._folder)}
        return self._paths

    def _file(self, stem: str) -> ParsedFile:
        if stem not in self._files:
            parsed = read(self._stems()[stem])
            first = parsed.packages[0]
            if _stem(first.id) != stem:
                raise parsed.text.error(
                    f"the package {first.id} belongs in a file named {_stem(first.id)}.wit", first.at
                )
            self._resolver.add(parsed)
            self._files[stem] = parsed
        return self._files[stem]

    def _load(self, package: str) -> None:
        """Read a package and, transitively, those it uses. What is missing is for the resolver to say."""
        waiting, seen = [package], {package}
        while waiting:
            stem = _stem(waiting.pop())
            if stem not in self._stems():
                continue
            for part in self._file(stem).packages:
                needed = {ref.package for ref in part.refs() if ref.package is not None} - seen
                seen |= needed
                waiting += sorted(needed)


def _stem(package: str) -> str:
    return package.replace(":", "-")


def wit_files(folder: Path) -> list[Path]:
    """The files that end in `.wit` below a folder, sorted.

    Raises:
        WitError: there is no such folder.
    """
    if not folder.is_dir():
        raise WitError("expected a folder of WIT packages, and there is none", folder, 1, 1)
    return sorted(folder.rglob("*.wit"))


def read(path: Path) -> ParsedFile:
    """Parse a file.

    Raises:
        WitError: it cannot be read, or is no WIT.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WitError(f"cannot be read: {error.strerror or error}", path, 1, 1) from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise WitError(f"expected UTF-8, found the byte {error.object[error.start]:#04x}", path, line, column) from None
    return parse(text, path)


def load_packages(folder: Path) -> Mapping[str, Package]:
    """All packages below a folder, by id, sorted; whatever its files are called.

    Raises:
        WitError: there is no such folder, or a file cannot be read.
    """
    return resolve([read(path) for path in wit_files(folder)])
