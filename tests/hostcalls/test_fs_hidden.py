"""A workspace that contains the host's own folders: they are no part of `cwd://`, and nothing takes their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from fs_guest import FsGuest

from astrid_host.errors import AstridError, HostError
from astrid_host.hostcalls.fs import Fs
from astrid_host.hostcalls.fs.folders import remove_folder
from astrid_host.hostcalls.paths import Roots, inode_of

STATE = ".local/share/host"
CACHE = ".cache/host/modules"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / STATE).mkdir(parents=True)
    (work / STATE / "secrets.json").write_text("secret")
    (work / ".local/bin").mkdir()
    (work / ".local/bin/tool").write_text("tool")
    (work / "to-state").symlink_to(STATE)
    (work / "to-secret").symlink_to(work / STATE / "secrets.json")
    (work / "to-modules").symlink_to(CACHE)
    return work


@pytest.fixture
def roots(work: Path) -> Iterator[Roots]:
    roots = Roots(work, work / STATE, (work / CACHE,))
    yield roots
    roots.close()


@pytest.fixture
def guest(roots: Roots) -> FsGuest:
    return FsGuest(Fs(roots), read=("*",), write=("*",))


@pytest.mark.parametrize(
    "path", [STATE, f"{STATE}/secrets.json", "to-state", "to-secret", "to-state/secrets.json", CACHE]
)
@pytest.mark.parametrize(
    "call",
    [
        ("fs-exists",),
        ("fs-stat",),
        ("fs-readdir",),
        ("fs-canonicalize",),
        ("read-file",),
        ("write-file", b""),
        ("fs-append", b""),
        ("fs-mkdir-all",),
        ("fs-open", "read"),
        ("fs-copy", "copy"),
        ("fs-hard-link", "name"),
    ],
)
def test_nothing_reaches_a_hidden_folder(guest: FsGuest, work: Path, path: str, call: tuple[object, ...]) -> None:
    name, *arguments = call
    assert guest.refused(str(name), path, *arguments) == "boundary-escape"
    assert (work / STATE / "secrets.json").read_text() == "secret"


def test_code_that_the_host_loads_at_its_next_start_is_not_written(guest: FsGuest, work: Path) -> None:
    """Also at the very first start, when the cache folder was not there yet."""
    for folder in (CACHE, "to-modules"):
        assert guest.refused("write-file", f"{folder}/x.module", b"evil") == "boundary-escape"
    assert list((work / CACHE).iterdir()) == []


@pytest.mark.parametrize("path", [".local", ".local/share", ".cache", ".cache/host", STATE, CACHE])
def test_what_a_hidden_folder_lies_in_is_neither_moved_nor_removed(guest: FsGuest, work: Path, path: str) -> None:
    assert guest.refused("fs-rename", path, "moved") in ("access", "boundary-escape")
    assert guest.refused("fs-remove-dir-all", path) in ("access", "boundary-escape")
    guest("fs-mkdir", "empty")
    assert guest.refused("fs-rename", "empty", path) in ("access", "boundary-escape")
    assert (work / STATE / "secrets.json").exists()
    assert (work / ".local/bin/tool").exists(), "the refusal came after a part was removed"


def test_nobody_makes_a_hidden_folder_that_was_removed_meanwhile(guest: FsGuest, work: Path) -> None:
    """A person empties the cache while the host runs; the host makes it anew at need."""
    shutil.rmtree(work / ".cache")
    guest("fs-mkdir-all", ".cache/host")
    assert guest.refused("fs-mkdir", CACHE) == "boundary-escape"
    assert guest.refused("fs-mkdir-all", f"{CACHE}/x") == "boundary-escape"
    assert guest.refused("write-file", CACHE, b"") == "boundary-escape"
    shutil.rmtree(work / ".cache")
    guest("fs-mkdir-all", "mine/host/modules")
    assert guest.refused("fs-rename", "mine", ".cache") == "access"
    (work / CACHE).mkdir(parents=True)
    assert guest.refused("write-file", "to-modules/x.module", b"evil") == "boundary-escape"


def test_what_lies_beside_a_hidden_folder_is_as_usual(guest: FsGuest) -> None:
    assert guest("read-file", ".local/bin/tool") == b"tool"
    assert guest("fs-readdir", ".local") == ["bin", "share"]
    guest("fs-rename", ".local/bin", "bin")
    assert guest("fs-remove-dir-all", "bin") == 2
    guest("fs-unlink", "to-state")
    assert guest("fs-exists", "to-state") is False


def test_a_link_that_the_host_goes_through_to_its_folder_stays(tmp_path: Path) -> None:
    """Whoever replaced it would choose what the host takes for its cache at the next start."""
    work = tmp_path / "work"
    (work / "disk/modules").mkdir(parents=True)
    (work / ".cache").symlink_to("./disk/../disk")
    guest = FsGuest(Fs(Roots(work, tmp_path / "state", (work / ".cache/modules",))))
    guest("write-file", "new", b"")
    for name, *arguments in (
        ("fs-unlink", ".cache"),
        ("fs-rename", ".cache", "x"),
        ("fs-rename", "new", ".cache"),
        ("fs-rename", "disk", "x"),
        ("fs-remove-dir-all", "disk"),
    ):
        assert guest.refused(name, *arguments) == "access"
    assert guest.refused("fs-readdir", ".cache/modules") == "boundary-escape"


def test_homes_and_scratch_folders_in_a_hidden_state_folder_work(guest: FsGuest, work: Path) -> None:
    everywhere = FsGuest(Fs(Roots(work, work / STATE)))
    for path in ("home://a/b", "/tmp/a/b"):
        everywhere("fs-mkdir-all", path)
        everywhere("write-file", f"{path}/file", b"mine")
        assert everywhere("read-file", f"{path}/file") == b"mine"
        assert everywhere("fs-remove-dir-all", path) == 2
    assert guest.refused("read-file", f"{STATE}/homes/alice/a") == "boundary-escape"


def test_a_removal_that_comes_to_a_hidden_folder_by_a_mount_leaves_it(work: Path) -> None:
    """What a mount does, without one: the folder is known by its inode alone."""
    hidden = {inode_of((work / STATE).stat())}
    fd = os.open(work, os.O_RDONLY)
    try:
        with pytest.raises(HostError) as caught:
            remove_folder(fd, ".local", lambda: None, hidden)
    finally:
        os.close(fd)
    assert caught.value.case == "access"
    assert (work / STATE / "secrets.json").exists()


@pytest.mark.parametrize("below", ["", "homes/alice/project"])
def test_a_workspace_in_the_state_folder_is_refused(tmp_path: Path, below: str) -> None:
    workspace = tmp_path / "state" / below
    workspace.mkdir(parents=True)
    (tmp_path / "link").symlink_to(workspace)
    for path in (workspace, tmp_path / "link"):
        with pytest.raises(AstridError, match=r"the workspace .* lies in .*state, .*give a workspace outside"):
            Roots(path, tmp_path / "state")


def test_a_workspace_beside_the_homes_in_the_state_folder_sees_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / "state/work/sub").mkdir(parents=True)
    (tmp_path / "state/secrets.json").write_text("secret")
    guest = FsGuest(Fs(Roots(tmp_path / "state/work", tmp_path / "state")), read=("*",), write=("*",))
    assert guest("fs-readdir", ".") == ["sub"]
    assert guest.refused("read-file", "../secrets.json") == "boundary-escape"


def test_a_cache_folder_that_cannot_be_made_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Roots(tmp_path, tmp_path / "state", (tmp_path / "file" / "modules",)).close()


@pytest.mark.parametrize("row", ["cwd://pub/inner", "cwd://pub/inner/", "cwd://pub/inner/key", "cwd://pub"])
def test_a_folder_does_not_take_what_may_not_be_read_to_where_it_may(tmp_path: Path, row: str) -> None:
    work = tmp_path / "work"
    (work / "x/inner").mkdir(parents=True)
    (work / "x/inner/key").write_text("secret")
    guest = FsGuest(Fs(Roots(work, tmp_path / "state")), read=(row, "cwd://public"), write=("cwd://",))
    assert guest.refused("fs-rename", "x", "pub") == "capability-denied"
    guest("fs-rename", "x", "publication")
    guest("fs-rename", "publication/inner", "publication/pub")


async def test_links_with_many_dots_end_a_walk_soon(tmp_path: Path) -> None:
    """Each goes up a hundred folders and down again, which opened a folder 200,000 times."""
    work = tmp_path / "work"
    deep = work.joinpath(*["d"] * 120)
    deep.mkdir(parents=True)
    for i in range(40):
        (deep / f"l{i}").symlink_to("../" * 100 + "d/" * 100 + f"l{i + 1}")
    guest = FsGuest(Fs(Roots(work, tmp_path / "state")))
    (deep / "once").symlink_to("../" * 10 + "d/" * 10)
    assert await guest.go("fs-exists", "d/" * 120 + "once") is True
    started = trio.current_time()
    with pytest.raises(HostError) as caught:
        await guest.go("fs-exists", "d/" * 120 + "l0")
    assert (caught.value.case, "folders on the way" in (caught.value.detail or "")) == ("invalid-path", True)
    assert trio.current_time() - started < 0.1
