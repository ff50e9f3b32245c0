"""What the host reads of a capsule's folder, read once: the same bytes are judged, hashed and then loaded.

A folder that changes between a question and the load changes nothing of what was asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from astrid_host.capsules.discovery import MANIFEST
from astrid_host.errors import LoadError
from astrid_host.manifest import Manifest, Problem, check_text, read_module
from astrid_host.manifest.meta import MEND, read_meta_text
from astrid_host.manifest.reading import read_file


class ReadManifest(msgspec.Struct, frozen=True):
    """A folder's manifest: its text (empty when it cannot be read), what it says, and what is wrong with it."""

    folder: Path
    text: str
    manifest: Manifest | None
    problems: Sequence[Problem]

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


class Files(msgspec.Struct, frozen=True):
    """All that the host reads of a folder.

    Attributes:
        manifest: the text of the Capsule.toml.
        module: the module's bytes.
        meta: the text of the meta.json; None without one.
    """

    manifest: str
    module: bytes
    meta: str | None

    @property
    def wasm_hash(self) -> str:
        """BLAKE3 of the module, in hexadecimal."""
        return blake3(self.module).hexdigest()

    @property
    def digest(self) -> str:
        """BLAKE3 of everything, in hexadecimal."""
        parts = (self.manifest.encode(), self.module, None if self.meta is None else self.meta.encode())
        whole = blake3()
        for part in parts:
            whole.update(b"-" if part is None else b"%d:" % len(part))
            whole.update(part or b"")
        return whole.hexdigest()


def read_manifest(folder: Path) -> ReadManifest:
    """Read the manifest of a capsule's folder. What is wrong with it is in its problems."""
    path = folder / MANIFEST
    text = read_file(path)
    if isinstance(text, Problem):
        return ReadManifest(folder, "", None, [text])
    return ReadManifest(folder, text, *check_text(text, path))


def read_files(folder: Path, text: str, manifest: Manifest) -> Files:
    """Read what belongs to a manifest that was read.

    Args:
        folder: the capsule's.
        text: of the manifest.
        manifest: what it says.

    Raises:
        LoadError: the module or the meta.json cannot be read.
    """
    return Files(text, read_wasm(folder, manifest), read_meta_file(folder))


def read_meta_file(folder: Path) -> str | None:
    """The text of the meta.json in a folder; None when there is none.

    Raises:
        LoadError: it cannot be read.
    """
    meta = read_meta_text(folder)
    if isinstance(meta, Problem):
        raise LoadError(f"{meta.file}: {meta.message}; {MEND}")
    return meta


def module_file(folder: Path, manifest: Manifest) -> Path:
    """Where the module of a capsule is.

    Raises:
        LoadError: its manifest names none.
    """
    if not manifest.components:
        raise LoadError(f"{manifest.package.name}: its Capsule.toml has no [[component]] with a file")
    return folder / manifest.components[0].file


def read_wasm(folder: Path, manifest: Manifest) -> bytes:
    """The module's file.

    Raises:
        LoadError: there is none, or it cannot be read.
    """
    return read_module(module_file(folder, manifest))
