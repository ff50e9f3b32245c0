"""A command in the sandbox changes nothing of the kernel's, also when the host is root."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from processes import NEEDS_SANDBOX, PYTHON, call, processes, refused, request

from astrid_host.gates.process import may_spawn
from astrid_host.hostcalls.process import remains_of_root
from astrid_host.hostcalls.process.hiding import Hidden
from astrid_host.hostcalls.process.kernel_files import kernel_covers
from astrid_host.hostcalls.process.places import Grants
from astrid_host.hostcalls.process.programs import candidates

ROOT = not os.getuid()

# Tries to open for writing everything below a folder; says what it could open. Nothing is written.
LOOK = """
import os, stat, sys
def look(folder, deep):
    try: entries = list(os.scandir(folder))
    except OSError: return
    for entry in entries:
        if entry.is_symlink() or (folder == "/proc" and entry.name.isdigit()): continue
        if entry.is_dir(follow_symlinks=False):
            if deep: look(entry.path, deep - 1)
            continue
        try: os.close(os.open(entry.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        print("opened", entry.path)
for folder in sys.argv[1:]: look(folder, 7)
for path in ("/proc/sys/kernel/x", "/sys/x", "/sys/fs/cgroup/x"):
    try: os.mkdir(path); print("made", path)
    except OSError: pass
"""


@NEEDS_SANDBOX
@pytest.mark.parametrize("folder", ["/proc", "/sys/kernel", "/sys/fs", "/sys/power", "/sys/module"])
async def test_no_file_of_the_kernel_can_be_opened_for_writing(folder: str, tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        ended = await at.functions.spawn(call(), request(PYTHON, "-c", LOOK, folder))
        opened = [line for line in ended.stdout.splitlines() if not line.endswith(("/proc/kmsg",))]
        assert (opened, ended.stderr) == ([], "")


@NEEDS_SANDBOX
@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/kpagecount"])
async def test_what_tells_of_memory_and_keys_is_empty(path: str, tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        assert (await at.run(f"cat {path}; ls /proc/acpi /sys/firmware")).stdout.replace(":", "").split() in (
            [],
            ["/proc/acpi", "/sys/firmware"],
            ["/sys/firmware"],
        )


@NEEDS_SANDBOX
async def test_no_device_but_a_few_is_there(tmp_path: Path) -> None:
    async with processes(tmp_path, True) as at:
        listed = set((await at.run("ls /dev")).stdout.split())
        assert listed <= {
            *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"),
            *("tty", "urandom", "zero"),
        }
        assert (await at.run("mknod disk b 8 0; cat disk")).stdout == ""


@NEEDS_SANDBOX
async def test_its_host_name_and_its_user_are_its_own(tmp_path: Path) -> None:
    before = socket.gethostname()
    async with processes(tmp_path, True) as at:
        script = "cat /proc/sys/kernel/hostname; readlink /proc/self/ns/uts; hostname other; id -u; id -un; touch mine"
        name, space, uid, *user = (await at.run(script)).stdout.split()
        assert name == "localhost"
        assert space != os.readlink("/proc/self/ns/uts")
        assert int(uid) != 0
        assert user, "programs that ask for the name of their user find one"
        assert (at.work / "mine").stat().st_uid == os.getuid()
    assert socket.gethostname() == before


@pytest.mark.skipif(not ROOT, reason="nothing remains of a root that the host is not")
@NEEDS_SANDBOX
def test_what_remains_for_root_is_said() -> None:
    assert "the host is root" in (remains_of_root() or "")


def test_every_folder_and_writable_file_at_the_top_of_proc_is_covered() -> None:
    covers = kernel_covers()
    for entry in os.scandir("/proc") if os.path.isdir("/proc/self") else ():
        if not entry.name.isdigit() and not entry.is_symlink():
            writable = entry.is_dir() or entry.stat(follow_symlinks=False).st_mode & 0o222
            assert not writable or entry.path in covers


# Which program a name stands for.


def program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("sandboxed", [False, pytest.param(True, marks=NEEDS_SANDBOX)])
async def test_a_command_is_not_looked_up_where_guests_write(
    sandboxed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with processes(tmp_path / "here", sandboxed) as at:
        program(at.work / "bin", "cat", "evil")
        program(at.work, "cat", "evil")
        (tmp_path / "link").symlink_to(at.work / "bin")
        (tmp_path / "links").mkdir()
        (tmp_path / "links/cat").symlink_to(at.work / "bin/cat")
        untrusted = [str(at.work / "bin"), str(tmp_path / "link"), str(tmp_path / "links"), "", ".", "bin"]
        monkeypatch.setenv("PATH", os.pathsep.join([*untrusted, os.environ["PATH"]]))
        ended = await at.functions.spawn(call(), request("cat", stdin=b"true"))
        assert ended.stdout == "true"


@pytest.mark.parametrize(
    "command", ["git ", "git /../../bin/sh", "/bin/sh", "./git", "git/../sh", "../git", "git\0", ""]
)
@pytest.mark.parametrize("sandboxed", [False, pytest.param(True, marks=NEEDS_SANDBOX)])
async def test_a_row_of_one_command_starts_no_other(command: str, sandboxed: bool, tmp_path: Path) -> None:
    async with processes(tmp_path, sandboxed) as at:
        program(at.work / "git ", "sh", "evil")
        program(at.work, "git", "evil")
        error = await refused(at.functions.spawn(call(rows=("git",)), request(command, "-c", "echo evil")))
        assert error.case == "capability-denied"


@pytest.mark.parametrize("sandboxed", [False, pytest.param(True, marks=NEEDS_SANDBOX)])
async def test_an_argument_is_an_argument_whatever_it_says(sandboxed: bool, tmp_path: Path) -> None:
    said = ["; touch evil", "$(touch evil)", "a b", "", "--", "\n"]
    async with processes(tmp_path, sandboxed) as at:
        code = "import sys; print(sys.argv[1:])"
        by = call(rows=(f"{PYTHON} -c",))
        assert (await at.functions.spawn(by, request(PYTHON, "-c", code, *said))).stdout == f"{said}\n"
        assert os.listdir(at.work) == []
        assert may_spawn(by.capsule.manifest, PYTHON, ["-m", "http.server"]) is not None


def test_a_program_in_a_folder_that_the_host_keeps_is_found(tmp_path: Path) -> None:
    program(tmp_path / "w/.venv/bin", "tool", "x")
    allowed = Grants(str(tmp_path / "w"), str(tmp_path / "h"), str(tmp_path / "s"), None)
    path = str(tmp_path / "w/.venv/bin")
    kept = Hidden((), (), (), (), (str(tmp_path / "w/.venv"),))
    assert candidates("tool", path, allowed, None) == []
    assert candidates("tool", path, allowed, Hidden((), (), (), ())) == []
    assert candidates("tool", path, allowed, kept) == [f"{path}/tool"]
    assert candidates("/opt/tool", path, allowed, kept) == ["/opt/tool"]
