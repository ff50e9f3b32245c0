"""One host runs with a state folder; what a killed one left behind is used again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from astrid_host.control.places import LOCK, AlreadyRunning, locked, running_pid, socket_path
from astrid_host.errors import AstridError
from astrid_host.sockets import PATH_BYTES


def test_a_second_host_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    assert running_pid(tmp_path) is None
    with locked(tmp_path):
        assert running_pid(tmp_path) == os.getpid()
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}") as refused, locked(tmp_path):
            raise AssertionError("it was let in")
        assert refused.value.pid == os.getpid()
    assert running_pid(tmp_path) is None
    with locked(tmp_path) as path:
        assert path == socket_path(tmp_path)


def test_what_a_killed_host_left_behind_is_used_again(tmp_path: Path) -> None:
    code = """
import os, socket, sys
from pathlib import Path
from astrid_host.control.places import locked
with locked(Path(sys.argv[1])) as path:
    socket.socket(socket.AF_UNIX).bind(str(path))
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert socket_path(tmp_path).is_socket()
    assert (tmp_path / "run" / LOCK).read_text().isdigit()
    assert running_pid(tmp_path) is None
    with locked(tmp_path) as path:
        assert not path.exists()


def test_a_path_too_long_for_a_socket_is_replaced_by_a_short_one_that_is_always_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    path = socket_path(deep)
    assert len(os.fsencode(path)) <= PATH_BYTES
    assert path == socket_path(deep) != socket_path(deep / "z")
    with locked(deep) as found:
        assert found == path
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AstridError, match="own"), locked(tmp_path / "state"):
        raise AssertionError("it was used")


@pytest.mark.parametrize("what", ["fifo", "link", "folder"])
def test_what_is_no_file_is_no_lock_and_holds_up_nobody(tmp_path: Path, what: str) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    lock = tmp_path / "run" / LOCK
    if what == "fifo":
        os.mkfifo(lock)
    elif what == "link":
        lock.symlink_to(tmp_path / "victim")
    else:
        lock.mkdir()
    assert running_pid(tmp_path) is None
    with pytest.raises(AstridError, match=LOCK), locked(tmp_path):
        raise AssertionError("it was used")
    assert not (tmp_path / "victim").exists()


def test_a_folder_in_place_of_the_socket_is_told(tmp_path: Path) -> None:
    socket_path(tmp_path).mkdir(parents=True)
    with pytest.raises(AstridError, match=r"Is a directory: .*control.sock: remove it"), locked(tmp_path):
        raise AssertionError("it was used")


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do() -> None:
    with pytest.raises(AstridError, match=r"^cannot make the control socket in /proc/x: .*: /proc/x\. Give a folder"):
        with locked(Path("/proc/x")):
            raise AssertionError("it was used")


def test_who_looks_whether_a_host_runs_keeps_none_from_starting(tmp_path: Path) -> None:
    with locked(tmp_path):
        pass
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            running_pid(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(50):
            with locked(tmp_path):
                pass
    finally:
        over.set()
        for looker in lookers:
            looker.join()
