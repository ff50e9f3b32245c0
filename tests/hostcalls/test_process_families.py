"""Nothing of a child survives its end, its cancel or its host: whatever it forks, ignores and leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
from processes import (
    BOTH,
    NEEDS_SANDBOX,
    PYTHON,
    Processes,
    call,
    descriptors,
    family,
    gone,
    processes,
    refused,
    request,
    zombies,
)

from astrid_host.hostcalls.process import child as child_module
from astrid_host.hostcalls.process import launching, supervisor
from astrid_host.hostcalls.process import tracker as tracker_module
from astrid_host.hostcalls.process.launching import SupervisedProcess
from astrid_host.hostcalls.process.shapes import ExitInfo

MANY = [pytest.param(250, False, id="plain"), pytest.param(25, True, id="sandbox", marks=NEEDS_SANDBOX)]
MODES = pytest.mark.parametrize("sandboxed", BOTH)

ESCAPES = {
    "runs away": "while True:\n  os.fork() and os._exit(0)\n  os.setsid()\n  os.path.exists('escaped') or say()",
    "forks twice": "os.fork() and os._exit(0)\nos.fork() and os._exit(0)",
    "leaves its session": "os.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\nos.setsid()",
    "has a family that does": "os.fork() and os._exit(0)\nfor _ in range(4):\n  os.fork() or os.setsid()",
    "is stopped": "os.fork() and os._exit(0)\nos.setsid()\nos.kill(os.getpid(), signal.SIGSTOP)",
}


def escaping(how: str, mark: str) -> str:
    """A Python program that forks a process which ignores what can be ignored and gets away as described; it stays."""
    ignore = "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]"
    say = "def say():\n  open('escaped', 'a').write('out\\n')\n"
    program = f"import os, signal, time\n{say}{ignore}\nif os.fork() == 0:\n"
    body = f"{ESCAPES[how]}\nsay()\ntime.sleep(1000)  # {mark}"
    return program + "".join(f"  {line}\n" for line in body.split("\n")) + "time.sleep(1000)\n"


@contextlib.asynccontextmanager
async def quickly(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The 2 seconds between SIGINT and SIGKILL are fewer."""
    monkeypatch.setattr(tracker_module, "CANCEL_S", 0.1)
    yield


async def out(at: Processes) -> None:
    """Return when a child has got away."""
    with trio.fail_after(10):
        await at.written("escaped")


async def cancelled(run: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Run something that is to end with `cancelled`."""
    assert (await refused(run(*arguments))).case == "cancelled"


def stopped(how: str) -> bool:
    return how == "is stopped"


@MODES
@pytest.mark.parametrize("how", [how for how in ESCAPES if not stopped(how)])
async def test_a_cancelled_call_leaves_nothing_behind(
    tmp_path: Path, sandboxed: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"mark-{os.getpid()}-cancel"
    async with processes(tmp_path, sandboxed) as at, quickly(monkeypatch), trio.open_nursery() as nursery:
        by = call(call_id="c1")
        nursery.start_soon(cancelled, at.functions.spawn, by, request(PYTHON, "-c", escaping(how, mark)))
        await out(at)
        assert family(mark)
        at.tracker.cancel(["other", "c1"], "alice")
        await gone(mark)
        await at.emptied()
        assert not zombies()


@MODES
@pytest.mark.parametrize("how", ESCAPES)
async def test_a_killed_process_leaves_nothing_behind(tmp_path: Path, sandboxed: bool, how: str) -> None:
    mark = f"mark-{os.getpid()}-kill"
    async with processes(tmp_path, sandboxed) as at:
        handle = await at.functions.spawn_background(call(), request(PYTHON, "-c", escaping(how, mark)))
        if not stopped(how):
            await out(at)
        assert (await at.functions.kill(call(), handle)).killed
        assert not family(mark)
        assert not zombies()


@MODES
async def test_nothing_survives_the_host(tmp_path: Path, sandboxed: bool) -> None:
    mark = f"mark-{os.getpid()}-close"
    open_before = descriptors()
    async with processes(tmp_path, sandboxed) as at:
        program = escaping("leaves its session", mark)
        handle = await at.functions.spawn_background(call(), request(PYTHON, "-c", program))
        await at.functions.spawn_persistent(call(), request(PYTHON, "-c", program))
        at.nursery.start_soon(at.functions.spawn, call(), request(PYTHON, "-c", program))
        await out(at)
        with trio.fail_after(10):
            while len(at.tracker.children) < 3:
                await trio.sleep(0.005)
    assert not family(mark)
    assert not zombies()
    del at, handle
    assert descriptors() == open_before


HOST = """
import sys
sys.path[:0] = {paths!r}
import os, signal, trio
from pathlib import Path
from processes import PYTHON, call, processes, request

async def main():
    async with processes(Path({place!r}), {sandboxed!r}) as at:
        await at.functions.spawn_persistent(call(), request(PYTHON, "-c", {program!r}))
        await at.written("escaped")
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""


@MODES
def test_nothing_survives_a_host_that_is_killed(tmp_path: Path, sandboxed: bool) -> None:
    mark = f"mark-{os.getpid()}-killed"
    support = Path(__file__).resolve().parent.parent / "support"
    program = HOST.format(
        paths=[str(support), str(support.parent.parent)],
        place=str(tmp_path),
        sandboxed=sandboxed,
        program=escaping("leaves its session", mark),
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=30)
    assert ended.returncode == -signal.SIGKILL
    trio.run(gone, mark)


@MODES
async def test_an_interrupt_reaches_the_whole_group_first(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        cases = []

        async def run() -> None:
            script = """
                trap 'wait; echo outer >> heard; exit 6' INT
                (trap 'echo inner >> heard; exit' INT; echo x > begun; while :; do sleep 0.01; done) &
                wait
            """
            cases.append((await refused(at.run(script, call(call_id="c1")))).case)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await at.written("begun")
            with at.bus.lock:
                at.tracker.cancel(["c1"], "alice")
        assert cases == ["cancelled"]
        assert (at.work / "heard").read_text() == "inner\nouter\n"


async def test_only_the_callers_children_of_listed_calls_are_cancelled(tmp_path: Path) -> None:
    async with processes(tmp_path, False) as at, trio.open_nursery() as nursery:
        others = {"bob-c1": call("bob", call_id="c1"), "alice-c2": call(call_id="c2"), "alice-none": call()}
        for name, by in {"alice-c1": call(call_id="c1"), **others}.items():
            nursery.start_soon(cancelled, at.run, f"echo x > {name}; exec sleep 86461", by)
        handle = await at.begin("exec sleep 86461", call(call_id="c1"))
        process = await at.persist("exec sleep 86461", call(call_id="c1"))
        for name in ("alice-c1", *others):
            await at.written(name)
        at.tracker.cancel([], "alice")
        at.tracker.cancel(["c1"], "carol")
        at.tracker.cancel(["c1"], "alice")
        with trio.fail_after(10):
            while len(at.tracker.children) > 5:
                await trio.sleep(0.005)
        left = {(child.principal, child.call_id, child.kind) for child in at.tracker.children}
        assert left == {
            ("bob", "c1", "foreground"),
            ("alice", "c2", "foreground"),
            ("alice", None, "foreground"),
            ("alice", None, "background"),
            ("alice", None, "persistent"),
        }
        assert handle.child.live
        assert at.functions.status(call(), process).phase == "running"
        at.tracker.unload("shell")
        await gone("sleep 86461")


@MODES
async def test_a_supervisor_that_is_stopped_or_killed_takes_its_child_along(
    tmp_path: Path, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("child", "launching"):
        monkeypatch.setattr(f"astrid_host.hostcalls.process.{module}.REAP_S", 0.2)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        async with processes(tmp_path / number.name, sandboxed) as at:
            handle = await at.begin("exec sleep 86462")
            popen = handle.child._supervised.popen
            popen.send_signal(number)
            killed = await at.functions.kill(call(), handle)
            assert killed.exit == ExitInfo(None, signal.SIGKILL)
            await gone("sleep 86462")
        assert not zombies()


@pytest.mark.parametrize(("count", "sandboxed"), MANY)
async def test_many_commands_leave_no_descriptor_and_no_defunct_process(
    tmp_path: Path, count: int, sandboxed: bool
) -> None:
    async with processes(tmp_path, sandboxed) as at:
        await at.run("true")
        before = descriptors()
        limit = trio.CapacityLimiter(4)

        async def one(number: int) -> None:
            async with limit:
                if number % 25:
                    await at.functions.spawn(call(), request("true", stdin=b"x"))
                else:
                    handle = await at.begin("sleep 86463", keep_stdin_open=True)
                    await at.functions.kill(call(), handle)

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(one, number)
        await at.emptied()
        assert descriptors() == before
        assert not zombies()


IN_ITS_KEEPERS_NAME = """
import ctypes, os, signal, socket, sys, time, array
[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)]
libc, supervisor, found = ctypes.CDLL(None), os.pidfd_open(os.getppid()), None
for number in range(3, 40):
    fd = libc.syscall(438, supervisor, number, 0)  # pidfd_getfd
    if fd >= 0 and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
        found = socket.socket(fileno=fd)
        break
open("found", "w").write(f"{found is not None}\\n")
if found is not None:
    said = sys.argv[1].encode() + b"\\n"
    found.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
time.sleep(1000)
"""


@MODES
@pytest.mark.parametrize("said", ["exited 0 - 1 1", "started 1", "failed 2 command"])
async def test_who_speaks_for_its_supervisor_does_not_get_away(tmp_path: Path, sandboxed: bool, said: str) -> None:
    mark, before = f"mark-{os.getpid()}-speaks", descriptors()
    async with processes(tmp_path, sandboxed) as at:
        program = request(PYTHON, "-c", IN_ITS_KEEPERS_NAME, said, mark)
        handle = await at.functions.spawn_background(call(), program)
        if await at.written("found") == "False\n":  # as it should be, and as it is where privileges can be given up
            await at.functions.kill(call(), handle)
        else:
            assert not sandboxed, "in the sandbox it has no privileges"
        await gone(mark)
        with trio.fail_after(10):
            await at.emptied()
        assert handle.child.exit == ExitInfo(None, signal.SIGKILL)
    del at, handle
    assert descriptors() == before
    assert not zombies()


@MODES
async def test_a_supervisor_that_does_not_end_after_its_child_is_ended(
    tmp_path: Path, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(supervisor.__file__).read_text()
    stuck = compile(source + "\ndef _sweep(wake):\n    select.poll().poll()\n", "supervisor", "exec")
    monkeypatch.setattr(launching, "_program", lambda: stuck)
    monkeypatch.setattr(launching, "REAP_S", 0.1)
    monkeypatch.setattr(child_module, "SWEEP_S", 0.1)
    async with processes(tmp_path, sandboxed) as at:
        with trio.fail_after(5):
            handle = await at.begin("exit 3")
            assert await at.functions.wait(call(), handle, None) == ExitInfo(3, None)
            assert at.tracker.children[0].present, "it counts until nothing is left of it"
            await at.emptied()
        assert not zombies()


@MODES
async def test_whoever_else_has_the_socket_of_a_supervisor_does_not_outlive_it(
    tmp_path: Path, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    open_pipes = SupervisedProcess.open_pipes

    def holding(kept: SupervisedProcess, with_stdin: bool, passed: contextlib.ExitStack) -> list[int | None]:
        held.append(kept._theirs.dup())
        return open_pipes(kept, with_stdin, passed)

    monkeypatch.setattr(SupervisedProcess, "open_pipes", holding)
    async with processes(tmp_path, sandboxed) as at:
        with trio.fail_after(5):
            assert (await at.run("exit 3")).exit == ExitInfo(3, None)
            await at.emptied()
    held[0].close()


async def test_a_command_is_interrupted_once_however_often_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with processes(tmp_path, False) as at, trio.open_nursery() as nursery:
        script = "trap 'echo x >> interrupts' INT; echo x > begun; while :; do sleep 0.01; done"
        async with quickly(monkeypatch):
            nursery.start_soon(cancelled, at.run, script, call(call_id="c1"))
            await at.written("begun")
            for _ in range(3):
                at.tracker.cancel(["c1"], "alice")
            await at.emptied()
        assert (at.work / "interrupts").read_text() == "x\n"


@MODES
async def test_a_command_keeps_no_privilege_that_reaches_its_host(tmp_path: Path, sandboxed: bool) -> None:
    ptrace, admin, setpcap = 19, 21, 8
    async with processes(tmp_path, sandboxed) as at:
        lines = (await at.run("grep -E '^(CapPrm|CapBnd|NoNewPrivs)' /proc/self/status")).stdout.split()
        found = dict(zip(lines[::2], lines[1::2], strict=True))
        assert found["NoNewPrivs:"] == "1"
        held = int(found["CapPrm:"], 16) | (int(found["CapBnd:"], 16) if not os.getuid() else 0)
        own = int(Path("/proc/self/status").read_text().partition("CapPrm:")[2].split()[0], 16)
        if own >> setpcap & 1:  # else root cannot give them up
            assert not held >> ptrace & 1
            assert not held >> admin & 1
        reach = f"import os; os.open('/proc/{os.getpid()}/mem', os.O_RDONLY)"
        ended = await at.functions.spawn(call(), request(PYTHON, "-c", reach))
        assert sandboxed or os.getuid() or "PermissionError" in ended.stderr


@MODES
async def test_a_command_is_the_first_to_go_when_memory_is_short(tmp_path: Path, sandboxed: bool) -> None:
    async with processes(tmp_path, sandboxed) as at:
        assert (await at.run("cat /proc/self/oom_score_adj; ulimit -c; ulimit -Sn")).stdout == "500\n0\n1024\n"
