"""What a supervisor says is checked: a child may have got hold of it. And what people are told of the sandbox."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from processes import descriptors

from astrid_host.cli import diagnosis
from astrid_host.hostcalls.process.control import Exited, Failed, Started, Word, words
from astrid_host.hostcalls.process.hiding import Hidden
from astrid_host.hostcalls.process.places import Grants
from astrid_host.hostcalls.process.sandbox import SandboxState, sandbox_state, wrapping
from astrid_host.hostcalls.process.shapes import ExitInfo


async def heard(*said: bytes, passing: int = 0) -> list[Word]:
    """What is made of a supervisor's words; `passing` descriptors come with the first."""
    ours, theirs = socket.socketpair()
    for number, data in enumerate(said):
        socket.send_fds(theirs, [data], [0] * passing if not number else [])
    theirs.close()
    found = []
    async with contextlib.aclosing(words(ours, b"")) as all_words:
        async for word in all_words:
            found.append(word)
    ours.close()
    return found


async def test_words_are_lines_however_they_arrive() -> None:
    expected = [Started(12, None), Exited(ExitInfo(3, None), 20, 4096)]
    assert await heard(b"started 12\nexited 3 - 20 4096\n") == expected
    assert await heard(b"star", b"ted 12\nexi", b"ted 3 - 20 4096", b"\n") == expected
    assert await heard(b"failed 2 command\n") == [Failed(2, "command")]
    assert await heard(b"started 12\nexited - 9 0 0\n") == [Started(12, None), Exited(ExitInfo(None, 9), 0, 0)]


@pytest.mark.parametrize(
    "line",
    [b"", b"exited", b"started -1", b"started x", b"exited 3 - 20", b"failed 2 COMMAND", b"\xff", b"x" * 100_000],
)
async def test_what_no_supervisor_says_ends_the_conversation(line: bytes) -> None:
    assert await heard(line + b"\nstarted 12\n") == []
    assert await heard(line) == []


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        (b"exited 3 - 20 4096\n", 0),
        (b"started 12\nstarted 12\nexited 3 - 20 4096\n", 1),
        (b"started 12\nfailed 2 command\n", 1),
        (b"failed 2 command\nstarted 12\n", 1),
        (b"started 12\nexited 3 - 20 4096\nexited 4 - 20 4096\n", 2),
    ],
)
async def test_what_comes_out_of_order_ends_the_conversation(said: bytes, believed: int) -> None:
    assert len(await heard(said)) == believed


async def test_of_many_descriptors_one_is_kept_until_the_end() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair()
    async with contextlib.aclosing(words(ours, b"")) as all_words:
        for _ in range(20):
            socket.send_fds(theirs, [b"s"], [0])
        theirs.close()
        assert [word async for word in all_words] == []
    ours.close()
    assert descriptors() == before


async def test_descriptors_that_nobody_asked_for_are_closed() -> None:
    before = descriptors()
    (word,) = await heard(b"started 12\n", passing=2)
    assert isinstance(word, Started)
    assert word.child is not None
    os.close(word.child)
    assert descriptors() == before


async def test_a_request_that_nobody_reads_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            async with contextlib.aclosing(words(ours, bytes(8 << 20))) as all_words:
                assert [word async for word in all_words] == []

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        theirs.close()
    ours.close()


def test_a_folder_is_laid_over_those_that_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")

    def order(workspace: str, private: str) -> list[str]:
        line = wrapping(
            Grants(workspace, f"{private}/homes/a", f"{private}/scratch/a", None), Hidden((private,), (), (), ()), []
        )
        return [
            line[at + (2 if line[at] == "--bind" else 1)]
            for at in range(len(line))
            if line[at] in ("--bind", "--tmpfs") and not line[at + 1].startswith(("/proc/", "/sys/"))
        ]

    assert order("/w", "/var/state") == ["/run", "/tmp", "/w", "/var/state", "/var/state/homes/a"]
    assert order("/", "/s") == ["/", "/run", "/s", "/tmp", "/s/homes/a"]
    assert order("/s/work", "/s") == ["/run", "/s", "/tmp", "/s/work", "/s/homes/a"]
    assert order("/tmp/w", "/tmp/w/s") == ["/run", "/tmp", "/tmp/w", "/tmp/w/s", "/tmp/w/s/homes/a"]


@pytest.fixture
def fresh() -> Iterator[None]:
    sandbox_state.cache_clear()
    yield
    sandbox_state.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_sandbox_that_is_missing_or_fails_is_told_with_a_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    state = sandbox_state()
    assert not state.works
    assert "apt install bubblewrap" in state.detail
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho first >&2; echo No permissions >&2; exit 1\n")
    program.chmod(0o755)
    sandbox_state.cache_clear()
    state = sandbox_state()
    assert not state.works
    assert "No permissions; allow unprivileged user namespaces" in state.detail
    program.write_text("no program")
    sandbox_state.cache_clear()
    assert "cannot be run" in sandbox_state().detail
    program.write_text("#!/bin/sh\nexit 0\n")
    sandbox_state.cache_clear()
    assert sandbox_state() == SandboxState(True, f"commands run in {program}")
    program.write_text('#!/bin/sh\ncase "$*" in *--unshare-net*) exit 1; esac\n')
    sandbox_state.cache_clear()
    state = sandbox_state()
    assert state.works
    assert state.shares_network
    assert diagnosis.sandbox().state == "note"
    assert "with the network of the host" in diagnosis.sandbox().found


@pytest.mark.usefixtures("fresh")
def test_as_root_without_the_sandbox_people_are_warned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for number, warned in ((0, True), (1000, False)):
        sandbox_state.cache_clear()
        monkeypatch.setattr(os, "getuid", lambda number=number: number)
        found = diagnosis.sandbox().found
        assert "commands run as ordinary processes, which may do all that the host's user may" in found
        assert ("no capsules should run that are not trusted" in found) is warned


@pytest.mark.usefixtures("fresh")
def test_a_probe_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("bwrap", 5)

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", hangs)
    assert not sandbox_state().works
