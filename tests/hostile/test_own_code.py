"""What the host itself runs or trusts, in a workspace that holds it: a guest and its children read it, and nobody writes it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from fs_guest import FsGuest
from guests_in_wat import RETURNED, Guest, capsule, next_of
from processes import NEEDS_SANDBOX, bash, call

import astrid_host
from astrid_host import open_host
from astrid_host.bus import Bus
from astrid_host.capsules import trusted_in
from astrid_host.errors import HostError
from astrid_host.hostcalls.fs import Fs
from astrid_host.hostcalls.io.background import Background
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.process import Process, Tracker
from astrid_host.hostcalls.process.hiding import hidden_from
from astrid_host.installation import exposed_in, own_program

PLUGIN = "project/.venv/lib/plugin.py"
MANIFEST = "project/capsules/evil/Capsule.toml"
TRUSTED = ("project/.venv", "project/capsules", "project/start.py")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for name in (PLUGIN, MANIFEST, "project/start.py", "project/notes.txt", "free/x.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("as it was")
    (work / "to-venv").symlink_to("project/.venv")
    (work / "to-plugin").symlink_to(work / PLUGIN)
    (work / "free/up").symlink_to("../project")
    return work


@pytest.fixture
def roots(work: Path, tmp_path: Path) -> Iterator[Roots]:
    roots = Roots(work, tmp_path / "state", (), [work / name for name in TRUSTED])
    yield roots
    roots.close()


@pytest.fixture
def guest(roots: Roots) -> FsGuest:
    return FsGuest(Fs(roots), read=("*",), write=("*",))


def unchanged(work: Path) -> bool:
    return all((work / name).read_text() == "as it was" for name in (PLUGIN, MANIFEST, "project/start.py"))


FILES = (
    *(PLUGIN, MANIFEST, "project/start.py", "to-plugin", "to-venv/lib/plugin.py", "free/up/.venv/lib/plugin.py"),
    *(f"cwd://{PLUGIN}", "./project//.venv/./lib/plugin.py", "free/up/start.py"),
)


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize(
    "attack",
    [
        ("write-file", b"evil"),
        ("fs-append", b"evil"),
        ("fs-open", "write"),
        ("fs-open", "append"),
        ("fs-open", "read-write"),
        ("fs-hard-link", "other-name"),
    ],
    ids=lambda attack: " ".join(map(str, attack)),
)
def test_no_file_of_it_is_written(guest: FsGuest, work: Path, path: str, attack: tuple[Any, ...]) -> None:
    name, *arguments = attack
    assert guest.refused(name, path, *arguments) == "access"
    assert unchanged(work)


@pytest.mark.parametrize("path", [PLUGIN, MANIFEST, "project/start.py", "free/up/.venv/lib/plugin.py"])
def test_no_file_of_it_is_removed_moved_or_replaced(guest: FsGuest, work: Path, path: str) -> None:
    assert guest.refused("fs-unlink", path) == "access"
    assert guest.refused("fs-rename", path, "elsewhere") == "access"
    assert guest.refused("fs-rename", "free/x.txt", path) == "access"
    assert guest.refused("fs-copy", "free/x.txt", path) == "access"
    assert guest.refused("fs-hard-link", "free/x.txt", path) == "access"
    assert unchanged(work)


@pytest.mark.parametrize(
    "path", ["project/.venv/lib/x.pth", "to-venv/sitecustomize.py", "project/capsules/new/Capsule.toml"]
)
def test_nothing_is_added_to_it(guest: FsGuest, work: Path, path: str) -> None:
    assert guest.refused("write-file", path, b"evil") in ("access", "not-found")
    assert guest.refused("fs-mkdir-all", f"{path}/deep") == "access"
    assert guest.refused("fs-rename", "free/x.txt", path) in ("access", "not-found")
    assert not (work / path).exists()


@pytest.mark.parametrize(
    "path", ["project", "project/.venv", "project/.venv/lib", "project/capsules", "project/start.py"]
)
def test_neither_it_nor_what_it_lies_in_is_moved_or_removed(guest: FsGuest, work: Path, path: str) -> None:
    assert guest.refused("fs-rename", path, "moved") == "access"
    assert guest.refused("fs-remove-dir-all", path) in ("access", "not-directory")
    guest("fs-mkdir", "mine")
    assert guest.refused("fs-rename", "mine", path) == "access"
    assert unchanged(work)


def test_it_is_read_as_before_and_what_lies_beside_it_is_free(guest: FsGuest, work: Path) -> None:
    assert guest("read-file", PLUGIN) == b"as it was"
    assert guest("read-file", "to-plugin") == b"as it was"
    assert guest("fs-readdir", "project/.venv/lib") == ["plugin.py"]
    guest("fs-copy", MANIFEST, "free/copy.toml")
    guest("write-file", "project/notes.txt", b"new")
    guest("fs-rename", "project/notes.txt", "notes.txt")
    guest("fs-unlink", "to-venv")
    guest("fs-rename", "free", "project/free")
    assert unchanged(work)


def test_a_place_that_is_not_there_yet_is_made_by_nobody(work: Path, tmp_path: Path) -> None:
    guest = FsGuest(Fs(Roots(work, tmp_path / "state", (), [work / "lib/later"])), read=("*",), write=("*",))
    guest("fs-mkdir", "lib")
    assert guest.refused("fs-mkdir", "lib/later") == "access"
    assert guest.refused("write-file", "lib/later", b"") == "access"
    guest("fs-mkdir-all", "own/later")
    assert guest.refused("fs-rename", "own", "lib") == "access"
    assert not (work / "lib/later").exists()


def test_what_was_put_in_its_place_by_the_operator_is_kept_too(guest: FsGuest, roots: Roots, work: Path) -> None:
    (work / "project/start.py").unlink()
    (work / "project/start.py").write_text("as it was")
    assert guest.refused("write-file", "project/start.py", b"evil") == "access"
    roots.trust(())
    assert guest.refused("write-file", "free/up/start.py", b"evil") == "access"


def test_another_name_of_one_of_its_files_leads_to_a_file_of_its_own(guest: FsGuest, work: Path) -> None:
    """The name was there before the host was started."""
    (work / "free/twin.py").hardlink_to(work / PLUGIN)
    guest("fs-append", "free/twin.py", b"evil")
    guest("write-file", "free/twin.py", b"evil")
    assert unchanged(work)


def test_a_link_on_the_way_to_it_stays(work: Path, tmp_path: Path) -> None:
    """Whoever replaced it would choose what is run at the next start."""
    guest = FsGuest(Fs(Roots(work, tmp_path / "state", (), [work / "to-venv"])), read=("*",), write=("*",))
    assert guest.refused("fs-unlink", "to-venv") == "access"
    assert guest.refused("fs-rename", "to-venv", "x") == "access"
    assert guest.refused("fs-rename", "free", "to-venv") == "access"


# Children.


async def run(work: Path, state: Path, script: str) -> Any:
    """A script in the sandbox, in a workspace with trusted places."""
    roots, bus = Roots(work, state, (), [work / name for name in TRUSTED]), Bus()
    try:
        async with trio.open_nursery() as nursery:
            tell = trio.lowlevel.current_trio_token().run_sync_soon
            scheduler: Any = SimpleNamespace(
                lock=bus.lock, wake_loop=lambda: None, run_or_wake=lambda: None, call_soon=tell, closed=False
            )
            tracker = Tracker(bus, Background(scheduler, nursery), roots, state, True)
            try:
                return await Process(tracker).spawn(call(), bash(script))
            finally:
                nursery.cancel_scope.cancel()
    finally:
        tracker.close()
        roots.close()


ATTACKS = [
    f"echo evil > {PLUGIN}",
    f"echo evil >> {MANIFEST}",
    "echo evil > project/start.py",
    "echo evil > to-plugin",
    "echo evil > project/.venv/lib/x.pth; test ! -e project/.venv/lib/x.pth",
    "mkdir project/capsules/new; test ! -e project/capsules/new",
    f"rm -rf {PLUGIN} project/.venv",
    "mv project moved; mkdir -p project/.venv",
    "mv project/.venv x; mv project/capsules y; mv project/start.py z",
    f"ln {PLUGIN} twin && echo evil > twin",
    f"chmod 777 {PLUGIN}; chmod -R a+w project; echo evil > {PLUGIN}",
    f'python3 -c \'import os; os.rename("free", "project")\'; python3 -c \'import os; os.truncate("{PLUGIN}", 0)\'',
    f"cp --remove-destination free/x.txt {MANIFEST}; ln -sf /etc/passwd {MANIFEST}",
    f"mount -o remount,rw project/.venv; umount project/.venv; echo evil > {PLUGIN}",
    f"unshare -rm sh -c 'umount -l project/.venv; mount -o remount,rw,bind project/.venv; echo evil > {PLUGIN}'",
]


@NEEDS_SANDBOX
@pytest.mark.parametrize("script", ATTACKS)
async def test_no_child_changes_it(script: str, work: Path, tmp_path: Path) -> None:
    places = [work / name for name in ("project", *TRUSTED, PLUGIN, MANIFEST)]
    before = [place.stat().st_ino for place in places]
    ended = await run(work, tmp_path / "state", f"({script}); cat {PLUGIN} {MANIFEST}; touch free/done project/done")
    assert [place.stat().st_ino for place in places] == before
    assert unchanged(work)
    assert sorted(os.listdir(work / "project/capsules")) == ["evil"]
    assert ended.stdout == "as it was" * 2, "it is read as before"
    assert (work / "project/done").exists(), "what lies beside it is free"


@NEEDS_SANDBOX
def test_no_child_starts_where_a_link_of_the_workspace_leads_to_it(work: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (work / "venv").symlink_to(tmp_path / "elsewhere")
    roots = Roots(work, tmp_path / "state", (), [work / "venv"])
    roots.close()
    with pytest.raises(HostError) as caught:
        hidden_from(str(work), (), roots.trusted)
    assert f"the link {work}/venv, which is in the workspace" in (caught.value.detail or "")


# What it is.


def test_the_program_is_its_environment_its_package_and_what_comes_with_it(tmp_path: Path) -> None:
    own = [path.resolve() for path in own_program(tmp_path)]
    package = Path(astrid_host.__file__).resolve().parent
    for place in (sys.prefix, sys.base_prefix, sys.executable, str(package), *[one for one in sys.path if one]):
        assert Path(place).resolve() in own


def test_of_a_folder_on_the_path_of_modules_that_is_the_workspace_each_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_agent.py").write_text("")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_agent", "my_package"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    assert exposed_in(tmp_path) == [tmp_path]
    assert {tmp_path / "my_agent.py", tmp_path / "my_package"} <= set(own_program(tmp_path))
    assert exposed_in(tmp_path.parent) == []


def test_a_checkout_is_not_on_the_path_of_modules_of_what_is_installed_from_it() -> None:
    checkout = Path(astrid_host.__file__).resolve().parent.parent
    program = f"import sys; print({str(checkout)!r} in sys.path); import astrid_host"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, cwd="/", check=True)
    assert done.stdout == "False\n"


def test_capsules_folders_are_trusted_as_a_whole_unless_the_workspace_lies_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "given" / name).mkdir(parents=True)
        (tmp_path / "given" / name / "Capsule.toml").write_text("")
    (tmp_path / "given/b/b.wasm").write_text("")
    given = tmp_path / "given"
    assert trusted_in([given], tmp_path) == [given]
    assert trusted_in([given], given) == [given / "a", given / "b"]
    assert trusted_in([given], given / "b") == [
        *(given / "a", given / "b/Capsule.toml", given / "b/meta.json", given / "b/b.wasm"),
    ]


# A host around it.

WRITE = '(import "astrid:fs/host@1.0.0" "write-file" (func $write (param i32 i32 i32 i32 i32)))'
RENAME = '(import "astrid:fs/host@1.0.0" "fs-rename" (func $rename (param i32 i32 i32 i32 i32)))'


@pytest.mark.parametrize("given", ["capsules", "capsules/evil", "."], ids=["below", "itself", "the workspace"])
async def test_a_capsule_does_not_write_itself_more_rights(given: str, tmp_path: Path) -> None:
    """Neither in its own manifest nor by moving the folder that it lies in."""
    guest = Guest(WRITE, RENAME)
    more = '[package]\nname = "evil"\nversion = "1.0.1"\n[capabilities]\nhost_process = ["bash"]\n'
    place = tmp_path if given == "." else tmp_path / "capsules"
    below = "evil" if given == "." else "capsules/evil"
    done = f"(i32.const {RETURNED})"
    guest.handles(
        f"(call $write {guest.text(f'{below}/Capsule.toml')} {guest.text(more)} {done})"
        f"(call $write {guest.text(f'{below}/evil.wasm')} {guest.text('')} {done})"
        f"(call $rename {guest.text(below)} {guest.text('moved')} {done})"
        f"(call $rename {guest.text('capsules')} {guest.text('moved')} {done})"
        f"(call $write {guest.text('free.txt')} {guest.text('free')} {done})" + guest.say("e.done", "1")
    )
    folder = capsule(place, "evil", guest, {"e.go": "act"}, ["e.done"], capabilities={"fs_write": ["cwd://"]})
    before = (folder / "Capsule.toml").read_bytes()
    async with open_host([tmp_path / given], state_dir=":memory:", workspace=tmp_path) as host:
        async with host.subscribe("e.done") as events:
            host.publish("e.go", 1)
            await next_of(events)
        assert (folder / "Capsule.toml").read_bytes() == before
        assert (folder / "evil.wasm").stat().st_size > 0
        assert (tmp_path / "free.txt").read_text() == "free"
        await host.reload("evil")
        assert host.capsules["evil"].version == "1.0.0"


async def test_without_the_sandbox_it_is_said_what_is_not_held(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from processes import Processes  # noqa: F401 - the shape of a tracker in tests

    roots, bus = Roots(work, tmp_path / "state", (), [work / name for name in TRUSTED]), Bus()
    async with trio.open_nursery() as nursery:
        tell = trio.lowlevel.current_trio_token().run_sync_soon
        scheduler: Any = SimpleNamespace(
            lock=bus.lock, wake_loop=lambda: None, run_or_wake=lambda: None, call_soon=tell, closed=False
        )
        tracker = Tracker(bus, Background(scheduler, nursery), roots, tmp_path / "state", False)
        for _ in range(2):
            await Process(tracker).spawn(call(), bash("true"))
        nursery.cancel_scope.cancel()
    tracker.close()
    roots.close()
    said = [record.getMessage() for record in caplog.records if "without a sandbox" in record.getMessage()]
    assert len(said) == 1
    assert f"{work}/project/.venv" in said[0]
