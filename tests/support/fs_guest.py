"""A guest's way to astrid:fs in tests: its rights, its handles, and calls by the names that WIT has."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs import FileHandle, Fs
from astrid_host.manifest import Capabilities, Manifest, Package

EVERYWHERE = ("cwd://", "home://", "/tmp")


class Handles:
    """What a handle table is to fs-open."""

    def __init__(self) -> None:
        self.held: list[FileHandle] = []

    def count(self, kind: type) -> int:
        return sum(type(handle) is kind for handle in self.held)


class FsGuest:
    """One instance of a capsule.

    Args:
        fs: the host functions.
        read: rows of `fs_read`.
        write: rows of `fs_write`.
        principal: on whose behalf it runs.
        capsule: its name.
    """

    def __init__(
        self,
        fs: Fs,
        read: tuple[str, ...] = EVERYWHERE,
        write: tuple[str, ...] = EVERYWHERE,
        principal: str = "alice",
        capsule: str = "files",
    ) -> None:
        self._functions = fs.functions()
        self.handles = Handles()
        capabilities = Capabilities(fs_read=read, fs_write=write)
        self.call: Any = SimpleNamespace(
            principal=principal,
            capsule=SimpleNamespace(
                id=capsule, storage_id=capsule, manifest=Manifest(Package(capsule, "1.0.0"), capabilities=capabilities)
            ),
            instance=SimpleNamespace(handles=self.handles),
            message=None,
        )

    async def go(self, name: str, *arguments: Any) -> Any:
        """Call a host function."""
        result = self._functions[name].run(self.call, *arguments)
        if inspect.iscoroutine(result):
            result = await result
        if isinstance(result, FileHandle):
            self.handles.held.append(result)
        return result

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call a host function, where no loop runs."""
        return trio.run(self.go, name, *arguments)

    def refused(self, name: str, *arguments: Any) -> str:
        """The case of the error that a host function answers with."""
        with pytest.raises(HostError) as caught:
            self(name, *arguments)
        return caught.value.case

    def file(self, method: str, handle: FileHandle, *arguments: Any) -> Any:
        """Call a method of a `file-handle`."""
        return self(f"[method]file-handle.{method}", handle, *arguments)

    def file_refused(self, method: str, handle: FileHandle, *arguments: Any) -> str:
        return self.refused(f"[method]file-handle.{method}", handle, *arguments)
