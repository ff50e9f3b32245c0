"""What a home shows: the loaded capsules and the WIT packages, read where they are, and never written to."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fs_guest import FsGuest

from astrid_host.hostcalls.fs import Fs, Views
from astrid_host.hostcalls.paths import Roots

CAPSULES = "home://.local/capsules"


@pytest.fixture
def loaded(tmp_path: Path) -> dict[str, Path]:
    """Two capsules in folders of other names, with more in them than is shown."""
    for name in ("one", "two"):
        folder = tmp_path / "installed" / f"{name}-1.0"
        folder.mkdir(parents=True)
        (folder / "Capsule.toml").write_text(f"# {name}")
        (folder / "secret.wasm").write_bytes(b"wasm")
    (tmp_path / "installed" / "one-1.0" / "meta.json").write_text("{}")
    return {name: tmp_path / "installed" / f"{name}-1.0" for name in ("one", "two")}


@pytest.fixture
def wit(tmp_path: Path) -> Path:
    (tmp_path / "wit" / "deps").mkdir(parents=True)
    (tmp_path / "wit" / "fs.wit").write_text("package astrid:fs;")
    (tmp_path / "wit" / "deps" / "io.wit").write_text("package astrid:io;")
    return tmp_path / "wit"


@pytest.fixture
def guest(tmp_path: Path, loaded: dict[str, Path], wit: Path) -> Iterator[FsGuest]:
    (tmp_path / "work").mkdir()
    roots = Roots(tmp_path / "work", tmp_path / "state")
    yield FsGuest(Fs(roots, Views(lambda: loaded, wit)))
    roots.close()


@pytest.fixture
def home(guest: FsGuest, tmp_path: Path) -> Path:
    guest("fs-readdir", "home://")
    return tmp_path / "state" / "homes" / "alice"


def test_a_home_is_born_with_its_folders(guest: FsGuest) -> None:
    assert guest("fs-readdir", "home://") == [".config", ".local", "wit"]
    assert guest("fs-readdir", "home://.local") == ["capsules"]
    guest("write-file", "home://.config/spark.toml", b"x")
    assert guest("fs-readdir", "home://.config") == ["spark.toml"]


def test_loaded_capsules_are_listed_and_read(guest: FsGuest, loaded: dict[str, Path]) -> None:
    assert guest("fs-readdir", CAPSULES) == ["one", "two"]
    assert guest("fs-readdir", f"{CAPSULES}/one") == ["Capsule.toml", "meta.json"]
    assert guest("fs-readdir", f"{CAPSULES}/two/") == ["Capsule.toml"]
    assert guest("read-file", f"{CAPSULES}/two/Capsule.toml") == b"# two"
    assert guest("read-file", f"{CAPSULES}/one/meta.json") == b"{}"
    handle = guest("fs-open", f"{CAPSULES}/one/Capsule.toml", "read")
    assert guest.file("read-at", handle, 2, 10) == b"one"
    handle.close()
    del loaded["two"]
    assert guest("fs-readdir", CAPSULES) == ["one"]
    assert guest.refused("read-file", f"{CAPSULES}/two/Capsule.toml") == "not-found"


def test_wit_packages_are_listed_and_read(guest: FsGuest) -> None:
    assert guest("fs-readdir", "home://wit") == ["deps", "fs.wit"]
    assert guest("read-file", "home://wit/deps/io.wit") == b"package astrid:io;"
    guest("fs-copy", "home://wit/fs.wit", "home://mine.wit")
    assert guest("read-file", "home://mine.wit") == b"package astrid:fs;"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (CAPSULES, "directory"),
        (f"{CAPSULES}/one", "directory"),
        (f"{CAPSULES}/one/Capsule.toml", "regular"),
        ("home://wit", "directory"),
        ("home://wit/deps", "directory"),
        ("home://wit/fs.wit", "regular"),
    ],
)
def test_what_is_shown_answers_every_question(guest: FsGuest, path: str, kind: str) -> None:
    assert guest("fs-exists", path)
    assert guest("fs-stat", path).kind == kind == guest("fs-stat-symlink", path).kind
    assert guest("fs-canonicalize", path) == path
    assert guest.refused("fs-read-link", path) in ("invalid-path", "is-directory")
    if kind == "directory":
        assert guest.refused("read-file", path) == "is-directory"
        assert guest.refused("fs-open", path, "read") == "is-directory"
        assert guest.refused("fs-copy", path, "x") == "is-directory"


@pytest.mark.parametrize("below", ["three", "three/Capsule.toml", "one/secret.wasm", "one/x/y", "one/Capsule.toml/x"])
def test_nothing_else_is_shown(guest: FsGuest, below: str) -> None:
    assert not guest("fs-exists", f"{CAPSULES}/{below}")
    assert guest.refused("read-file", f"{CAPSULES}/{below}") in ("not-found", "not-directory")


@pytest.mark.parametrize("path", ["home://wit", "home://wit/fs.wit", "home://wit/new", CAPSULES, f"{CAPSULES}/one",
                                  f"{CAPSULES}/one/Capsule.toml", f"{CAPSULES}/new/x"])  # fmt: skip
def test_nothing_of_it_is_written_moved_or_removed(
    guest: FsGuest, path: str, home: Path, loaded: dict[str, Path]
) -> None:
    guest("write-file", "home://x", b"x")
    for name, *arguments in (
        ("write-file", path, b"x"),
        ("fs-append", path, b"x"),
        ("fs-mkdir", path),
        ("fs-mkdir-all", path),
        ("fs-unlink", path),
        ("fs-remove-dir-all", path),
        ("fs-rename", path, "home://y"),
        ("fs-rename", "home://x", path),
        ("fs-copy", "home://x", path),
        ("fs-hard-link", path, "home://y"),
        ("fs-hard-link", "home://x", path),
        ("fs-open", path, "write"),
        ("fs-open", path, "append"),
        ("fs-open", path, "read-write"),
    ):
        assert guest.refused(name, *arguments) == "access", name
    assert sorted(os.listdir(home)) == [".config", ".local", "wit", "x"]
    assert os.listdir(home / "wit") == os.listdir(home / ".local" / "capsules") == []
    assert (loaded["one"] / "Capsule.toml").read_text() == "# one"


def test_the_folder_above_stays_where_it_is_and_is_the_home_s_own(guest: FsGuest) -> None:
    assert guest.refused("fs-remove-dir-all", "home://.local") == "access"
    assert guest.refused("fs-rename", "home://.local", "home://x") == "access"
    assert guest.refused("fs-rename", "home://.config", "home://.local") == "access"
    guest("write-file", "home://.local/mine", b"x")
    assert guest("fs-readdir", "home://.local") == ["capsules", "mine"]


def test_links_lead_into_what_is_shown_and_not_out_of_it(guest: FsGuest, home: Path, wit: Path, tmp_path: Path) -> None:
    (home / "l").symlink_to("wit")
    (home / "c").symlink_to(".local/capsules/one/Capsule.toml")
    (home / "back").symlink_to("wit/../.config")
    (wit / "out").symlink_to("../installed")
    (wit / "in").symlink_to("deps/io.wit")
    assert guest("read-file", "home://l/fs.wit") == b"package astrid:fs;"
    assert guest("read-file", "home://c") == b"# one"
    assert guest("fs-canonicalize", "home://l/in") == "home://wit/deps/io.wit"
    assert guest("fs-read-link", "home://wit/in") == "home://wit/deps/io.wit"
    assert guest.refused("write-file", "home://l/new", b"x") == "access"
    for path in ("home://wit/out", "home://wit/out/one-1.0/secret.wasm", "home://back"):
        assert guest.refused("fs-readdir", path) == "boundary-escape"
    assert guest.refused("fs-read-link", "home://wit/out") == "boundary-escape"


def test_rights_count_there_as_everywhere(tmp_path: Path, loaded: dict[str, Path], wit: Path) -> None:
    roots = Roots(tmp_path, tmp_path / "state")
    fs = Fs(roots, Views(lambda: loaded, wit))
    assert FsGuest(fs, ("cwd://",)).refused("fs-readdir", "home://wit") == "capability-denied"
    limited = FsGuest(fs, ("home://wit/deps",))
    assert limited("fs-readdir", "home://wit/deps") == ["io.wit"]
    assert limited.refused("read-file", "home://wit/fs.wit") == "capability-denied"
    assert limited.refused("fs-readdir", CAPSULES) == "capability-denied"
    roots.close()


def test_a_host_that_shows_nothing_has_empty_folders(tmp_path: Path) -> None:
    roots = Roots(tmp_path, tmp_path / "state")
    guest = FsGuest(Fs(roots))
    assert guest("fs-readdir", "home://wit") == guest("fs-readdir", CAPSULES) == []
    assert guest.refused("read-file", "home://wit/fs.wit") == "not-found"
    assert guest.refused("write-file", "home://wit/fs.wit", b"x") == "access"
    roots.close()


def test_a_home_in_which_a_link_stands_for_a_folder_works_and_the_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state" / "homes" / "alice").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "state" / "homes" / "alice" / ".local").symlink_to(tmp_path / "outside")
    roots = Roots(tmp_path, tmp_path / "state")
    guest = FsGuest(Fs(roots))
    assert guest("fs-readdir", "home://wit") == []
    assert guest.refused("fs-readdir", CAPSULES) == "boundary-escape"
    assert os.listdir(tmp_path / "outside") == []
    roots.close()


def test_looking_leaves_no_file_open(guest: FsGuest) -> None:
    def look() -> None:
        for path in (CAPSULES, f"{CAPSULES}/one", f"{CAPSULES}/one/Capsule.toml", "home://wit/fs.wit", "home://wit/x"):
            guest("fs-exists", path)

    look()
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    look()
    assert len(os.listdir("/dev/fd")) == before
