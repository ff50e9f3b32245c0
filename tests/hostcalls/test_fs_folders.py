"""astrid:fs, what makes, removes, copies, moves and links: within a root, cancellable, with limits."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trio
from fs_guest import FsGuest

from astrid_host.hostcalls.fs import Fs, folders
from astrid_host.hostcalls.fs import content as contents

MIB = 1 << 20


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, with the content of files."""
    found: dict[str, bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    return found


def test_folders_are_made(guest: FsGuest, work: Path) -> None:
    guest("fs-mkdir", "new")
    guest("fs-mkdir", "new")
    guest("fs-mkdir-all", "new/a/b/c")
    guest("fs-mkdir-all", "new/a/b/c")
    assert (work / "new" / "a" / "b" / "c").is_dir()
    assert guest.refused("fs-mkdir", "x/y") == "not-found"
    assert guest.refused("fs-mkdir", "src/a.txt") == "already-exists"
    assert guest.refused("fs-mkdir-all", "src/a.txt") == "already-exists"
    assert guest.refused("fs-mkdir-all", "src/a.txt/x") == "not-directory"


def test_folders_are_made_where_links_inside_lead(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/deep")
    (work / "dangling").symlink_to("src/made")
    guest("fs-mkdir-all", "l/a/b")
    guest("fs-mkdir-all", "dangling/a")
    guest("fs-mkdir", "l")
    assert (work / "src" / "deep" / "a" / "b").is_dir()
    assert (work / "src" / "made" / "a").is_dir()


def test_the_deepest_path_is_made_and_removed(guest: FsGuest, work: Path) -> None:
    guest("fs-mkdir-all", "/".join("a" * 256))
    assert guest("fs-stat", "/".join("a" * 256)).kind == "directory"
    assert guest("fs-remove-dir-all", "a") == 256
    assert not (work / "a").exists()


def test_a_file_and_a_link_itself_are_removed(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    (work / "d").symlink_to("src")
    (work / "out").symlink_to("../outside/file")
    for path in ("l", "d", "out", "src/a.txt"):
        guest("fs-unlink", path)
        assert not os.path.lexists(work / path)
    assert guest.refused("fs-unlink", "src") == "is-directory"
    assert guest.refused("fs-unlink", "src/a.txt") == "not-found"
    assert (work.parent / "outside" / "file").read_bytes() == b"outside"


def test_a_folder_is_removed_with_all_in_it_and_links_are_not_followed(guest: FsGuest, work: Path) -> None:
    (work / "src" / "deep" / "out").symlink_to(work.parent / "outside")
    (work / "src" / "deep" / "in").symlink_to("../../private")
    os.mkfifo(work / "src" / "fifo")
    assert guest("fs-remove-dir-all", "src") == 6
    assert tree(work.parent / "outside") == {"file": b"outside"}
    assert tree(work) == {"private": None, "private/key": b"secret"}


def test_what_is_no_folder_is_not_removed_as_one(guest: FsGuest, work: Path) -> None:
    (work / "d").symlink_to("src")
    assert guest.refused("fs-remove-dir-all", "d") == "not-directory"
    assert guest.refused("fs-remove-dir-all", "src/a.txt") == "not-directory"
    assert guest.refused("fs-remove-dir-all", "missing") == "not-found"
    assert (work / "src" / "a.txt").exists()


def test_a_removal_holds_few_descriptors_however_deep_the_folder_is(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "DEPTH", 5)
    (work / "x" / "/".join("d" * 40)).mkdir(parents=True)
    (work / "x" / "/".join("d" * 40) / "file").touch()
    most, true_open = 0, os.open

    def counting(*arguments: object, **more: object) -> int:
        nonlocal most
        most = max(most, len(os.listdir("/dev/fd")))
        return true_open(*arguments, **more)  # type: ignore[arg-type]

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(os, "open", counting)
    assert guest("fs-remove-dir-all", "x") == 42
    assert most < before + 16  # the loop and the thread of this test have some as well
    assert not (work / "x").exists()


def test_a_folder_of_more_than_4096_entries_is_removed(guest: FsGuest, work: Path) -> None:
    (work / "many").mkdir()
    for i in range(5000):
        (work / "many" / str(i)).touch()
    assert guest("fs-remove-dir-all", "many") == 5001


def test_a_removal_ends_at_a_million_entries(guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "REMOVED", 3)
    (work / "few").mkdir()
    for i in range(3):
        (work / "few" / str(i)).touch()
    (work / "few" / "fourth").touch()
    assert guest.refused("fs-remove-dir-all", "few") == "too-large"
    assert guest("fs-remove-dir-all", "few") == 2


def test_what_somebody_else_removes_meanwhile_is_no_failure(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_unlink = os.unlink

    def unlink(name: str, **named: int) -> None:
        true_unlink(name, **named)
        true_unlink(name, **named)

    monkeypatch.setattr(os, "unlink", unlink)
    assert guest("fs-remove-dir-all", "src") == 2  # two folders: the file was removed by somebody else
    assert not (work / "src").exists()


def test_what_somebody_puts_into_a_folder_meanwhile_is_left(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_rmdir = os.rmdir

    def rmdir(name: str, **named: int) -> None:
        (work / "src" / "new").touch()
        true_rmdir(name, **named)

    monkeypatch.setattr(os, "rmdir", rmdir)
    assert guest.refused("fs-remove-dir-all", "src") == "not-empty"
    assert tree(work / "src") == {"new": b""}


async def test_a_cancelled_removal_ends(fs: Fs, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancellation comes with the first entry; nothing more is removed."""
    for i in range(100):
        (work / "src" / str(i)).touch()
    true_unlink, scope = os.unlink, trio.CancelScope()

    def unlink(*arguments: object, **more: object) -> None:
        true_unlink(*arguments, **more)  # type: ignore[arg-type]
        trio.from_thread.run_sync(scope.cancel)

    monkeypatch.setattr(os, "unlink", unlink)
    with scope:
        await FsGuest(fs).go("fs-remove-dir-all", "src")
    assert scope.cancelled_caught
    assert 100 <= len(os.listdir(work / "src")) <= 101


def test_a_file_is_copied_with_its_mode_into_any_root(guest: FsGuest, work: Path, tmp_path: Path) -> None:
    (work / "src" / "a.txt").chmod(0o750)
    guest("fs-copy", "src/a.txt", "copy")
    guest("fs-copy", "src/a.txt", "home://note")
    guest("fs-copy", "home://note", "/tmp/note")
    guest("fs-copy", "src/a.txt", "private/key")
    guest("fs-copy", "src/a.txt", "src/a.txt")
    assert (work / "copy").read_bytes() == b"hello" == guest("read-file", "/tmp/note")
    assert {stat.S_IMODE((work / name).stat().st_mode) for name in ("copy", "private/key", "src/a.txt")} == {0o750}
    assert (work / "private" / "key").read_bytes() == b"hello"
    assert guest.refused("fs-copy", "missing", "copy") == "not-found"


def test_a_copy_needs_the_right_to_read_its_source(fs: Fs) -> None:
    blind = FsGuest(fs, read=("cwd://src",))
    assert blind.refused("fs-copy", "private/key", "src/key") == "capability-denied"
    blind("fs-copy", "src/a.txt", "private/a.txt")


def test_a_large_copy_goes_to_a_thread_and_has_a_limit(
    guest: FsGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * MIB + 7)
    (work / "big").write_bytes(content)
    guest("fs-copy", "big", "copy")
    assert (work / "copy").read_bytes() == content
    monkeypatch.setattr(contents, "COPY_BYTES", 2 * MIB)
    assert guest.refused("fs-copy", "big", "again") == "too-large"
    assert sorted(os.listdir(work)) == ["big", "copy", "private", "src"]


async def test_a_cancelled_copy_ends_and_leaves_nothing(fs: Fs, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "big").write_bytes(bytes(8 * MIB))
    true_pread, scope = os.pread, trio.CancelScope()

    def pread(fd: int, count: int, offset: int) -> bytes:
        trio.from_thread.run_sync(scope.cancel)
        return true_pread(fd, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    with scope:
        await FsGuest(fs).go("fs-copy", "big", "copy")
    assert scope.cancelled_caught
    assert sorted(os.listdir(work)) == ["big", "private", "src"]


def test_files_folders_and_links_are_moved(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    guest("fs-rename", "l", "src/l")
    guest("fs-rename", "private", "src/deep/private")
    guest("fs-rename", "src/a.txt", "src/deep/private/key")
    assert (work / "src" / "l").is_symlink()
    assert tree(work / "src" / "deep") == {"private": None, "private/key": b"hello"}


def test_what_cannot_be_moved_stays(guest: FsGuest, work: Path) -> None:
    before = tree(work)
    for src, dst, case in (
        ("missing", "x", "not-found"),
        ("src", "src/deep/src", "invalid-path"),
        ("private", "src", "not-empty"),
        ("src/a.txt", "private", "is-directory"),
        ("private", "src/a.txt", "not-directory"),
        ("src/a.txt", "nowhere/x", "not-found"),
        ("src/a.txt", "home://x", "cross-vfs"),
        ("src/a.txt", "/tmp/x", "cross-vfs"),
        ("home://x", "/tmp/x", "cross-vfs"),
    ):
        assert guest.refused("fs-rename", src, dst) == case, (src, dst)
    assert tree(work) == before


@pytest.mark.parametrize("name", ["fs-rename", "fs-hard-link"])
def test_what_may_not_be_read_does_not_become_readable_by_another_name(fs: Fs, work: Path, name: str) -> None:
    half = FsGuest(fs, read=("cwd://src",))
    assert half.refused(name, "private/key", "src/key") == "capability-denied"
    if name == "fs-rename":
        assert half.refused(name, "private", "src/private") == "capability-denied"
    half(name, "private/key", "private/other")
    half(name, "src/a.txt", "private/a.txt")


def test_a_file_gets_a_second_name(guest: FsGuest, work: Path) -> None:
    (work / "l").symlink_to("src/a.txt")
    guest("fs-hard-link", "l", "second")
    assert os.path.samefile(work / "second", work / "src" / "a.txt")
    assert not (work / "second").is_symlink()
    assert guest.refused("fs-hard-link", "second", "src/a.txt") == "already-exists"
    assert guest.refused("fs-hard-link", "src", "third") == "is-directory"
    assert guest.refused("fs-hard-link", "missing", "third") == "not-found"
    assert guest.refused("fs-hard-link", "second", "home://third") == "cross-vfs"
