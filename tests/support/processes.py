"""Child processes without a host around them: a tracker, requests, and what the operating system knows of a family."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from astrid_host.bus import Bus, Event
from astrid_host.engine import reap_compilers
from astrid_host.errors import HostError
from astrid_host.hostcalls.io.background import Background
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.process import Process, Tracker, sandbox_state
from astrid_host.manifest import Capabilities, Manifest, Package
from astrid_host.payloads import ToolExecuteRequest

PYTHON = os.path.realpath(sys.executable)  # not where /tmp is another one
ROWS = ("bash", "cat", "true", "missing-program", "sleep", PYTHON)
NEEDS_SANDBOX = pytest.mark.skipif(not sandbox_state().works, reason=sandbox_state().detail)
SANDBOX = pytest.param(True, id="sandbox", marks=NEEDS_SANDBOX)
BOTH = [pytest.param(False, id="plain"), SANDBOX]


def request(cmd: str, *arguments: str, **fields: Any) -> Any:
    """A `spawn-request`; fields that are not given are none."""
    names = ("stdin", "cwd", "limits", "label", "keep_stdin_open", "overflow", "log_ring_bytes")
    times = ("max_lifetime_ms", "idle_timeout_ms", "exit_retention_ms")
    given = {"env": [], **dict.fromkeys((*names, *times)), **fields}
    env = [pair if hasattr(pair, "key") else SimpleNamespace(key=pair[0], value=pair[1]) for pair in given.pop("env")]
    return SimpleNamespace(cmd=cmd, args=list(arguments), env=env, **given)


def bash(script: str, **fields: Any) -> Any:
    return request("bash", "-c", script, **fields)


def call(
    principal: str = "alice",
    capsule: str = "shell",
    rows: tuple[str, ...] = ROWS,
    persistent: bool = True,
    call_id: str | None = None,
    **more: Any,
) -> Any:
    """A call of a capsule that may run what `rows` say; with a `call_id` it handles a tool call."""
    capabilities = Capabilities(host_process=rows, allow_persistent=persistent)
    manifest = Manifest(Package(capsule, "1.0.0"), capabilities=capabilities)
    data: object = {} if call_id is None else ToolExecuteRequest(call_id, "run", {})
    message = Event("tool.v1.execute.run", b"{}", data, principal, "source", 1, 0.0, True)
    of = SimpleNamespace(id=capsule, storage_id=capsule, manifest=manifest, source_id=f"source of {capsule}")
    given = {"principal": principal, "message": message, "capsule": of}
    return SimpleNamespace(**{**given, **more})


class Processes:
    """The host functions, their tracker, the workspace, and what was published."""

    def __init__(self, functions: Process, tracker: Tracker, work: Path, bus: Bus, nursery: trio.Nursery) -> None:
        self.functions = functions
        self.tracker = tracker
        self.work = work
        self.bus = bus
        self.nursery = nursery

    async def run(self, script: str, by: Any = None, **fields: Any) -> Any:
        """Run a script to its end."""
        return await self.functions.spawn(by or call(), bash(script, **fields))

    async def begin(self, script: str, by: Any = None, **fields: Any) -> Any:
        """Start a script in the background."""
        return await self.functions.spawn_background(by or call(), bash(script, **fields))

    async def persist(self, script: str, by: Any = None, **fields: Any) -> str:
        """Start a script that outlives its call."""
        return await self.functions.spawn_persistent(by or call(), bash(script, **fields))

    async def written(self, name: str) -> str:
        """What a child wrote to a file of the workspace, as soon as it has a whole line."""
        path = self.work / name
        while not path.exists() or not (text := path.read_text()).endswith("\n"):
            await trio.sleep(0.005)
        return text

    async def emptied(self) -> None:
        """Return when no child lives or is remembered."""
        while self.tracker.children:
            await trio.sleep(0.005)


@asynccontextmanager
async def processes(place: Path, sandboxed: bool) -> AsyncIterator[Processes]:
    """Child processes of a workspace below `place`. All of them end with the body."""
    work = place / "work"
    work.mkdir(parents=True)
    roots = Roots(work, place / "state")
    bus = Bus()
    async with trio.open_nursery() as nursery:
        tell = trio.lowlevel.current_trio_token().run_sync_soon
        scheduler: Any = SimpleNamespace(
            lock=bus.lock, wake_loop=lambda: None, run_or_wake=lambda: None, call_soon=tell, closed=False
        )
        tracker = Tracker(bus, Background(scheduler, nursery), roots, place / "state", sandboxed)
        yield Processes(Process(tracker), tracker, work, bus, nursery)
        nursery.cancel_scope.cancel()
    tracker.close()
    roots.close()


async def refused(work: Any) -> HostError:
    """The error that an awaitable function ends with."""
    with pytest.raises(HostError) as caught:
        await work
    return caught.value


def case(run: Callable[[], object]) -> str:
    """The case of the error that a plain function ends with."""
    with pytest.raises(HostError) as caught:
        run()
    return caught.value.case


def family(mark: str) -> list[str]:
    """The command lines of all processes that carry a mark in theirs; those that are dead but not reaped count."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found


def zombies() -> list[str]:
    """Our own children that have ended and were not reaped, but for compilers, which every host reaps now and then."""
    reap_compilers()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(folder.name)
    return found


def descriptors() -> int:
    """How many descriptors this process has open, without those of things that are only waiting to be collected."""
    gc.collect()
    return len(os.listdir("/dev/fd"))


async def there(mark: str, seconds: float = 10) -> None:
    """Return when a process carries the mark: it has begun before it has turned into its command."""
    end = time.monotonic() + seconds
    while not family(mark):
        assert time.monotonic() < end, f"no process carries {mark}"
        await trio.sleep(0.02)


async def gone(mark: str, seconds: float = 10) -> None:
    """Return when no process carries the mark any more."""
    end = time.monotonic() + seconds
    while left := family(mark):
        assert time.monotonic() < end, f"they are still there: {left}"
        await trio.sleep(0.02)
