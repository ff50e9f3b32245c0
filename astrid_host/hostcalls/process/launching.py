"""Starting a supervisor with its child, and what the host holds of them.

Supervisors are started by one thread that lives as long as the tracker: a sandbox ends with the thread that started it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import marshal
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.process.control import Exited, Started, Word
from astrid_host.hostcalls.process.hiding import hidden_from
from astrid_host.hostcalls.process.programs import candidates
from astrid_host.hostcalls.process.sandbox import names_of, sandbox_state, supervisors_program, wrapping

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from astrid_host.hostcalls.process.commands import Command
    from astrid_host.hostcalls.process.places import Folder, Grants

log = logging.getLogger(__name__)

Result = TypeVar("Result")

# Runs what comes first on its descriptor, with what comes after it.
_BOOT = (
    "import marshal,sys;n=int(sys.argv[1]);f=open(n,'rb',closefd=False);c,r=marshal.load(f);"
    "g={'__name__':'supervisor'};exec(c,g);g['main'](n,r)"
)
DIAGNOSTIC_BYTES = 4096
REAP_S = 3.0


class Spawner:
    """The thread that starts supervisors. Made on the trio thread.

    Args:
        sandboxed: whether to use the sandbox; by default when the probe says that it works.
        own: the host's folders, which sandboxed children do not see.
        trusted: what the host runs or trusts beside them, which sandboxed children do not write to.
    """

    def __init__(
        self, sandboxed: bool | None, own: Sequence[Path], trusted: Callable[[], Sequence[Path]] = tuple
    ) -> None:
        self._sandboxed = sandboxed
        self._own = own
        self._trusted = trusted
        self._told: set[str] = set()
        self._executor: ThreadPoolExecutor | None = None

    async def start(self, command: Command, folder: Folder, grants: Grants) -> SupervisedProcess:
        """Start a command. The supervisor that is returned may still find that the command cannot be run.

        Raises:
            HostError: `unknown` when no supervisor can be started, or for a file at a fixed path without the sandbox.

        It is not cancelled: that takes some milliseconds.
        """
        return await self._run(functools.partial(self._start, command, folder, grants))

    def close(self) -> None:
        """End the thread. All children have ended."""
        if self._executor is not None:
            self._executor.shutdown()

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "astrid-spawner")
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        future = self._executor.submit(work)
        future.add_done_callback(lambda _: token.run_sync_soon(done.set))
        with trio.CancelScope(shield=True):
            await done.wait()
        return future.result()

    def _start(self, command: Command, folder: Folder, grants: Grants) -> SupervisedProcess:
        sandboxed = sandbox_state().works if self._sandboxed is None else self._sandboxed
        (self._tell if sandboxed else self._warn)(grants)
        if command.fixed and not sandboxed:
            detail = (
                f"{command.fixed[0][0]!r} can be there for one process only in the sandbox: {sandbox_state().detail}"
            )
            raise HostError("unknown", "fixed paths need the sandbox", detail=detail)
        try:
            with contextlib.ExitStack() as passed:
                return self._launch(command, folder, grants, sandboxed, passed)
        except OSError as error:
            raise HostError("unknown", f"no process can be started: {error.strerror}", detail=str(error)) from error

    def _tell(self, grants: Grants) -> None:
        """Say once how a capsule's children get a network: what they say themselves seldom tells why they have none."""
        reason = grants.no_network
        if reason is not None and reason not in self._told and not sandbox_state().shares_network:
            self._told.add(reason)
            log.info("%s", reason)

    def _warn(self, grants: Grants) -> None:
        """Say once what cannot be held without the sandbox."""
        try:
            kept = hidden_from(grants.workspace, (), self._trusted()).kept
        except HostError as error:
            kept = (error.detail or "",)
        if kept and "" not in self._told:
            self._told.add("")
            log.warning(
                "commands run without a sandbox, so they may write to what this host itself runs or trusts: %s; give a "
                "workspace that does not hold it, or %s",
                ", ".join(kept),
                sandbox_state().detail,
            )

    def _launch(
        self, command: Command, folder: Folder, grants: Grants, sandboxed: bool, passed: contextlib.ExitStack
    ) -> SupervisedProcess:
        supervised = SupervisedProcess()
        try:
            theirs = supervised.open_pipes(command.stdin is not None or command.stdin_open, passed)
            control, pipes = theirs[0], theirs[1:]
            given = dict(names_of(grants) if sandboxed else ()) | dict(command.fixed)
            fixed = [(_memory(content, passed), path) for path, content in given.items()]
            hidden = hidden_from(grants.workspace, self._own, self._trusted()) if sandboxed else None
            wrap = wrapping(grants, hidden, fixed) if hidden is not None else []
            programs = candidates(command.argv[0], command.env.get("PATH", os.defpath), grants, hidden)
            supervisor = [supervisors_program(), "-I", "-S", "-c", _BOOT, str(control)]
            supervised.popen = subprocess.Popen(
                [*wrap, *supervisor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=supervised.diagnostics[1],
                pass_fds=[fd for fd in (*theirs, *(fd for fd, _ in fixed)) if fd is not None],
                env={},
                cwd="/",
                start_new_session=True,
            )
            supervised.watch()
        except BaseException:
            supervised.abort()
            raise
        supervised.request = _request(command, programs, folder, grants, pipes, sandboxed)
        return supervised


def _request(
    command: Command,
    programs: Sequence[str],
    folder: Folder,
    grants: Grants,
    pipes: list[int | None],
    sandboxed: bool,
) -> bytes:
    env = {"HOME": grants.home, **command.env}
    request: dict[str, Any] = {
        "programs": [os.fsencode(program) for program in programs],
        "argv": [part.encode() for part in command.argv],
        "env": {name.encode(): os.fsencode(value) for name, value in env.items()},
        "cwd": os.fsencode(folder.path),
        "inode": folder.inode,
        "pipes": pipes,
        "limits": command.limits,
        "pids": command.pids,
        "fixed": [os.fsencode(path) for path, _ in command.fixed],
        "files": [(name.encode(), content) for name, content in command.files],
        "folder": f"{'/dev/shm' if sandboxed else tempfile.gettempdir()}/astrid-{secrets.token_hex(16)}",
        "adopt": not sandboxed and sys.platform == "linux",
    }
    return marshal.dumps((_program(), request))


@functools.cache
def _program() -> Any:
    """The supervisor's program, compiled; the interpreter that runs it is this one."""
    import importlib.util

    found = importlib.util.find_spec("astrid_host.hostcalls.process.supervisor")
    assert found is not None, "the supervisor is a module of this package"
    loader: Any = found.loader
    return loader.get_code(found.name)


def _memory(content: bytes, passed: contextlib.ExitStack) -> int:
    """A descriptor from which a content can be read."""
    descriptor = os.memfd_create("injection")
    passed.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class SupervisedProcess:
    """What the host holds of a supervisor and its child: a process, a socket, and pipes.

    Attributes:
        popen: the supervisor, or the sandbox around it.
        control: the socket to the supervisor.
        request: what the supervisor has to be sent first.
        stdin: where the child's input is written; None for none.
        outputs: where its output and its errors are read.
        child: a descriptor of the child, where there are such.
    """

    def __init__(self) -> None:
        self.popen: subprocess.Popen[bytes] | None = None
        self.request = b""
        self.stdin: int | None = None
        self.outputs: list[int] = []
        self.child: int | None = None
        self.control, self._theirs = socket.socketpair()
        self.diagnostics = os.pipe()
        self._supervisor: int | None = None

    def open_pipes(self, with_stdin: bool, passed: contextlib.ExitStack) -> list[Any]:
        """Open what the child gets: its end of the socket, then its input (or None), output and errors."""
        passed.callback(self._theirs.close)
        passed.callback(os.close, self.diagnostics[1])
        theirs: list[int | None] = [self._theirs.fileno(), None]
        if with_stdin:
            read, self.stdin = os.pipe()
            passed.callback(os.close, read)
            theirs[1] = read
            os.set_blocking(self.stdin, False)
        for _ in range(2):
            ours, written = os.pipe()
            passed.callback(os.close, written)
            self.outputs.append(ours)
            theirs.append(written)
        return theirs

    def watch(self) -> None:
        """Take hold of the supervisor's process, which nobody has reaped yet."""
        assert self.popen is not None, "it was started"
        if hasattr(os, "pidfd_open"):
            self._supervisor = os.pidfd_open(self.popen.pid)
        os.set_blocking(self.diagnostics[0], False)

    def take_stdin(self) -> int | None:
        """Where the child's input is written; whoever takes it closes it."""
        stdin, self.stdin = self.stdin, None
        return stdin

    def signal(self, number: int) -> None:
        """Have the supervisor signal the child's group. From any thread, with the lock held."""
        with contextlib.suppress(OSError):  # it has ended
            self.control.send(bytes([number]), socket.MSG_DONTWAIT)

    def hang_up(self, listen: bool = True) -> None:
        """Have the supervisor end the child's family and itself. From any thread, with the lock held.

        Args:
            listen: somebody still listens to it; otherwise it is not held up by what it has to say.
        """
        with contextlib.suppress(OSError):  # it has ended
            self.control.shutdown(socket.SHUT_WR if listen else socket.SHUT_RDWR)

    async def reaped(self) -> bool:
        """Wait for the supervisor's end and reap it; False after 3 seconds."""
        assert self.popen is not None, "it was started"
        with trio.move_on_after(REAP_S):
            await self.ended()
            self.popen.wait()
            return True
        return False

    async def ended(self) -> None:
        """Wait for the supervisor's end. Any number of tasks may."""
        assert self.popen is not None, "it was started"
        if self._supervisor is None:
            await trio.to_thread.run_sync(self.popen.wait, abandon_on_cancel=True)
            return
        own = os.dup(self._supervisor)  # of one descriptor, one task at a time can wait
        try:
            await trio.lowlevel.wait_readable(own)
        finally:
            os.close(own)

    async def force(self) -> None:
        """End a supervisor that does not do its work, and reap it: it was stopped perhaps, so it may go on first."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            self._signal_supervisor(number)
            if await self.reaped():
                return
        log.error("a supervisor cannot be killed; its process is left behind")

    def _signal_supervisor(self, number: int) -> None:
        assert self.popen is not None, "it was started"
        if self._supervisor is None:
            self.popen.send_signal(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._supervisor, number)

    def may_have_said(self, word: Word) -> bool:
        """Whether a word is the supervisor's as far as the operating system tells: where there are descriptors of processes, that
        it has started comes with one, and that it has ended is seen at it."""
        if isinstance(word, Started):
            return word.child is not None or not hasattr(os, "pidfd_open")
        return not isinstance(word, Exited) or self.child is None or _readable(self.child)

    def kill_child(self) -> None:
        """Kill the child and its group without the supervisor, which is gone."""
        if self.child is None:
            return
        with contextlib.suppress(OSError):  # it has ended, or it is no process: the child spoke for its supervisor
            # Stopped, it does not end by itself, so its number stays its own while its group is signalled.
            signal.pidfd_send_signal(self.child, signal.SIGSTOP)
            pid = number_of(self.child)
            if pid is not None and not _readable(self.child):
                os.killpg(pid, signal.SIGKILL)
            signal.pidfd_send_signal(self.child, signal.SIGKILL)

    def said(self) -> str:
        """What the sandbox or the supervisor complained of."""
        said = os.read(self.diagnostics[0], DIAGNOSTIC_BYTES) if _readable(self.diagnostics[0]) else b""
        return said.decode("utf-8", "replace").strip()

    def abort(self) -> None:
        """Give up in the middle of starting."""
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait()
        self.close()

    def close(self) -> None:
        """Close what the host holds, except for what others have taken over."""
        self.control.close()
        os.close(self.diagnostics[0])
        for descriptor in self._descriptors():
            os.close(descriptor)
        self.stdin = self.child = self._supervisor = None
        self.outputs = []

    def _descriptors(self) -> Iterator[int]:
        for descriptor in (self.stdin, self.child, self._supervisor, *self.outputs):
            if descriptor is not None:
                yield descriptor


def _readable(descriptor: int) -> bool:
    poll = select.poll()  # select itself takes none above 1,023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def number_of(descriptor: int | None) -> int | None:
    """The number that a process has here, which is another one inside its sandbox."""
    if descriptor is None:
        return None
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb", 0) as file:
            for line in file.read(1024).splitlines():
                if line.startswith(b"Pid:"):
                    return max(int(line[4:]), 0) or None
    except OSError:
        return None
    return None
