"""Compiled modules on disk, so that a start compiles nothing.

A cached module is native code: it is loaded only from a folder that belongs to this user and that nobody else may write
to. A file is keyed by the module's content, the engine's version and settings, and this machine's architecture; it is
written beside and renamed, so it is whole or absent. Whatever is wrong with the folder or a file costs a compilation and a
log line, never a start.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import stat
from pathlib import Path

from blake3 import blake3

from astrid_host.abi import CoreModule, inner_imports

log = logging.getLogger(__name__)
HASH, INNER = ".blake3", ".inner"


class ModuleCache:
    """A folder of compiled modules.

    Args:
        folder: created with mode 0700 when missing; None, or a folder of somebody else's, keeps nothing.
        settings: what of the engine's version and configuration makes code incompatible.
    """

    def __init__(self, folder: Path | None, settings: str) -> None:
        self._salt = f"{settings}\0{platform.machine()}\0{platform.system()}".encode()
        self.folder = folder if folder is not None and _is_ours(folder) else None

    def path(self, wasm: bytes) -> Path | None:
        """Where the compiled form of these bytes is, or would be."""
        if self.folder is None:
            return None
        return self.folder / f"{blake3(self._salt + wasm).hexdigest()}.module"

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
                return True
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            log.warning("the compiled module %s cannot be read and is made anew: %s", path, error)
            return False
        log.warning("the compiled module %s is damaged and is made anew", path)
        return False

    def write(self, path: Path, code: bytes) -> None:
        """Keep compiled code; a full or read-only disk is a log line."""
        self._write(path.with_suffix(HASH), blake3(code).hexdigest().encode())
        self._write(path, code)

    def inner_imports(self, path: Path | None, core: CoreModule) -> frozenset[tuple[str, str]]:
        """`abi.inner_imports` of a module, which takes as long as half a compilation: found once and kept.

        Args:
            path: where the compiled form is kept; None when nothing is.
        """
        noted = self._noted(path.with_suffix(INNER)) if path is not None else None
        if noted is None:
            noted = inner_imports(core)
            if path is not None:
                text = json.dumps(sorted(noted))
                self._write(path.with_suffix(INNER), f"{blake3(text.encode()).hexdigest()}\n{text}".encode())
        return noted

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
        except OSError as error:
            log.warning("a compiled module was not kept in %s: %s", path.parent, error)
            part.unlink(missing_ok=True)


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
