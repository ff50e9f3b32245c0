"""A workspace with something to read, something private and something outside of it, and a guest that works on it; a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fs_guest import FsGuest

from astrid_host.hostcalls.fs import Fs
from astrid_host.hostcalls.paths import Roots
from astrid_host.stores import Database


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database.in_memory()
    yield database
    database.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "a.txt").write_bytes(b"hello")
    (work / "private").mkdir()
    (work / "private" / "key").write_bytes(b"secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"outside")
    return work


@pytest.fixture
def fs(work: Path, tmp_path: Path) -> Iterator[Fs]:
    roots = Roots(work, tmp_path / "state")
    yield Fs(roots)
    roots.close()


@pytest.fixture
def guest(fs: Fs) -> FsGuest:
    return FsGuest(fs)
