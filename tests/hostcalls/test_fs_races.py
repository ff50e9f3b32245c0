"""astrid:fs while somebody swaps folders and files for links that lead out: nothing outside is read or touched."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from fs_guest import FsGuest

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs import Fs, Views
from astrid_host.hostcalls.paths import Roots

MINE, FOREIGN = b"mine", b"foreign"
NAMES = ("file", "second", "new", "linked", "copy", "log", "moved-file")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder `x`, and outside of the workspace one that has the same names in it."""
    for folder, content in ((tmp_path / "work" / "x", MINE), (tmp_path / "outside", FOREIGN)):
        (folder / "sub" / "inner").mkdir(parents=True)
        (folder / "made").mkdir()
        for name in (*NAMES, "sub/a", "sub/inner/b", "made/c"):
            (folder / name).write_bytes(content)
    return tmp_path / "work"


@pytest.fixture
def guest(work: Path, tmp_path: Path) -> Iterator[FsGuest]:
    roots = Roots(work, tmp_path / "state")
    yield FsGuest(Fs(roots, Views()))
    roots.close()


def swap(work: Path, path: str, target: str) -> None:
    """Put a link in the place of something for a moment. The guest may move, remove or make anything meanwhile."""
    aside = work / "aside"
    with suppress(OSError):
        os.rename(work / path, aside)
        with suppress(OSError):
            os.symlink(target, work / path)
            time.sleep(0)
            os.unlink(work / path)
        os.rename(aside, work / path)
    if aside.is_dir():
        shutil.rmtree(aside)
    aside.unlink(missing_ok=True)


@contextmanager
def swapping(work: Path, path: str, target: str) -> Iterator[None]:
    """Swap over and over, on a thread."""
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            swap(work, path, target)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that a change would show in: what is there, its content, times of change and number of names."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_ctime_ns, status.st_nlink, status.st_size, content)
    return found


STEPS: tuple[tuple[Any, ...], ...] = (
    ("read-file", "x/file"),
    ("write-file", "x/file", MINE),
    ("write-file", "x/new", MINE),
    ("fs-append", "x/log", MINE),
    ("fs-open", "x/file", "read"),
    ("fs-open", "x/new", "write"),
    ("fs-open", "x/log", "append"),
    ("fs-open", "x/file", "read-write"),
    ("fs-copy", "x/file", "x/copy"),
    ("fs-copy", "x/file", "copied"),
    ("fs-mkdir", "x/d"),
    ("fs-mkdir-all", "x/e/f/g"),
    ("fs-rename", "x/file", "x/moved-file"),
    ("fs-rename", "x/moved-file", "x/file"),
    ("fs-rename", "x/second", "second"),
    ("fs-rename", "second", "x/second"),
    ("fs-hard-link", "x/file", "x/linked"),
    ("fs-unlink", "x/linked"),
    ("fs-unlink", "x/new"),
    ("fs-remove-dir-all", "x/e"),
    ("fs-mkdir-all", "x/sub/inner/deep"),
    ("write-file", "x/sub/inner/deep/b", MINE),
    ("fs-remove-dir-all", "x/sub"),
    ("fs-mkdir-all", "x/sub/inner"),
    ("fs-readdir", "x"),
    ("fs-stat", "x/file"),
    ("fs-stat-symlink", "x/file"),
    ("fs-canonicalize", "x/file"),
    ("fs-read-link", "x"),
)


async def steps(guest: FsGuest, rounds: int) -> set[str]:
    """Do all of it over and over, until both sides of the swap have shown; gives the outcomes. No file of the other side is
    ever read."""
    seen: set[str] = set()
    until = time.monotonic() + 20
    while (rounds > 0 or not {"done", "boundary-escape"} <= seen) and time.monotonic() < until:
        rounds -= 1
        for name, *arguments in STEPS:
            outcome = "done"
            try:
                result = await guest.go(name, *arguments)
                if name == "read-file":
                    assert FOREIGN not in result
                if name == "fs-open":
                    handle = guest.handles.held.pop()
                    if handle.mode == "read":
                        assert FOREIGN not in await guest.go("[method]file-handle.read-at", handle, 0, 100)
                    else:
                        await guest.go("[method]file-handle.write-at", handle, 0, MINE)
                    handle.close()
            except HostError as error:
                outcome = error.case
            seen.add(outcome)
    return seen


EXPECTED = {"done", "boundary-escape", "not-found", "not-directory", "already-exists", "is-directory", "not-empty",
            "invalid-path", "access"}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "target"), [("x", "../outside"), ("x/sub", "../../outside/sub"), ("x/file", "../../outside/file")]
)
def test_nothing_outside_is_read_or_touched_whatever_is_swapped(
    guest: FsGuest, work: Path, path: str, target: str
) -> None:
    before = state(work.parent / "outside")
    with swapping(work, path, target):
        seen = trio.run(steps, guest, 60)
    assert state(work.parent / "outside") == before
    files = [file for file in work.rglob("*") if file.is_file() and not file.is_symlink()]
    assert FOREIGN not in b"".join(file.read_bytes() for file in files)
    assert {"done", "boundary-escape"} <= seen <= EXPECTED
    assert not list(work.rglob(".astrid-*")), "a temporary file was left behind"


def test_what_is_a_link_only_for_a_moment_is_read_or_is_no_link(guest: FsGuest, work: Path) -> None:
    async def read() -> set[str]:
        seen = set()
        for _ in range(5_000):
            try:
                await guest.go("fs-read-link", "x")
            except HostError as error:
                seen.add(error.case)
        return seen

    with swapping(work, "x", "../outside"):
        assert trio.run(read) <= {"invalid-path", "boundary-escape", "not-found"}


def test_an_absolute_link_is_no_way_out_either(guest: FsGuest, work: Path) -> None:
    before = state(work.parent / "outside")
    with swapping(work, "x", str(work.parent / "outside")):
        trio.run(steps, guest, 40)
    assert state(work.parent / "outside") == before


def test_a_folder_that_becomes_a_link_while_it_is_emptied_is_not_followed(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap comes between the listing and the entering, where a check before the use would have passed."""
    before = state(work.parent / "outside")
    true_open = os.open
    swapped: list[bool] = []

    def swap_first(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if path == "inner" and not swapped:
            swapped.append(True)
            os.rename(work / "x" / "sub" / "inner", work / "kept")
            os.symlink(work.parent / "outside" / "sub", work / "x" / "sub" / "inner")
        return true_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", swap_first)
    assert guest.refused("fs-remove-dir-all", "x/sub") == "not-directory"
    assert swapped
    assert state(work.parent / "outside") == before
    monkeypatch.undo()
    guest("fs-remove-dir-all", "x/sub")
    assert not (work / "x" / "sub").exists()


def test_a_file_that_becomes_a_link_while_it_is_replaced_is_not_followed(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step puts the new file under the name, whatever has it by then."""
    before = state(work.parent / "outside")
    true_rename = os.rename

    def swap_first(src: Any, dst: Any, **named: Any) -> None:
        os.unlink(work / "x" / "file")
        os.symlink(work.parent / "outside" / "file", work / "x" / "file")
        true_rename(src, dst, **named)

    monkeypatch.setattr(os, "rename", swap_first)
    guest("write-file", "x/file", b"new")
    assert (work / "x" / "file").read_bytes() == b"new"
    assert not (work / "x" / "file").is_symlink()
    assert state(work.parent / "outside") == before


@pytest.mark.parametrize("mode", ["read", "write", "append", "read-write"])
def test_a_file_that_becomes_a_link_or_a_fifo_before_it_is_opened(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A fifo would hold whoever opens it until somebody comes to its other end."""
    before = state(work.parent / "outside")
    true_open = os.open

    def swapped_with(make: Any) -> Any:
        def swap_first(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if path == "file":
                os.unlink(work / "x" / "file")
                make()
            return true_open(path, flags, *more, **named)

        return swap_first

    link = lambda: os.symlink(work.parent / "outside" / "file", work / "x" / "file")  # noqa: E731
    for make, case in ((link, "invalid-path"), (lambda: os.mkfifo(work / "x" / "file"), "access")):
        (work / "x" / "file").unlink(missing_ok=True)
        (work / "x" / "file").write_bytes(MINE)
        monkeypatch.setattr(os, "open", swapped_with(make))
        assert guest.refused("fs-open", "x/file", mode) == case
        monkeypatch.undo()
    assert state(work.parent / "outside") == before


OPENED = {
    "fs-exists": ("x/file",),
    "fs-stat": ("x/file",),
    "fs-stat-symlink": ("x/file",),
    "fs-canonicalize": ("x/file",),
    "fs-mkdir": ("x/d",),
    "fs-unlink": ("x/new",),
    "fs-rename": ("x/second", "x/third"),
    "fs-hard-link": ("x/third", "x/fourth"),
    "fs-readdir": ("x",),
    "read-file": ("x/file",),
    "write-file": ("x/file", b"x"),
    "fs-append": ("x/file", b"x"),
    "fs-open": ("x/file", "read"),
    "fs-copy": ("x/file", "x/copy"),
}


def test_no_file_is_opened_but_the_one_that_the_guest_asks_for(guest: FsGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders on the way are entered; no configuration, database, lock or log is looked at."""
    opened: list[Any] = []
    true_open = os.open

    def noting(path: Any, flags: int, *more: Any, **named: Any) -> int:
        assert named.get("dir_fd") is not None, f"{path} was opened by its whole path"
        if not flags & getattr(os, "O_PATH", 0):
            opened.append(path)
        return true_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noting)
    for name, arguments in OPENED.items():
        opened.clear()
        guest(name, *arguments)
        mine = [path for path in opened if not str(path).startswith(".astrid-")]
        if name in ("read-file", "fs-append", "fs-open", "fs-copy"):
            assert mine == ["file"], name
        elif name == "fs-readdir":
            assert mine == ["x"]
        else:
            assert mine == [], name
        assert len(opened) - len(mine) == (name in ("write-file", "fs-copy"))
    for handle in guest.handles.held:
        handle.close()
