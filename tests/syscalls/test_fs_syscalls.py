"""astrid:fs, the reading half: gates first, then what is there; nothing outside a root, nothing that blocks."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from astrid_host.errors import HostError
from astrid_host.manifest import Capabilities, Manifest, Package
from astrid_host.syscalls.fs import Datetime, Fs
from astrid_host.syscalls.paths import Roots

EVERYWHERE = ("cwd://", "home://", "/tmp")


def call(*fs_read: str, principal: str = "alice", capsule: str = "files") -> Any:
    manifest = Manifest(Package(capsule, "1.0.0"), capabilities=Capabilities(fs_read=fs_read, fs_write=("*",)))
    return SimpleNamespace(principal=principal, capsule=SimpleNamespace(id=capsule, manifest=manifest), message=None)


CALL = call(*EVERYWHERE)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "a.txt").write_bytes(b"hello")
    (work / "private").mkdir()
    (work / "private" / "key").write_bytes(b"secret")
    (tmp_path / "outside").write_bytes(b"outside")
    return work


@pytest.fixture
def fs(work: Path, tmp_path: Path) -> Iterator[Fs]:
    roots = Roots(work, tmp_path / "state")
    yield Fs(roots)
    roots.close()


FUNCTIONS: dict[str, Callable[[Fs, Any, str], object]] = {
    "fs-exists": Fs.fs_exists,
    "fs-stat": Fs.fs_stat,
    "fs-readdir": Fs.fs_readdir,
    "read-file": Fs.read_file,
}
ALL = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def case(run: Callable[[], object]) -> str:
    with pytest.raises(HostError) as caught:
        run()
    return caught.value.case


def test_it_has_the_reading_half_of_the_interface_and_none_of_it_waits(fs: Fs) -> None:
    functions = fs.functions()
    assert sorted(functions) == sorted(FUNCTIONS)
    assert not any(function.waits or function.suspends for function in functions.values())


@pytest.mark.parametrize("path", ["src/a.txt", "/src/a.txt", "cwd://src/a.txt", "./src//a.txt", "cwd:///src/./a.txt"])
def test_every_spelling_of_a_path_reads_the_same_file(fs: Fs, path: str) -> None:
    assert fs.read_file(CALL, path) == b"hello"
    assert fs.fs_exists(CALL, path)
    assert fs.fs_stat(CALL, path).size == 5


@ALL
@pytest.mark.parametrize(
    "path", ["private/key", "private", "private/missing", "missing", "home://x", "/tmp/x", "", "a/b/c"]
)
def test_what_no_row_covers_is_denied_whether_it_is_there_or_not(
    fs: Fs, function: Callable[[Fs, Any, str], object], path: str
) -> None:
    for rows in ((), ("cwd://src",), ("home://.config", "/etc", "private")):
        assert case(lambda rows=rows: function(fs, call(*rows), path)) == "capability-denied"  # type: ignore[misc]


def test_a_denial_names_the_line_to_write(fs: Fs) -> None:
    with pytest.raises(HostError) as caught:
        fs.read_file(call(), "home://x")
    assert '[capabilities] fs_read = ["home://"]' in caught.value.detail
    assert caught.value.payload is None


@ALL
@pytest.mark.parametrize("path", ["../outside", "src/../../outside", "..", "/..", "home://..", "/tmp/../x"])
def test_two_dots_are_an_escape(fs: Fs, function: Callable[[Fs, Any, str], object], path: str) -> None:
    assert case(lambda: function(fs, CALL, path)) == "boundary-escape"


@ALL
def test_a_path_that_is_none_is_invalid(fs: Fs, function: Callable[[Fs, Any, str], object]) -> None:
    assert case(lambda: function(fs, CALL, "a\0b")) == "invalid-path"
    assert case(lambda: function(fs, CALL, "a" * 256)) == "invalid-path"


@ALL
def test_a_link_out_of_the_root_is_an_escape(fs: Fs, work: Path, function: Callable[[Fs, Any, str], object]) -> None:
    (work / "up").symlink_to("..")
    (work / "file").symlink_to("../outside")
    (work / "abs").symlink_to(work.parent / "outside")
    for path in ("up", "up/outside", "file", "abs"):
        assert case(lambda path=path: function(fs, CALL, path)) == "boundary-escape"  # type: ignore[misc]


def test_links_inside_are_followed(fs: Fs, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    (work / "d").symlink_to(work / "src")
    assert fs.read_file(CALL, "l") == b"hello"
    assert fs.fs_stat(CALL, "l").kind == "regular"
    assert fs.fs_readdir(CALL, "d") == ["a.txt"]
    assert fs.read_file(CALL, "d/a.txt") == b"hello"


@ALL
def test_where_a_row_covers_a_part_only_links_do_not_lead_out_of_it(
    fs: Fs, work: Path, function: Callable[[Fs, Any, str], object]
) -> None:
    """Nor do they tell what is there."""
    (work / "src" / "l").symlink_to("../private/key")
    (work / "src" / "d").symlink_to("../private")
    (work / "src" / "gone").symlink_to("../private/gone")
    limited = call("cwd://src")
    for path in ("src/l", "src/d", "src/d/key", "src/d/missing", "src/d/key/x", "src/gone"):
        assert case(lambda path=path: function(fs, limited, path)) == "capability-denied"  # type: ignore[misc]


def test_where_a_row_covers_a_part_links_inside_it_are_followed(fs: Fs, work: Path) -> None:
    (work / "src" / "l").symlink_to("../src/a.txt")
    limited = call("cwd://src")
    assert fs.read_file(limited, "src/l") == b"hello"
    assert fs.fs_readdir(limited, "src") == ["a.txt", "l"]
    assert not fs.fs_exists(limited, "src/missing")
    assert case(lambda: fs.read_file(limited, "src/missing")) == "not-found"


@pytest.mark.parametrize("path", ["missing", "src/missing", "missing/x", "src/a.txt/x", "dangling"])
def test_what_is_not_there_does_not_exist(fs: Fs, work: Path, path: str) -> None:
    (work / "dangling").symlink_to("gone")
    expected = "not-directory" if path == "src/a.txt/x" else "not-found"
    assert fs.fs_exists(CALL, path) is False
    assert case(lambda: fs.fs_stat(CALL, path)) == expected
    assert case(lambda: fs.read_file(CALL, path)) == expected
    assert case(lambda: fs.fs_readdir(CALL, path)) == expected


def test_an_error_does_not_tell_where_on_the_host_a_root_lies(fs: Fs, work: Path) -> None:
    for path in ("missing", "src", "src/a.txt/x"):
        with pytest.raises(HostError) as caught:
            fs.read_file(CALL, path)
        assert caught.value.payload is None


def test_files_and_folders_are_told_apart(fs: Fs) -> None:
    assert case(lambda: fs.read_file(CALL, "src")) == "is-directory"
    assert case(lambda: fs.read_file(CALL, "")) == "is-directory"
    assert case(lambda: fs.fs_readdir(CALL, "src/a.txt")) == "not-directory"
    assert fs.fs_exists(CALL, "src")
    assert fs.fs_exists(CALL, "cwd://")


def test_a_stat_has_size_kind_mode_and_times(fs: Fs, work: Path) -> None:
    file = work / "src" / "a.txt"
    file.chmod(0o640)
    os.utime(file, ns=(1_700_000_001_000_000_002, -1_500_000_000))
    status = fs.fs_stat(CALL, "src/a.txt")
    assert (status.size, status.kind, status.mode) == (5, "regular", 0o640)
    assert status.accessed == Datetime(1_700_000_001, 2)
    assert status.modified == Datetime(-2, 500_000_000)
    assert fs.fs_stat(CALL, ".").kind == "directory"


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
def test_what_is_no_file_is_seen_and_never_opened(fs: Fs, special: dict[str, Path], kind: str) -> None:
    """A read of a fifo without a writer would never return."""
    assert fs.fs_exists(CALL, kind)
    assert fs.fs_stat(CALL, kind).kind == kind
    assert case(lambda: fs.read_file(CALL, kind)) == "access"
    assert case(lambda: fs.fs_readdir(CALL, kind)) == "not-directory"
    assert case(lambda: fs.read_file(CALL, f"{kind}/x")) == "not-directory"


def test_a_device_is_not_read(tmp_path: Path) -> None:
    roots = Roots(Path("/dev"), tmp_path / "state")
    fs = Fs(roots)
    assert fs.fs_stat(CALL, "zero").kind == "character-device"
    assert case(lambda: fs.read_file(CALL, "zero")) == "access"
    roots.close()


def test_a_file_that_becomes_a_fifo_at_the_last_moment_does_not_block(fs: Fs, work: Path) -> None:
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
                    seen.add(fs.read_file(CALL, "x"))
                except HostError as error:
                    seen.add(error.case.encode())
    finally:
        done.set()
        thread.join()
    assert seen == {b"file", b"access"}


@pytest.mark.parametrize("size", [0, 1, 65536, (10 << 20) - 1, 10 << 20])
def test_a_file_of_ten_mebibytes_is_read_as_a_whole(fs: Fs, work: Path, size: int) -> None:
    content = os.urandom(size)
    (work / "big").write_bytes(content)
    assert fs.read_file(CALL, "big") == content


def test_a_larger_file_is_too_large(fs: Fs, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.truncate((10 << 20) + 1)
    assert case(lambda: fs.read_file(CALL, "big")) == "too-large"
    with (work / "big").open("wb") as file:
        file.truncate(1 << 40)
    assert case(lambda: fs.read_file(CALL, "big")) == "too-large"
    assert fs.fs_stat(CALL, "big").size == 1 << 40


@pytest.mark.parametrize("appended", [1, 4, 1 << 16, 10 << 20])
def test_a_file_that_grows_while_it_is_read(fs: Fs, work: Path, monkeypatch: pytest.MonkeyPatch, appended: int) -> None:
    """What came meanwhile is read as well, within the limit."""
    (work / "log").write_bytes(b"abcd")
    true_fstat = os.fstat

    def fstat(fd: int) -> os.stat_result:
        status = true_fstat(fd)
        with (work / "log").open("ab") as file:
            file.write(b"x" * appended)
        return status

    monkeypatch.setattr(os, "fstat", fstat)
    if appended == 10 << 20:
        assert case(lambda: fs.read_file(CALL, "log")) == "too-large"
    else:
        assert fs.read_file(CALL, "log") == b"abcd" + b"x" * appended


def test_a_folder_is_listed_by_bare_names_sorted(fs: Fs, work: Path) -> None:
    for name in ("b", "a", "B", ".hidden", "ü", "\U0001f600"):
        (work / "src" / name).touch()
    assert fs.fs_readdir(CALL, "src") == [".hidden", "B", "a", "a.txt", "b", "ü", "\U0001f600"]
    assert fs.fs_readdir(CALL, "home://") == [".config"]
    assert fs.fs_readdir(CALL, "home://.config") == []
    assert fs.fs_readdir(CALL, "/tmp") == []


def test_a_name_that_is_not_utf8_is_listed_all_the_same(fs: Fs, work: Path) -> None:
    with open(os.fsencode(work / "src") + b"/\xff.txt", "wb"):
        pass
    assert fs.fs_readdir(CALL, "src") == ["a.txt", "\ufffd.txt"]


def test_a_folder_of_more_than_4096_entries_is_too_large(fs: Fs, work: Path) -> None:
    (work / "many").mkdir()
    for i in range(4096):
        (work / "many" / str(i)).touch()
    assert len(fs.fs_readdir(CALL, "many")) == 4096
    (work / "many" / "one-more").touch()
    assert case(lambda: fs.fs_readdir(CALL, "many")) == "too-large"


def test_homes_belong_to_principals_and_scratch_to_principal_and_capsule(fs: Fs, tmp_path: Path) -> None:
    fs.fs_readdir(CALL, "home://")
    fs.fs_readdir(CALL, "/tmp")
    (tmp_path / "state" / "homes" / "alice" / "note").write_bytes(b"home")
    (tmp_path / "state" / "scratch" / "alice" / "files" / "note").write_bytes(b"scratch")
    assert fs.read_file(CALL, "home://note") == b"home"
    assert fs.read_file(CALL, "/tmp/note") == b"scratch"
    assert fs.read_file(call(*EVERYWHERE, capsule="other"), "home://note") == b"home"
    assert not fs.fs_exists(call(*EVERYWHERE, principal="bob"), "home://note")
    assert not fs.fs_exists(call(*EVERYWHERE, principal="bob"), "/tmp/note")
    assert not fs.fs_exists(call(*EVERYWHERE, capsule="other"), "/tmp/note")


def test_no_call_leaves_a_file_open(fs: Fs, work: Path, special: dict[str, Path]) -> None:
    (work / "l").symlink_to("private/../src/a.txt")
    (work / "out").symlink_to("..")

    def everything() -> None:
        for function in FUNCTIONS.values():
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
                        function(fs, call(*rows), path)
                    except HostError:
                        continue

    everything()
    before = len(os.listdir("/dev/fd"))
    everything()
    assert len(os.listdir("/dev/fd")) == before
