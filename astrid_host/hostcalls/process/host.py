"""astrid:process: commands that capsules run.

Gates come first: a command needs a row of `host_process`, one that outlives its call `allow_persistent` as well. `spawn` waits
for the command's end and is interrupted with its call; `spawn-background` gives a handle that the process ends with;
`spawn-persistent` an id by which later calls of the same capsule and principal find it. When a command ends, what it left
running ends as well.
"""

from __future__ import annotations

import hashlib
import math
import signal as signals
from typing import TYPE_CHECKING, Any

import trio

from astrid_host.errors import HostError
from astrid_host.gates.process import may_persist, may_spawn
from astrid_host.hostcalls.interface import Interface, hostcall
from astrid_host.hostcalls.io.poll import Readiness
from astrid_host.hostcalls.process.commands import command_of
from astrid_host.hostcalls.process.reading import info_of, read_logs, read_since
from astrid_host.hostcalls.process.shapes import ExitInfo, KillResult, LogChunk, ProcessInfo, ProcessResult, ReadLogs

if TYPE_CHECKING:
    from astrid_host.hostcalls.process.child import Child
    from astrid_host.hostcalls.process.tracker import Tracker
    from astrid_host.scheduler import Call

WRITE_BYTES = 1 << 20
GRACE_MS = (5_000, 30_000)  # by default, most
IDS = 1024
KILL_S = 10.0
ANONYMOUS = "anonymous"
SIGNALS = {
    "term": signals.SIGTERM,
    "hup": signals.SIGHUP,
    "usr1": signals.SIGUSR1,
    "usr2": signals.SIGUSR2,
    "int": signals.SIGINT,
    "stop": signals.SIGSTOP,
    "cont": signals.SIGCONT,
}


class ProcessHandle:
    """What the handle of a `process-handle` holds. Closing it ends the process, unless it was attached to.

    Args:
        child: which process.
        attached: it is a persistent one, which the handle only looks at.
    """

    __slots__ = ("attached", "child", "closed")

    def __init__(self, child: Child, attached: bool) -> None:
        self.child = child
        self.attached = attached
        self.closed = attached

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.child.kill()

    def __del__(self) -> None:
        if not self.closed and self.child.present:  # it never reached its guest, whose call had ended
            self.child.abandon()


def _run_target(request: Any) -> str:
    """The command, and the paths at which it finds files that the guest gave: all of it, since secrets are found only whole.
    It is cut by whoever keeps it, once they are taken out."""
    text = " ".join([request.cmd, *request.args])
    places = [injection.placement for injection in getattr(request, "file_injections", ())]
    fixed = [place.value for place in places if place.case == "fixed-path"]
    return f"{text} (files at {len(fixed)} paths: {' '.join(fixed)})" if fixed else text


def _handle_target(handle: ProcessHandle, *_: object) -> str:
    return " ".join(handle.child.command.argv)


def _id_target(process_id: str, *_: object) -> str:
    """Not the id itself: whoever has it as that capsule and principal has the process."""
    return f"process {hashlib.sha256(process_id.encode()).hexdigest()[:16]}"


class Process(Interface):
    """The host functions of astrid:process.

    Args:
        tracker: who has the children.

    A waiting function that is cancelled leaves the process as it is, but for `spawn`: its process is interrupted, and killed
    2 seconds later. Those by id raise HostError `no-such-process` for every id that is not of the caller's capsule and
    principal.
    """

    wit = ("astrid:process/host@1.0.0", "astrid:process/host@1.1.0")

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    # Starting.

    @hostcall("spawn", audited=_run_target, announced=True)
    async def spawn(self, call: Call, request: Any) -> ProcessResult:
        """Run a command to its end. (Astrid, process: spawn.)

        Of each stream the last `log-ring-bytes` are returned. `max-lifetime-ms` bounds it: then it is asked to end, and killed 5
        seconds later. Raises HostError as `Tracker.start` and `command_of` do; `capability-denied`; `cancelled` when it was
        interrupted, which only its own call survives.
        """
        _allow(call, request)
        command = command_of(request)
        command.stdin_open = False  # nobody could write to it
        child = await self._tracker.start(call, "foreground", command, request.cwd)
        try:
            await child.gone.wait()
        except trio.Cancelled:
            self._tracker.interrupt(child)
            raise
        if child.interrupted:
            raise HostError("cancelled", detail="its call was cancelled, or its capsule unloaded")
        assert child.exit is not None, "it is gone"
        logs = await self._read(child)
        return ProcessResult(logs.stdout, logs.stderr, child.exit)

    @hostcall("spawn-background", audited=_run_target, announced=True)
    async def spawn_background(self, call: Call, request: Any) -> ProcessHandle:
        """Start a command that ends with its handle. Raises as `spawn` does; `quota` for more than 8 of a principal."""
        _allow(call, request)
        return ProcessHandle(await self._tracker.start(call, "background", command_of(request), request.cwd), False)

    @hostcall("spawn-persistent", audited=_run_target, announced=True)
    async def spawn_persistent(self, call: Call, request: Any) -> str:
        """Start a command that outlives the call; returns its id. (Astrid, process: persistent.)

        Raises as `spawn-background` does; `persist-unsupported` without `allow_persistent`, and where nobody is known to be the
        caller; `registry-full` for more than 32 of a principal, those that have ended included.
        """
        _allow(call, request)
        if (denial := may_persist(call.capsule.manifest)) is not None:
            raise HostError(denial.case, detail=denial.detail)
        if call.message is None or call.message.principal in (None, ANONYMOUS):
            raise HostError("persist-unsupported", detail="nobody is known to be the caller: a process needs an owner")
        child = await self._tracker.start(call, "persistent", command_of(request), request.cwd)
        return child.id

    @hostcall("attach", audited=_id_target)
    def attach(self, call: Call, process_id: str) -> ProcessHandle:
        """A handle for a persistent process, which goes on without it."""
        return ProcessHandle(self._touched(call, process_id), True)

    # Looking.

    @hostcall("list-processes", audited=lambda label_filter: label_filter or "*")
    def list_processes(self, call: Call, label_filter: str | None) -> list[ProcessInfo]:
        """The caller's persistent processes, those whose label contains the filter."""
        return [info_of(child) for child in self._tracker.of(call) if (label_filter or "") in child.command.label]

    @hostcall("status", audited=_id_target)
    def status(self, call: Call, process_id: str) -> ProcessInfo:
        """How one is; this does not count as use."""
        return info_of(self._tracker.find(call, process_id))

    @hostcall("status-many", audited=lambda ids: f"{len(ids)} processes")
    def status_many(self, call: Call, ids: list[str]) -> list[ProcessInfo]:
        """How several are, without those that there are not. `too-large` for more than 1,024."""
        if len(ids) > IDS:
            raise HostError("too-large", detail=f"{len(ids)} ids; {IDS} are allowed")
        own = {child.id: child for child in self._tracker.of(call)}
        return [info_of(own[name]) for name in dict.fromkeys(ids) if name in own]

    # By id.

    @hostcall("read-logs", audited=_id_target)
    async def read_logs_of(self, call: Call, process_id: str) -> ReadLogs:
        """What it wrote since the last time."""
        return await self._read(self._touched(call, process_id))

    @hostcall("read-since", audited=_id_target)
    def read_since(self, call: Call, process_id: str, which_stream: str, cursor: Any, max_bytes: int) -> LogChunk:
        """What one stream wrote since a cursor, 4 MiB at most. `invalid-input` for a cursor that no read returned."""
        child = self._touched(call, process_id)
        chunk = read_since(child, which_stream, cursor.token, max_bytes)
        self._tracker.room(child)
        return chunk

    @hostcall("write-stdin", audited=_id_target)
    async def write_stdin_of(self, call: Call, process_id: str, data: bytes) -> int:
        """Write to its input; see `process-handle.write-stdin`."""
        return await self._write(self._touched(call, process_id), data)

    @hostcall("close-stdin", audited=_id_target)
    async def close_stdin_of(self, call: Call, process_id: str) -> None:
        """End its input."""
        await self._touched(call, process_id).input.end()

    @hostcall("signal", audited=_id_target)
    def signal_of(self, call: Call, process_id: str, sig: str) -> None:
        """Send a signal to its group; one that has ended is `closed`."""
        _signal(self._touched(call, process_id), sig)

    @hostcall("wait", audited=_id_target)
    async def wait_of(self, call: Call, process_id: str, timeout_ms: int) -> ExitInfo:
        """Wait for its end; `wait-timeout`."""
        return await _wait(self._touched(call, process_id), timeout_ms)

    @hostcall("stop", audited=_id_target)
    async def stop(self, call: Call, process_id: str, grace_ms: int | None) -> ExitInfo:
        """Ask it to end, kill it after `grace-ms` (5,000 by default, 30,000 at most), and forget it."""
        child = self._touched(call, process_id)
        usual, most = GRACE_MS
        await child.stop(min(usual if grace_ms is None else grace_ms, most) / 1000)
        self._tracker.release(child)
        assert child.exit is not None, "it is gone"
        return child.exit

    @hostcall("release-process", audited=_id_target)
    def release_process(self, call: Call, process_id: str) -> None:
        """Forget a process that has ended; `invalid-input` for one that runs."""
        child = self._tracker.find(call, process_id)
        if child.live:
            raise HostError("invalid-input", detail="it runs: stop it instead")
        self._tracker.release(child)

    @hostcall("watch", audited=_id_target)
    def watch(self, call: Call, process_id: str, suffix: str | None) -> None:
        """Have `astrid.process.v1.exited.<suffix>` published when it ends, or now if it has; `log-ready` and `stdin-drained`
        likewise, with the capsule as their source. The suffix is its id by default; `invalid-input` for one that is no end of
        a topic."""
        self._tracker.watch(self._touched(call, process_id), suffix, call.capsule.source_id)

    @hostcall("unwatch", audited=_id_target)
    def unwatch(self, call: Call, process_id: str) -> None:
        """Publish nothing more about it."""
        self._tracker.unwatch(self._touched(call, process_id))

    # By handle.

    @hostcall("[method]process-handle.read-logs", audited=_handle_target)
    async def read_logs(self, _call: Call, handle: ProcessHandle) -> ReadLogs:
        """What it wrote since the last time, as text; a line at the beginning tells of bytes that were dropped unread."""
        handle.child.touch()
        return await self._read(handle.child)

    @hostcall("[method]process-handle.write-stdin", audited=_handle_target)
    async def write_stdin(self, _call: Call, handle: ProcessHandle, data: bytes) -> int:
        """Write to its input; returns how many bytes it took within 10 seconds. `too-large` for more than 1 MiB, `closed`
        when it was not to stay open or the process closed it, `wait-timeout` when it took none."""
        handle.child.touch()
        return await self._write(handle.child, data)

    @hostcall("[method]process-handle.close-stdin", audited=_handle_target)
    async def close_stdin(self, _call: Call, handle: ProcessHandle) -> None:
        """End its input."""
        handle.child.touch()
        await handle.child.input.end()

    @hostcall("[method]process-handle.signal", audited=_handle_target)
    def signal(self, _call: Call, handle: ProcessHandle, sig: str) -> None:
        """Send a signal to its group; one that has ended is `closed`."""
        handle.child.touch()
        _signal(handle.child, sig)

    @hostcall("[method]process-handle.kill", audited=_handle_target)
    async def kill(self, _call: Call, handle: ProcessHandle) -> KillResult:
        """End it now, with all its family; `killed` tells whether it was still there."""
        child = handle.child
        lived = child.live
        child.kill()
        with trio.move_on_after(KILL_S):
            await child.gone.wait()
        logs = await self._read(child)
        return KillResult(lived and child.exit is not None, child.exit, logs.stdout, logs.stderr)

    @hostcall("[method]process-handle.wait", audited=_handle_target)
    async def wait(self, _call: Call, handle: ProcessHandle, timeout_ms: int | None) -> ExitInfo:
        """Wait for its end; `wait-timeout`. No bound is `invalid-input` for a persistent process."""
        _check_bound(handle, timeout_ms)
        handle.child.touch()
        return await _wait(handle.child, timeout_ms)

    @hostcall("[method]process-handle.wait-with-output", audited=_handle_target)
    async def wait_with_output(self, _call: Call, handle: ProcessHandle, timeout_ms: int | None) -> ProcessResult:
        """Wait for its end and all it wrote since the last time; else as `wait`."""
        _check_bound(handle, timeout_ms)
        child = handle.child
        child.touch()
        ended = await _wait(child, timeout_ms, complete=True)
        logs = await self._read(child)
        return ProcessResult(logs.stdout, logs.stderr, ended)

    @hostcall("[method]process-handle.os-pid", audited=_handle_target)
    def os_pid(self, _call: Call, handle: ProcessHandle) -> int:
        """Its number at the operating system; `closed` when it has ended."""
        if (number := handle.child.os_pid) is None:
            raise _closed()
        return number

    @hostcall("[method]process-handle.subscribe-exit", audited=_handle_target)
    def subscribe_exit(self, _call: Call, handle: ProcessHandle) -> Readiness:
        """A pollable that is ready when it has ended."""
        return Readiness(handle.child.exit_signal)

    @hostcall("[method]process-handle.subscribe-logs", audited=_handle_target)
    def subscribe_logs(self, _call: Call, handle: ProcessHandle) -> Readiness:
        """A pollable that is ready while there is something to read, and when nothing will come any more."""
        return Readiness(handle.child.log_signal)

    def _touched(self, call: Call, process_id: str) -> Child:
        child = self._tracker.find(call, process_id)
        child.touch()
        return child

    async def _read(self, child: Child) -> ReadLogs:
        logs = await read_logs(child)
        self._tracker.room(child)
        return logs

    async def _write(self, child: Child, data: bytes) -> int:
        if len(data) > WRITE_BYTES:
            raise HostError("too-large", detail=f"{len(data)} bytes; {WRITE_BYTES} are allowed at once")
        return await child.input.write(data)


def _allow(call: Call, request: Any) -> None:
    if (denial := may_spawn(call.capsule.manifest, request.cmd, request.args)) is not None:
        raise HostError(denial.case, detail=denial.detail)


def _check_bound(handle: ProcessHandle, timeout_ms: int | None) -> None:
    if handle.attached and timeout_ms is None:
        raise HostError("invalid-input", detail="a persistent process may run for hours: give a timeout, or watch it")


def _signal(child: Child, sig: str) -> None:
    if not child.live:
        raise _closed()
    child.signal(SIGNALS[sig])


def _closed() -> HostError:
    return HostError("closed", detail="the process has ended")


async def _wait(child: Child, timeout_ms: int | None, complete: bool = False) -> ExitInfo:
    return await child.wait(math.inf if timeout_ms is None else timeout_ms / 1000, complete)
