"""astrid:fs, what reads: gates first, then what is there; nothing outside a root, nothing that blocks."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fs_guest import EVERYWHERE, FsGuest

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs import Datetime, Fs, folders
from astrid_host.hostcalls.paths import Roots


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "a.txt").write_bytes(b"hello")
    (work / "private").mkdir()
    (work / "private" / "key").write_bytes(b"secret")
    (tmp_path / "outside").write_bytes(b"outside")
    return work


READING = ("fs-exists", "fs-stat", "fs-readdir", "read-file", "fs-canonicalize", "fs-stat-symlink", "fs-read-link")
FOLLOWING = READING[:5]
ALL = pytest.mark.parametrize("name", READING)
FOLLOWED = pytest.mark.parametrize("name", FOLLOWING)


@pytest.mark.parametrize(
    "path",
    ["src/a.txt", "{}/src/a.txt", "file://{}/src/%61.txt", "cwd://src/a.txt", "./src//a.txt", "cwd:///src/./a.txt"],
)
def test_every_spelling_of_a_path_reads_the_same_file(guest: FsGuest, work: Path, path: str) -> None:
    path = path.format(work)
    assert guest("read-file", path) == b"hello"
    assert guest("fs-exists", path)
    assert guest("fs-stat", path).size == 5


@ALL
@pytest.mark.parametrize(
    "path", ["private/key", "private", "private/missing", "missing", "home://x", "/tmp/x", "", "a/b/c"]
)
def test_what_no_row_covers_is_denied_whether_it_is_there_or_not(fs: Fs, name: str, path: str) -> None:
    for rows in ((), ("cwd://src",), ("home://.config", "/etc", "private")):
        assert FsGuest(fs, rows).refused(name, path) == "capability-denied"


def test_a_denial_names_the_line_to_write(fs: Fs) -> None:
    with pytest.raises(HostError) as caught:
        FsGuest(fs, ())("read-file", "home://x")
    assert '[capabilities] fs_read = ["home://"]' in caught.value.detail
    assert caught.value.payload is None


@ALL
@pytest.mark.parametrize("path", ["../outside", "src/../../outside", "..", "/..", "home://..", "/tmp/../x"])
def test_two_dots_are_an_escape(guest: FsGuest, name: str, path: str) -> None:
    assert guest.refused(name, path) == "boundary-escape"


@ALL
def test_a_path_that_is_none_is_invalid(guest: FsGuest, name: str) -> None:
    assert guest.refused(name, "a\0b") == "invalid-path"
    assert guest.refused(name, "a" * 256) == "invalid-path"


@FOLLOWED
def test_a_link_out_of_the_root_is_an_escape(guest: FsGuest, work: Path, name: str) -> None:
    (work / "up").symlink_to("..")
    (work / "file").symlink_to("../outside")
    (work / "abs").symlink_to(work.parent / "outside")
    for path in ("up", "up/outside", "file", "abs"):
        assert guest.refused(name, path) == "boundary-escape"


def test_links_inside_are_followed(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    (work / "d").symlink_to(work / "src")
    assert guest("read-file", "l") == b"hello"
    assert guest("fs-stat", "l").kind == "regular"
    assert guest("fs-readdir", "d") == ["a.txt"]
    assert guest("read-file", "d/a.txt") == b"hello"


@FOLLOWED
def test_where_a_row_covers_a_part_only_links_do_not_lead_out_of_it(fs: Fs, work: Path, name: str) -> None:
    """Nor do they tell what is there."""
    (work / "src" / "l").symlink_to("../private/key")
    (work / "src" / "d").symlink_to("../private")
    (work / "src" / "gone").symlink_to("../private/gone")
    limited = FsGuest(fs, ("cwd://src",))
    for path in ("src/l", "src/d", "src/d/key", "src/d/missing", "src/d/key/x", "src/gone"):
        assert limited.refused(name, path) == "capability-denied"


def test_where_a_row_covers_a_part_links_inside_it_are_followed(fs: Fs, guest: FsGuest, work: Path) -> None:
    (work / "src" / "l").symlink_to("../src/a.txt")
    limited = FsGuest(fs, ("cwd://src",))
    assert limited("read-file", "src/l") == b"hello"
    assert limited("fs-readdir", "src") == ["a.txt", "l"]
    assert not limited("fs-exists", "src/missing")
    assert limited.refused("read-file", "src/missing") == "not-found"


@pytest.mark.parametrize("path", ["missing", "src/missing", "missing/x", "src/a.txt/x", "dangling"])
def test_what_is_not_there_does_not_exist(guest: FsGuest, work: Path, path: str) -> None:
    (work / "dangling").symlink_to("gone")
    expected = "not-directory" if path == "src/a.txt/x" else "not-found"
    assert guest("fs-exists", path) is False
    assert guest.refused("fs-stat", path) == expected
    assert guest.refused("read-file", path) == expected
    assert guest.refused("fs-readdir", path) == expected


def test_an_error_does_not_tell_where_on_the_host_a_root_lies(guest: FsGuest, work: Path) -> None:
    for path in ("missing", "src", "src/a.txt/x"):
        with pytest.raises(HostError) as caught:
            guest("read-file", path)
        assert caught.value.payload is None


def test_files_and_folders_are_told_apart(guest: FsGuest) -> None:
    assert guest.refused("read-file", "src") == "is-directory"
    assert guest.refused("read-file", "") == "is-directory"
    assert guest.refused("fs-readdir", "src/a.txt") == "not-directory"
    assert guest("fs-exists", "src")
    assert guest("fs-exists", "cwd://")


def test_a_stat_has_size_kind_mode_and_times(guest: FsGuest, work: Path) -> None:
    file = work / "src" / "a.txt"
    file.chmod(0o640)
    os.utime(file, ns=(1_700_000_001_000_000_002, -1_500_000_000))
    status = guest("fs-stat", "src/a.txt")
    assert (status.size, status.kind, status.mode) == (5, "regular", 0o640)
    assert status.accessed == Datetime(1_700_000_001, 2)
    assert status.modified == Datetime(-2, 500_000_000)
    assert guest("fs-stat", ".").kind == "directory"


@pytest.fixture
def special(work: Path) -> Iterator[dict[str, Path]]:
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(work)  # the path of a socket may not be long
        listening.bind("socket")
        os.chdir(here)
        yield {"fifo": work / "fifo", "socket": work / "socket"}


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_no_file_is_seen_and_never_opened(guest: FsGuest, special: dict[str, Path], kind: str) -> None:
    """A read of a fifo without a writer would never return."""
    assert guest("fs-exists", kind)
    assert guest("fs-stat", kind).kind == kind
    assert guest.refused("read-file", kind) == "access"
    assert guest.refused("fs-readdir", kind) == "not-directory"
    assert guest.refused("read-file", f"{kind}/x") == "not-directory"


def test_a_device_is_not_read(tmp_path: Path) -> None:
    roots = Roots(Path("/dev"), tmp_path / "state")
    guest = FsGuest(Fs(roots))
    assert guest("fs-stat", "zero").kind == "character-device"
    assert guest.refused("read-file", "zero") == "access"
    roots.close()


def test_a_file_that_becomes_a_fifo_at_the_last_moment_does_not_block(guest: FsGuest, work: Path) -> None:
    """A thread makes one name a file and a fifo in turn, with nobody at the fifo's other end."""
    done = threading.Event()
    (work / "x").write_bytes(b"file")

    def flip() -> None:
        while not done.is_set():
            os.mkfifo(work / "next")
            os.rename(work / "next", work / "x")
            (work / "next").write_bytes(b"file")
            os.rename(work / "next", work / "x")

    thread = threading.Thread(target=flip)
    thread.start()
    seen: set[bytes] = set()
    until = time.monotonic() + 10
    try:
        while len(seen) < 2 and time.monotonic() < until:
            for _ in range(200):
                try:
                    seen.add(guest("read-file", "x"))
                except HostError as error:
                    seen.add(error.case.encode())
    finally:
        done.set()
        thread.join()
    assert seen == {b"file", b"access"}


@pytest.mark.parametrize("size", [0, 1, 65536, (10 << 20) - 1, 10 << 20])
def test_a_file_of_ten_mebibytes_is_read_as_a_whole(guest: FsGuest, work: Path, size: int) -> None:
    content = os.urandom(size)
    (work / "big").write_bytes(content)
    assert guest("read-file", "big") == content


def test_a_larger_file_is_too_large(guest: FsGuest, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.truncate((10 << 20) + 1)
    assert guest.refused("read-file", "big") == "too-large"
    with (work / "big").open("wb") as file:
        file.truncate(1 << 40)
    assert guest.refused("read-file", "big") == "too-large"
    assert guest("fs-stat", "big").size == 1 << 40


@pytest.mark.parametrize("appended", [1, 4, 1 << 16, 10 << 20])
def test_a_file_that_grows_while_it_is_read(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch, appended: int
) -> None:
    """What came meanwhile is read as well, within the limit."""
    (work / "log").write_bytes(b"abcd")
    true_fstat = os.fstat
    sizes: list[int] = []

    def fstat(fd: int) -> os.stat_result:
        status = true_fstat(fd)
        sizes.append(status.st_size)
        if len(sizes) != 2:  # the second is what tells how much to read
            return status
        with (work / "log").open("ab") as file:
            file.write(b"x" * appended)
        return status

    monkeypatch.setattr(os, "fstat", fstat)
    if appended == 10 << 20:
        assert guest.refused("read-file", "log") == "too-large"
    else:
        assert guest("read-file", "log") == b"abcd" + b"x" * appended


def test_a_folder_is_listed_by_bare_names_sorted(guest: FsGuest, work: Path) -> None:
    for name in ("b", "a", "B", ".hidden", "ü", "\U0001f600"):
        (work / "src" / name).touch()
    assert guest("fs-readdir", "src") == [".hidden", "B", "a", "a.txt", "b", "ü", "\U0001f600"]
    assert guest("fs-readdir", "home://") == [".config", ".local", "wit"]
    assert guest("fs-readdir", "home://.config") == []
    assert guest("fs-readdir", "/tmp") == []


def test_a_name_that_is_not_utf8_is_listed_all_the_same(guest: FsGuest, work: Path) -> None:
    with open(os.fsencode(work / "src") + b"/\xff.txt", "wb"):
        pass
    assert guest("fs-readdir", "src") == ["a.txt", "\ufffd.txt"]


def test_a_folder_of_many_names_is_listed_and_one_of_too_many_is_too_large(guest: FsGuest, work: Path) -> None:
    (work / "many").mkdir()
    for i in range(5000):
        (work / "many" / str(i)).touch()
    assert guest("fs-readdir", "many") == sorted(map(str, range(5000)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folders, "ENTRIES", 4999)
        assert guest.refused("fs-readdir", "many") == "too-large"
        patched.setattr(folders, "ENTRIES", 5000)
        assert len(guest("fs-readdir", "many")) == 5000
        patched.setattr(folders, "NAMES_BYTES", 18_000)
        assert guest.refused("fs-readdir", "many") == "too-large"


def test_homes_belong_to_principals_and_scratch_to_principal_and_capsule(
    fs: Fs, guest: FsGuest, tmp_path: Path
) -> None:
    guest("fs-readdir", "home://")
    guest("fs-readdir", "/tmp")
    (tmp_path / "state" / "homes" / "alice" / "note").write_bytes(b"home")
    (tmp_path / "state" / "scratch" / "alice" / "files" / "note").write_bytes(b"scratch")
    assert guest("read-file", "home://note") == b"home"
    assert guest("read-file", "/tmp/note") == b"scratch"
    assert FsGuest(fs, capsule="other")("read-file", "home://note") == b"home"
    assert not FsGuest(fs, principal="bob")("fs-exists", "home://note")
    assert not FsGuest(fs, principal="bob")("fs-exists", "/tmp/note")
    assert not FsGuest(fs, capsule="other")("fs-exists", "/tmp/note")


def test_no_call_leaves_a_file_open(fs: Fs, work: Path, special: dict[str, Path]) -> None:
    (work / "l").symlink_to("private/../src/a.txt")
    (work / "out").symlink_to("..")

    def everything() -> None:
        for name in READING:
            for rows in (EVERYWHERE, ("cwd://src",), ()):
                for path in (
                    "src",
                    "src/a.txt",
                    "l",
                    "out",
                    "missing",
                    "fifo",
                    "socket",
                    "home://",
                    "/tmp",
                    "src/a.txt/x",
                ):
                    try:
                        FsGuest(fs, rows)(name, path)
                    except HostError:
                        continue

    everything()
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    everything()
    assert len(os.listdir("/dev/fd")) == before
