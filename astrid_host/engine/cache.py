"""Compiled modules on disk, so that a start compiles nothing.

A cached module is native code: it is loaded only from a folder that belongs to this user and that nobody else may write
to. A file is keyed by the module's content, the engine's version and settings, and this machine's architecture; it is
written beside and renamed, so it is whole or absent. Whatever is wrong with the folder or a file costs a compilation and a
log line, never a start.

The folder has a bound in bytes. When a module was added, those that were not used for the longest time go first, until the rest
keeps it. Only plain files of this user's that have this cache's form of name are looked at, and those of a newer engine stay:
another host may need them, and this one cannot tell. A host whose file another one has removed compiles it anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import stat
import time
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from astrid_host.abi import CoreModule, inner_imports

log = logging.getLogger(__name__)
HASH, INNER = ".blake3", ".inner"
USED_S = 600.0  # a file's time of use is not noted more often
PART_S = 3600.0  # what is still being written after so long was left behind
_NAME = re.compile(
    r"(?:(?P<version>[0-9]+(?:\.[0-9]+)*)-)?(?P<key>[0-9a-f]{64})\.(?P<kind>module|blake3|inner)(?P<part>\..*part)?"
)


class ModuleCache:
    """A folder of compiled modules.

    Args:
        folder: created with mode 0700 when missing; None, or a folder of somebody else's, keeps nothing.
        settings: what of the engine's version and configuration makes code incompatible.
        version: the engine's, numbers with dots.
    """

    def __init__(self, folder: Path | None, settings: str, version: str = "") -> None:
        self._version = version
        self._salt = f"{settings}\0{platform.machine()}\0{platform.system()}".encode()
        self.folder = folder if folder is not None and _is_ours(folder) else None

    def path(self, wasm: bytes) -> Path | None:
        """Where the compiled form of these bytes is, or would be."""
        if self.folder is None:
            return None
        key = blake3(self._salt).update(wasm).hexdigest()
        return self.folder / f"{self._version}-{key}.module"

    def holds(self, path: Path) -> bool:
        """Whether a file is what was written there: native code that was damaged would take the process down.

        It must be a plain file of this user's that nobody else may write to, and have the hash that was kept beside it.
        """
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                log.warning("the compiled module %s is not this user's own plain file and is made anew", path)
                return False
            if blake3(path.read_bytes()).hexdigest() == path.with_suffix(HASH).read_text():
                if time.time() - found.st_mtime > USED_S:
                    with contextlib.suppress(OSError):  # a folder that can only be read has no need to know
                        os.utime(path)
                return True
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            log.warning("the compiled module %s cannot be read and is made anew: %s", path, error)
            return False
        log.warning("the compiled module %s is damaged and is made anew", path)
        return False

    def write(self, path: Path, code: bytes, core: CoreModule) -> None:
        """Keep compiled code, and the module's `abi.inner_imports`, which take as long as half a compilation.

        Raises:
            OSError: the disk is full, or cannot be written.
            ModuleRefused: the module is malformed.
        """
        noted = json.dumps(sorted(inner_imports(core)))
        self._write(path.with_suffix(INNER), f"{blake3(noted.encode()).hexdigest()}\n{noted}".encode())
        self._write(path.with_suffix(HASH), blake3(code).hexdigest().encode())
        self._write(path, code)

    def inner_imports(self, path: Path) -> frozenset[tuple[str, str]] | None:
        """The module's `abi.inner_imports`, as they were kept; None when they were not."""
        return self._noted(path.with_suffix(INNER))

    def prune(self, most: int, keep: Path) -> int:
        """Remove what was not used for the longest time until the folder keeps its bound. From any thread, beside other hosts.

        Args:
            most: bytes of all modules.
            keep: one that stays in any case.

        Returns:
            how many bytes were removed.
        """
        if self.folder is None:
            return 0
        found = [entry for entry in _entries(self.folder) if not self._is_newer(entry.version)]
        total, removed = sum(entry.bytes for entry in found), 0
        for entry in sorted(found, key=lambda entry: entry.used):
            if total - removed <= most:
                break
            if entry.key not in keep.name:
                removed += entry.bytes
                for file in entry.files:
                    file.unlink(missing_ok=True)
        return removed

    def _is_newer(self, version: str) -> bool:
        return _numbers(version) > _numbers(self._version)

    def _noted(self, path: Path) -> frozenset[tuple[str, str]] | None:
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                return None
            digest, _, text = path.read_text().partition("\n")
        except (OSError, UnicodeDecodeError):
            return None
        if blake3(text.encode()).hexdigest() != digest:
            return None
        return frozenset((module, name) for module, name in json.loads(text))

    def _write(self, path: Path, content: bytes) -> None:
        part = path.with_suffix(f"{path.suffix}.{os.getpid()}.part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):  # the first error says more
                part.unlink(missing_ok=True)
            raise


class _Entry(NamedTuple):
    """A module in the folder, with the files that belong to it."""

    key: str
    version: str
    bytes: int
    used: float
    files: list[Path]


def _entries(folder: Path) -> list[_Entry]:
    """What this user keeps in the folder; what was left half written long ago is removed."""
    files: dict[tuple[str, str], list[tuple[Path, os.stat_result]]] = {}
    with os.scandir(folder) as found:
        for one in found:
            name = _NAME.fullmatch(one.name)
            if name is None:
                continue
            try:
                status = one.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                continue
            if name["part"] is None:
                files.setdefault((name["version"] or "", name["key"]), []).append((Path(one.path), status))
            elif time.time() - status.st_mtime > PART_S:
                Path(one.path).unlink(missing_ok=True)
    return [
        _Entry(
            key,
            version,
            sum(status.st_blocks * 512 for _, status in group),
            max((status.st_mtime for path, status in group if path.suffix == ".module"), default=0.0),
            sorted((path for path, _ in group), key=lambda path: path.suffix != ".module"),  # the module itself first
        )
        for (version, key), group in files.items()
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        log.warning("compiled modules are not kept: %s", error)
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        log.warning(
            "compiled modules are not kept in %s: it must be a folder of this user's that nobody else may write to "
            "(mode %o, owner %d); remove it, or `chmod 700` it",
            folder,
            stat.S_IMODE(found.st_mode),
            found.st_uid,
        )
        return False
    return True
