"""Guests' paths: how they are read, and that no walk ever leaves its root."""

from __future__ import annotations

import gc
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import AstridError, HostError
from astrid_host.hostcalls import paths
from astrid_host.hostcalls.fs.walk import Stopped, walk
from astrid_host.hostcalls.paths import Root, Roots
from astrid_host.hostcalls.spellings import Place, place


@pytest.mark.parametrize(
    ("path", "spelling"),
    [
        ("a/b", "cwd://a/b"),
        ("cwd://a/b", "cwd://a/b"),
        ("cwd:///a//b/", "cwd://a/b"),
        ("cwd://", "cwd://"),
        (".", "cwd://"),
        ("./", "cwd://"),
        ("", "cwd://"),
        ("./src/./x", "cwd://src/x"),
        ("home://x", "home://x"),
        ("home://", "home://"),
        ("home://./.config//spark.toml", "home://.config/spark.toml"),
        ("/tmp", "/tmp"),
        ("/tmp/", "/tmp"),
        ("/tmp/a/b", "/tmp/a/b"),
        ("//tmp/./a", "/tmp/a"),
        ("tmp/a", "cwd://tmp/a"),
        ("cwd:///tmp/a", "cwd://tmp/a"),
        ("workspace://x", "cwd://workspace:/x"),
        ("HOME://x", "cwd://HOME:/x"),
        ("...", "cwd://..."),
        ("..a/b..", "cwd://..a/b.."),
        ("ü/\u202e/\U0001f600", "cwd://ü/\u202e/\U0001f600"),
        ("\uff0e\uff0e/x", "cwd://\uff0e\uff0e/x"),  # looks like `..`, is a name
        ("a\\..\\b", "cwd://a\\..\\b"),
    ],
)
def test_a_path_is_read_as_a_place(path: str, spelling: str) -> None:
    assert str(place(path)) == spelling


@pytest.mark.parametrize(
    "path", ["..", "a/..", "../a", "/..", "home://..", "cwd://a/../b", "/tmp/..", "./..", "//..//"]
)
def test_two_dots_are_an_escape_wherever_they_stand(path: str) -> None:
    with pytest.raises(HostError) as caught:
        place(path)
    assert caught.value.case == "boundary-escape"


@pytest.mark.parametrize(
    "path", ["a\0b", "\0", "a" * 256, "ü" * 128, "a/" * 2048 + "b", "b" * 5000, "/".join("a" * 257)]
)
def test_what_no_file_system_would_take_is_an_invalid_path(path: str) -> None:
    with pytest.raises(HostError) as caught:
        place(path)
    assert caught.value.case == "invalid-path"


@given(st.text(st.sampled_from("./\\:ahomecwdtp \0\u2024\uff0f"), max_size=24))
def test_every_text_is_a_place_or_a_typed_error(path: str) -> None:
    escapes = path.startswith("/") and [part for part in path.split("/") if part not in ("", ".")][:1] != ["tmp"]
    if "\0" in path or ".." in path.split("/") or escapes:
        with pytest.raises(HostError) as caught:
            place(path)
        assert caught.value.case in ("boundary-escape", "invalid-path")
        return
    found = place(path)
    assert not {"", ".", ".."} & set(found.segments)
    assert not any("/" in segment for segment in found.segments)
    assert place(str(found)) == found


def inode(fd: int, name: str, _segments: tuple[str, ...]) -> int | None:
    """What a walk finds at its end, for tests: an inode number."""
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    return None if stat.S_ISLNK(status.st_mode) else status.st_ino


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root beside something that is not to be reached."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("in")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("out")
    return root


def root_of(path: Path) -> Root:
    return Root(Path(os.path.realpath(path)), os.open(path, os.O_RDONLY | os.O_DIRECTORY))


def go(root: Path, path: str) -> int:
    return walk(root_of(root), place(path).segments, inode)


@pytest.mark.parametrize(
    ("link", "target", "path", "found"),
    [
        ("l", "a/file", "l", "a/file"),
        ("l", "a", "l/file", "a/file"),
        ("l", ".", "l/l/a/file", "a/file"),
        ("a/l", "..", "a/l/a/file", "a/file"),
        ("a/b/l", "../../a/./file", "a/b/l", "a/file"),
        ("a/b/l", "../..", "a/b/l", "."),
        ("l", "{root}/a/file", "l", "a/file"),
        ("l", "{root}", "l", "."),
        ("l", "{root}/a/b/../file", "l", "a/file"),
        ("a/b/l", "//{root}//a/", "a/b/l/file", "a/file"),
    ],
)
def test_links_that_stay_inside_are_followed(tree: Path, link: str, target: str, path: str, found: str) -> None:
    (tree / link).symlink_to(target.format(root=tree))
    assert go(tree, path) == (tree / found).stat().st_ino


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("l", "..", "l"),
        ("l", "../outside/secret", "l"),
        ("l", "../outside", "l/secret"),
        ("l", "/", "l/etc"),
        ("l", "/etc/passwd", "l"),
        ("a/l", "../../outside/secret", "a/l"),
        ("a/l", "../../root/a/file", "a/l"),  # it comes back in, but by way of the outside
        ("l", "{root}/../outside/secret", "l"),
        ("l", "{root}x", "l"),
        ("l", "{root}/..", "l"),
        ("l", "/proc/self/root", "l/etc"),
        ("l", "/proc/self/cwd", "l"),
    ],
)
def test_a_link_that_leads_out_is_an_escape(tree: Path, link: str, target: str, path: str) -> None:
    (tree / link).symlink_to(target.format(root=tree))
    with pytest.raises(HostError) as caught:
        go(tree, path)
    assert caught.value.case == "boundary-escape"


def test_a_chain_of_links_is_as_safe_as_one(tree: Path) -> None:
    """The last of ten links leads out."""
    (tree / "l0").symlink_to("../outside/secret")
    for i in range(1, 10):
        (tree / f"l{i}").symlink_to(f"a/../l{i - 1}")
    with pytest.raises(HostError) as caught:
        go(tree, "l9")
    assert caught.value.case == "boundary-escape"


@pytest.mark.parametrize("length", [40, 41])
def test_forty_links_are_followed_and_no_more(tree: Path, length: int) -> None:
    (tree / "l0").symlink_to("a/file")
    for i in range(1, length):
        (tree / f"l{i}").symlink_to(f"l{i - 1}")
    if length == 40:
        assert go(tree, "l39") == (tree / "a" / "file").stat().st_ino
        return
    with pytest.raises(HostError) as caught:
        go(tree, "l40")
    assert caught.value.case == "invalid-path"


def test_a_link_to_itself_ends(tree: Path) -> None:
    (tree / "l").symlink_to("l")
    with pytest.raises(HostError) as caught:
        go(tree, "l/x")
    assert caught.value.case == "invalid-path"


@pytest.mark.parametrize(
    ("path", "case", "segments"),
    [
        ("x", "not-found", ("x",)),
        ("a/x/y/z", "not-found", ("a", "x", "y", "z")),
        ("a/file/x", "not-directory", ("a", "file", "x")),
        ("l/x/y", "not-found", ("a", "b", "x", "y")),
        ("dangling", "not-found", ("a", "gone")),
    ],
)
def test_where_a_walk_ends_is_told_with_links_followed(
    tree: Path, path: str, case: str, segments: tuple[str, ...]
) -> None:
    (tree / "l").symlink_to("a/b")
    (tree / "dangling").symlink_to("a/gone")
    with pytest.raises(Stopped) as caught:
        go(tree, path)
    assert (caught.value.case, caught.value.segments) == (case, segments)


def test_a_walk_closes_what_it_opens(tree: Path) -> None:
    (tree / "out").symlink_to("a/b/../../../outside")
    (tree / "in").symlink_to("a/b/../file")
    root = root_of(tree)
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for path in ("a/file", "in", "a/b", "x", "a/x/y", "a/file/x", "."):
        try:
            walk(root, place(path).segments, inode)
        except HostError:
            continue
    with pytest.raises(HostError):
        walk(root, ["out"], inode)
    assert len(os.listdir("/dev/fd")) == before


def test_no_swap_of_links_under_way_lets_a_walk_out(tree: Path) -> None:
    """A thread makes one name a folder, a link to it, and a link out of the root, over and over."""
    outside = (tree.parent / "outside" / "secret").stat().st_ino
    (tree / "folder").mkdir()
    (tree / "folder" / "secret").write_text("mine")
    inside = (tree / "folder" / "secret").stat().st_ino
    (tree / "a" / "x").symlink_to("../folder")
    done = threading.Event()

    def flip() -> None:
        for target in iter_forever(["../../outside", "../folder", "/etc", f"{tree.parent}/outside"]):
            if done.is_set():
                return
            os.symlink(target, tree / "a" / "next")
            os.rename(tree / "a" / "next", tree / "a" / "x")
            os.rename(tree / "folder", tree / "moved")
            os.symlink("../outside", tree / "folder")
            os.unlink(tree / "folder")
            os.rename(tree / "moved", tree / "folder")

    root = root_of(tree)
    thread = threading.Thread(target=flip)
    thread.start()
    try:
        found = {attempt(root, path) for _ in range(3000) for path in ("a/x/secret", "folder/secret")}
    finally:
        done.set()
        thread.join()
    assert outside not in found
    assert found <= {inside, "boundary-escape", "not-found", "not-directory"}
    assert {inside, "boundary-escape"} <= found, "the test has seen neither side of the swap"


def iter_forever(items: list[str]) -> Iterator[str]:
    while True:
        yield from items


def attempt(root: Root, path: str) -> int | str:
    try:
        return walk(root, path.split("/"), inode)
    except HostError as error:
        return error.case


def test_a_folder_that_is_moved_out_during_a_walk_does_not_take_the_walk_along(tree: Path) -> None:
    """`..` in a link goes to where the walk came from, not to the moved folder's new parent."""
    (tree / "a" / "b" / "l").symlink_to("../file")
    moved = tree.parent / "outside" / "b"
    (tree.parent / "outside" / "file").write_text("out")

    def reach(fd: int, name: str, segments: tuple[str, ...]) -> int | None:
        if segments == ("a", "b", "l"):
            (tree / "a" / "b").rename(moved)
        return inode(fd, name, segments)

    assert walk(root_of(tree), ["a", "b", "l"], reach) == (tree / "a" / "file").stat().st_ino


def test_homes_and_scratch_folders_are_private_and_apart(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    roots = Roots(tmp_path / "work", tmp_path / "state")
    known = [
        roots.root("home", "alice", "notes"),
        roots.root("home", "bob", "notes"),
        roots.root("tmp", "alice", "notes"),
        roots.root("tmp", "alice", "other"),
        roots.root("tmp", "bob", "notes"),
        roots.root("cwd", "alice", "notes"),
    ]
    assert len({os.fstat(root.fd).st_ino for root in known}) == 6
    assert {stat.S_IMODE(os.fstat(root.fd).st_mode) for root in known[:5]} == {0o700}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert sorted(os.listdir(known[0].fd)) == [".config", ".local", "wit"]
    assert roots.root("home", "alice", "another") is known[0]
    assert roots.root("cwd", "bob", "x") is known[5]
    roots.close()


def test_principals_that_differ_only_in_case_have_different_folders(tmp_path: Path) -> None:
    """Also where the file system takes both names for one."""
    roots = Roots(tmp_path, tmp_path / "state")
    for principal in ("alice", "Alice", "ALICE", "a-1", "007", "_"):
        roots.root("home", principal, "x")
    names = [path.name for path in (tmp_path / "state" / "homes").iterdir()]
    assert len({name.lower() for name in names}) == len(names) == 6
    assert {"alice", "a-1", "007", "_"} <= set(names)
    roots.close()


@pytest.mark.parametrize("principal", ["", ".", "..", "a/b", "../x", "a" * 65, "a\0", "ü", "a b", "x\n"])
def test_a_name_that_is_no_principal_has_no_folder(tmp_path: Path, principal: str) -> None:
    roots = Roots(tmp_path, tmp_path / "state")
    with pytest.raises(HostError) as caught:
        roots.root("home", principal, "x")
    assert caught.value.case == "access"
    with pytest.raises(HostError) as caught:
        roots.root("tmp", principal, "x")
    assert caught.value.case == "access"
    roots.close()


def test_a_name_that_is_no_capsule_has_no_folder(tmp_path: Path) -> None:
    roots = Roots(tmp_path, tmp_path / "state")
    for capsule in ("", "..", "a/b", "Notes", "a" * 129):
        with pytest.raises(HostError) as caught:
            roots.root("tmp", "default", capsule)
        assert caught.value.case == "access"
    roots.close()


def test_a_home_that_somebody_replaced_by_a_link_is_not_entered(tmp_path: Path) -> None:
    roots = Roots(tmp_path, tmp_path / "state")
    (tmp_path / "state" / "homes").mkdir()
    (tmp_path / "state" / "homes" / "alice").symlink_to("/etc")
    with pytest.raises(HostError) as caught:
        roots.root("home", "alice", "x")
    assert caught.value.case == "access"
    roots.close()


def test_descriptors_of_many_principals_are_bounded_and_no_walk_loses_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "OPEN_ROOTS", 4)
    roots = Roots(tmp_path, tmp_path / "state")
    first = roots.root("home", "p0", "x")
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for i in range(1, 50):
        roots.root("home", f"p{i}", "x")
    assert len(os.listdir("/dev/fd")) <= before + 4
    assert walk(first, [".config"], inode) == (tmp_path / "state" / "homes" / "p0" / ".config").stat().st_ino
    again = roots.root("home", "p0", "x")
    assert os.path.sameopenfile(first.fd, again.fd)
    roots.close()


def test_a_workspace_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for given_path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(AstridError, match=r"the workspace .*/(missing|file) cannot be opened.*give a folder"):
            Roots(given_path, tmp_path / "state")


def test_a_place_in_scratch_has_one_spelling() -> None:
    assert str(Place("tmp", ())) == "/tmp"
    assert str(Place("tmp", ("a",))) == "/tmp/a"
