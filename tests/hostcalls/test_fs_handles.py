"""astrid:fs, open files: what each mode allows, limits, and descriptors that are closed whatever happens."""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from fs_guest import FsGuest

from astrid_host.hostcalls.fs import FileHandle, Fs
from astrid_host.hostcalls.fs.handles import Descriptors

MIB = 1 << 20
METHODS = (("read-at", 0, 10), ("write-at", 0, b"x"), ("sync-data",), ("sync-all",), ("stat",), ("set-len", 1))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_bytes(b"hello")
    return work


@pytest.fixture
def guest(fs: Fs) -> Iterator[FsGuest]:
    guest = FsGuest(fs)
    yield guest
    for handle in guest.handles.held:
        handle.close()


@pytest.mark.parametrize(
    ("mode", "refused"),
    [
        ("read", {"write-at", "set-len"}),
        ("write", {"read-at"}),
        ("append", {"read-at"}),
        ("read-write", set[str]()),
    ],
)
def test_a_mode_allows_what_it_says(guest: FsGuest, mode: str, refused: set[str]) -> None:
    for method, *arguments in METHODS:
        handle = guest("fs-open", "file", mode)
        if method in refused:
            assert guest.file_refused(method, handle, *arguments) == "access", method
        else:
            guest.file(method, handle, *arguments)


@pytest.mark.parametrize(
    ("mode", "read", "write"),
    [("read", True, False), ("write", False, True), ("append", False, True), ("read-write", True, True)],
)
def test_a_mode_needs_its_rights(fs: Fs, work: Path, mode: str, read: bool, write: bool) -> None:
    for may_read in (True, False):
        for may_write in (True, False):
            guest = FsGuest(fs, ("cwd://",) if may_read else (), ("cwd://",) if may_write else ())
            if may_read >= read and may_write >= write:
                guest("fs-open", "file", mode).close()
            else:
                assert guest.refused("fs-open", "file", mode) == "capability-denied"


def test_files_are_created_and_emptied_as_the_mode_says(guest: FsGuest, work: Path) -> None:
    for mode in ("read", "read-write"):
        assert guest.refused("fs-open", "missing", mode) == "not-found"
    guest("fs-open", "appended", "append")
    guest("fs-open", "written", "write")
    guest("fs-open", "file", "append")
    guest("fs-open", "file", "read-write")
    assert (work / "file").read_bytes() == b"hello"
    guest("fs-open", "file", "write")
    assert {name: (work / name).read_bytes() for name in os.listdir(work)} == dict.fromkeys(
        ("file", "appended", "written"), b""
    )


def test_bytes_are_read_and_written_where_it_is_said(guest: FsGuest, work: Path) -> None:
    handle = guest("fs-open", "file", "read-write")
    assert guest.file("read-at", handle, 1, 3) == b"ell"
    assert guest.file("read-at", handle, 4, 100) == b"o"
    assert guest.file("read-at", handle, 5, 100) == b""
    assert guest.file("read-at", handle, 0, 0) == b""
    assert guest.file("write-at", handle, 7, b"you") == 3
    assert guest.file("write-at", handle, 0, b"J") == 1
    guest.file("sync-data", handle)
    guest.file("sync-all", handle)
    assert (work / "file").read_bytes() == b"Jello\0\0you"
    assert guest.file("stat", handle).size == 10
    guest.file("set-len", handle, 2)
    guest.file("set-len", handle, 4)
    assert (work / "file").read_bytes() == b"Je\0\0"


def test_what_is_appended_goes_to_the_end_whatever_the_offset(guest: FsGuest, work: Path) -> None:
    handle = guest("fs-open", "file", "append")
    assert guest.file("write-at", handle, 0, b" you") == 4
    with (work / "file").open("ab") as another:
        another.write(b"!")
    assert guest.file("write-at", handle, 1000, b"?") == 1
    assert (work / "file").read_bytes() == b"hello you!?"


def test_at_most_a_mebibyte_is_read_or_written_at_once(guest: FsGuest) -> None:
    handle = guest("fs-open", "file", "read-write")
    content = os.urandom(MIB)
    assert guest.file("write-at", handle, 0, content) == MIB
    assert guest.file("write-at", handle, MIB, content) == MIB
    assert guest.file("read-at", handle, 0, 0xFFFFFFFF) == content
    assert guest.file_refused("write-at", handle, 0, bytes(MIB + 1)) == "too-large"


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_offsets_that_no_file_has(guest: FsGuest, offset: int) -> None:
    handle = guest("fs-open", "file", "read-write")
    assert guest.file("read-at", handle, offset, 10) == b""
    assert guest.file_refused("write-at", handle, offset, b"x") == "too-large"
    assert guest.file_refused("set-len", handle, offset) in ("too-large", "invalid-path")


def test_a_handle_goes_on_with_its_file_whatever_becomes_of_the_name(guest: FsGuest, work: Path) -> None:
    handle = guest("fs-open", "file", "read")
    guest("write-file", "file", b"other")
    guest("fs-unlink", "file")
    assert guest.file("read-at", handle, 0, 10) == b"hello"


def test_a_closed_handle_says_so(guest: FsGuest) -> None:
    handle = guest("fs-open", "file", "read-write")
    handle.close()
    handle.close()
    for method, *arguments in METHODS:
        assert guest.file_refused(method, handle, *arguments) == "closed"


def test_an_instance_has_64_handles(guest: FsGuest) -> None:
    for _ in range(64):
        guest("fs-open", "file", "read")
    assert guest.refused("fs-open", "file", "read") == "quota"
    guest.handles.held.pop().close()
    guest("fs-open", "file", "read")


def test_all_instances_together_have_a_limit_too(fs: Fs, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the host has descriptors left for itself."""
    monkeypatch.setattr(fs._descriptors, "most", 3)
    first, second = FsGuest(fs), FsGuest(fs)
    for guest in (first, first, second):
        guest("fs-open", "file", "read")
    assert second.refused("fs-open", "file", "read") == "quota"
    assert second.refused("fs-open", "missing", "read") == "quota"
    first.handles.held.pop().close()
    assert second.refused("fs-open", "missing", "read") == "not-found"
    second("fs-open", "file", "read")
    for handle in (*first.handles.held, *second.handles.held):
        handle.close()


def test_the_limit_of_all_leaves_half_of_the_process_s_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((256, 128), (1 << 20, 1024), (resource.RLIM_INFINITY, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, soft=soft: (soft, soft))
        assert Descriptors().most == most


def test_a_handle_that_nobody_holds_any_more_is_closed(guest: FsGuest) -> None:
    """So it is when a call is cancelled between the opening and its return to the guest."""
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    guest("fs-open", "file", "read")
    assert len(os.listdir("/dev/fd")) == before + 1
    guest.handles.held.clear()
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


async def test_a_handle_closed_in_the_middle_of_a_write_does_not_write_elsewhere(
    fs: Fs, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may belong to another file by the time that the thread writes."""
    guest = FsGuest(fs)
    handle: FileHandle = await guest.go("fs-open", "file", "write")
    true_pwrite, others = os.pwrite, []

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        handle.close()
        others.append(os.open(work / "other", os.O_RDWR | os.O_CREAT))
        return true_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    assert await guest.go("[method]file-handle.write-at", handle, 0, bytes(MIB)) == MIB
    os.close(others[0])
    assert (work / "other").read_bytes() == b""
    assert (work / "file").stat().st_size == MIB


async def test_a_sync_that_takes_long_is_not_waited_for_when_cancelled(fs: Fs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be slow; what is cancelled ends at once all the same."""
    guest, on, ended = FsGuest(fs), threading.Event(), threading.Event()
    handle: FileHandle = await guest.go("fs-open", "file", "write")
    scope = trio.CancelScope()

    def fsync(_fd: int) -> None:
        trio.from_thread.run_sync(scope.cancel)
        on.wait()
        ended.set()

    monkeypatch.setattr(os, "fsync", fsync)
    with scope:
        await guest.go("[method]file-handle.sync-all", handle)
    assert scope.cancelled_caught
    assert not ended.is_set()
    handle.close()
    on.set()
    await trio.to_thread.run_sync(ended.wait)


def test_what_the_system_refuses_is_typed(guest: FsGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    handle = guest("fs-open", "file", "read-write")
    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "fsync", lambda _fd: full())
    assert guest.file_refused("write-at", handle, 0, b"x") == "quota"
    assert guest.file_refused("sync-all", handle) == "quota"
