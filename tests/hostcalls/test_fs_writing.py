"""astrid:fs, what changes files: rights first, whole files at once, nothing outside a root, nothing left behind."""

from __future__ import annotations

import gc
import os
import stat
from pathlib import Path

import pytest
import trio
from fs_guest import EVERYWHERE, FsGuest

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs import Fs, gated

MIB = 1 << 20


# Each function that changes something, on one path that the tests choose; the other path of two is a harmless one.
CHANGES: dict[str, tuple[object, ...]] = {
    "write-file": ("{}", b"new"),
    "fs-append": ("{}", b"new"),
    "fs-mkdir": ("{}",),
    "fs-mkdir-all": ("{}",),
    "fs-unlink": ("{}",),
    "fs-remove-dir-all": ("{}",),
    "fs-copy": ("src/a.txt", "{}"),
    "fs-rename": ("src/a.txt", "{}"),
    "fs-rename from": ("{}", "src/moved"),
    "fs-hard-link": ("src/a.txt", "{}"),
    "fs-hard-link from": ("{}", "src/linked"),
    "fs-open write": ("{}", "write"),
    "fs-open append": ("{}", "append"),
    "fs-open read-write": ("{}", "read-write"),
}
ALL = pytest.mark.parametrize("change", CHANGES)


def refused(guest: FsGuest, change: str, path: str) -> str:
    arguments = (argument.format(path) if isinstance(argument, str) else argument for argument in CHANGES[change])
    return guest.refused(change.split()[0], *arguments)


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, with the content of files."""
    found: dict[str, bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    return found


@ALL
@pytest.mark.parametrize("path", ["private/key", "private/missing", "missing", "a/b"])
def test_what_no_row_covers_is_not_changed_whether_it_is_there_or_not(
    fs: Fs, work: Path, change: str, path: str
) -> None:
    before = tree(work)
    for rows in ((), ("cwd://src",), ("home://.config", "/etc", "private")):
        assert refused(FsGuest(fs, write=rows), change, path) == "capability-denied"
    assert tree(work) == before


@ALL
def test_two_dots_and_links_that_lead_out_are_an_escape(guest: FsGuest, work: Path, change: str) -> None:
    (work / "up").symlink_to("../outside")
    (work / "abs").symlink_to(work.parent / "outside")
    before = tree(work.parent)
    for path in ("../outside/file", "src/../../outside/file", "up/file", "abs/file", "up/new", "/..", "home://../x"):
        assert refused(guest, change, path) == "boundary-escape", path
    assert tree(work.parent) == before


def test_absolute_paths_below_the_workspace_are_its_files_and_others_are_refused(guest: FsGuest, work: Path) -> None:
    guest("fs-mkdir", f"{work}/etc")
    guest("write-file", f"{work}/etc/hostname", b"mine")
    guest("fs-append", "cwd:///etc/hostname", b"!")
    guest("fs-rename", f"file://{work}/etc/hostname", f"//{work}/./name")
    assert (work / "name").read_bytes() == b"mine!"
    before = sorted(work.rglob("*"))
    for path in ("/etc/hostname", "/name", "/", f"/x{work}/name", "file:///etc/hostname", f"file://host{work}/name"):
        for name, more in (("write-file", [b"x"]), ("fs-mkdir-all", []), ("fs-unlink", []), ("read-file", [])):
            assert guest.refused(name, path, *more) == "boundary-escape", (name, path)
    assert sorted(work.rglob("*")) == before


@ALL
def test_a_path_that_is_none_is_invalid(guest: FsGuest, change: str) -> None:
    for path in ("a\0b", "a" * 256, "/".join("a" * 257), "a" * 5000):
        assert refused(guest, change, path) == "invalid-path"


@ALL
def test_where_a_row_covers_a_part_links_do_not_lead_out_of_it(fs: Fs, work: Path, change: str) -> None:
    (work / "src" / "d").symlink_to("../private")
    before = tree(work)
    limited = FsGuest(fs, write=("cwd://src",))
    for path in ("src/d/key", "src/d/new", "src/d/new/x"):
        assert refused(limited, change, path) == "capability-denied", path
    assert tree(work) == before


@ALL
def test_a_root_itself_is_neither_a_file_nor_moved_nor_removed(guest: FsGuest, work: Path, change: str) -> None:
    if change.startswith("fs-mkdir"):
        guest(change, "cwd://")
        return
    before = tree(work)
    case = refused(guest, change, "cwd://")
    assert case in ("access", "is-directory", "already-exists")
    assert tree(work) == before


def test_a_file_is_created_and_replaced(guest: FsGuest, work: Path) -> None:
    guest("write-file", "src/new", b"one")
    assert (work / "src" / "new").read_bytes() == b"one"
    guest("write-file", "cwd://src/new", b"")
    assert (work / "src" / "new").read_bytes() == b""
    assert sorted(os.listdir(work / "src")) == ["a.txt", "deep", "new"]


@pytest.mark.parametrize("name", ["two\nlines", "tab\t", " ", "-rf", "ü\U0001f600", "a" * 255, "'\"\\"])
def test_odd_names_are_names(guest: FsGuest, work: Path, name: str) -> None:
    guest("write-file", f"src/{name}", b"x")
    assert guest("read-file", f"src/{name}") == b"x"
    assert name in guest("fs-readdir", "src")
    guest("fs-unlink", f"src/{name}")
    assert not (work / "src" / name).exists()


def test_a_new_file_has_the_mode_of_any_new_file_and_a_replaced_one_keeps_its_own(guest: FsGuest, work: Path) -> None:
    umask = os.umask(0o027)
    try:
        guest("write-file", "new", b"x")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o640
    (work / "new").chmod(0o751)
    guest("write-file", "new", b"y")
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o751


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
def test_a_replaced_file_keeps_its_owner_and_loses_rights_to_act_as_the_owner(guest: FsGuest, work: Path) -> None:
    os.chown(work / "src" / "a.txt", 1234, 2345)
    (work / "src" / "a.txt").chmod(0o6755)
    guest("write-file", "src/a.txt", b"y")
    status = (work / "src" / "a.txt").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, 0o755)


def test_a_write_through_a_link_replaces_what_the_link_leads_to(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    (work / "dangling").symlink_to("src/made")
    guest("write-file", "l", b"1")
    guest("write-file", "dangling", b"2")
    guest("fs-append", "l", b"+")
    assert (work / "l").is_symlink()
    assert (work / "src" / "a.txt").read_bytes() == b"1+"
    assert (work / "src" / "made").read_bytes() == b"2"


@pytest.mark.parametrize("failing", ["write", "fchmod", "rename"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    assert guest.refused("write-file", "src/a.txt", b"new") == "quota"
    assert guest.refused("fs-copy", "private/key", "src/a.txt") == "quota"
    monkeypatch.undo()
    assert tree(work / "src") == {"a.txt": b"hello", "deep": None}


def test_readers_see_the_old_file_or_the_new_one(guest: FsGuest, work: Path) -> None:
    with (work / "src" / "a.txt").open("rb") as reading:
        guest("write-file", "src/a.txt", b"other")
        assert reading.read() == b"hello"
    assert (work / "src" / "a.txt").read_bytes() == b"other"


@pytest.mark.parametrize("size", [gated.SHORT_BYTES, gated.SHORT_BYTES + 1, 10 * MIB])
def test_ten_mebibytes_are_written_and_appended(guest: FsGuest, work: Path, size: int) -> None:
    content = os.urandom(size)
    guest("write-file", "big", content)
    guest("fs-append", "big", content)
    assert (work / "big").read_bytes() == content * 2


def test_more_is_too_large(guest: FsGuest, work: Path) -> None:
    for name in ("write-file", "fs-append"):
        assert guest.refused(name, "big", bytes(10 * MIB + 1)) == "too-large"
    assert not (work / "big").exists()


def test_a_file_is_appended_to_and_made_for_that(guest: FsGuest, work: Path) -> None:
    guest("fs-append", "src/a.txt", b" world")
    guest("fs-append", "src/log", b"line\n")
    guest("fs-append", "src/log", b"line\n")
    assert (work / "src" / "a.txt").read_bytes() == b"hello world"
    assert (work / "src" / "log").read_bytes() == b"line\nline\n"


def test_what_is_no_file_is_not_written(guest: FsGuest, work: Path) -> None:
    os.mkfifo(work / "fifo")
    for name, *more in (("write-file", b"x"), ("fs-append", b"x"), ("fs-open", "write"), ("fs-open", "append")):
        assert guest.refused(name, "src", *more) == "is-directory"
        assert guest.refused(name, "fifo", *more) == "access"
        assert guest.refused(name, "src/a.txt/x", *more) == "not-directory"
        assert guest.refused(name, "missing/x", *more) == "not-found"
    for mode in ("read", "read-write"):
        assert guest.refused("fs-open", "fifo", mode) == "access"
    assert guest.refused("fs-copy", "fifo", "copy") == "access"
    assert guest.refused("fs-copy", "src/a.txt", "fifo") == "access"
    assert guest.refused("fs-copy", "src", "copy") == "is-directory"
    assert guest.refused("fs-copy", "src/a.txt", "src") == "is-directory"
    assert guest.refused("fs-hard-link", "fifo", "link") == "access"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
def test_a_device_is_neither_read_nor_written(guest: FsGuest, work: Path) -> None:
    os.mknod(work / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for name, *more in (("write-file", b"x"), ("fs-append", b"x"), ("fs-open", "write"), ("fs-open", "read")):
        assert guest.refused(name, "null", *more) == "access"
    assert guest.refused("fs-copy", "null", "copy") == "access"
    assert stat.S_ISCHR((work / "null").stat().st_mode)


@pytest.mark.parametrize("size", [5, 300_000])
def test_a_file_that_has_a_name_outside_is_never_changed_there(guest: FsGuest, work: Path, size: int) -> None:
    outside = work.parent / "outside" / "file"
    outside.write_bytes(b"o" * size)
    changes = [
        ("write-file", b"new"),
        ("fs-append", b"new"),
        *(("fs-open", m) for m in ("write", "append", "read-write")),
    ]
    for number, (name, more) in enumerate(changes):
        path = f"shared{number}"
        os.link(outside, work / path)
        done = guest(name, path, more)
        if name == "fs-open":
            guest.file("write-at", done, 0, b"new")
            guest.file("set-len", done, 2)
        assert outside.read_bytes() == b"o" * size
        assert (work / path).read_bytes()[:1] in (b"n", b"o")
    assert (work / "shared0").read_bytes() == b"new"
    assert (work / "shared1").read_bytes() == b"o" * size + b"new"
    guest("fs-unlink", "shared0")
    assert outside.exists()


def test_a_large_file_with_another_name_is_not_copied_to_be_appended_to(guest: FsGuest, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.truncate(10 * MIB + 1)
    os.link(work / "big", work / "other")
    assert guest.refused("fs-append", "big", b"x") == "too-large"
    assert guest.refused("fs-open", "big", "append") == "too-large"


def test_a_file_that_may_not_be_written_is_not_replaced(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the folder that it is in would allow it."""
    monkeypatch.setattr(os, "access", lambda *arguments, **more: False)
    assert guest.refused("write-file", "src/a.txt", b"new") == "access"
    assert guest.refused("fs-copy", "private/key", "src/a.txt") == "access"
    assert (work / "src" / "a.txt").read_bytes() == b"hello"


def test_no_change_leaves_a_file_open_or_a_temporary_one(fs: Fs, work: Path) -> None:
    (work / "out").symlink_to("..")
    paths = (
        "src",
        "src/a.txt",
        "new",
        "out/x",
        "missing/x",
        "home://",
        "home://wit/x",
        "/tmp/x",
        "src/a.txt/x",
        "src/deep",
    )

    def everything() -> None:
        for change, arguments in CHANGES.items():
            for rows in (EVERYWHERE, ("cwd://src",), ()):
                for path in paths:
                    guest = FsGuest(fs, write=rows)
                    given = [part.format(path) if isinstance(part, str) else part for part in arguments]
                    trio.run(_try, guest, change.split()[0], given)
                    for handle in guest.handles.held:
                        handle.close()

    everything()
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    everything()
    assert len(os.listdir("/dev/fd")) == before
    assert not list(work.parent.rglob(".astrid-*"))


async def _try(guest: FsGuest, name: str, arguments: list[object]) -> None:
    try:
        await guest.go(name, *arguments)
    except HostError:
        return
