"""The supervisor of one child: a program of its own, so that the child's whole family can be found and ended.

It starts the command, tells the host when that ended and how, then ends whatever the command left behind, and exits when
nothing is left. Processes that left their session or lost their parent become its children: in a sandbox because it is the
first process there, elsewhere on Linux because it asked for them. When its connection to the host breaks it ends everything
too, so nothing survives a host that was killed.

It is the only parent of what it signals, and signals before it reaps: no signal reaches a process that has taken the number
of one that is gone. It imports as little as it can, because it is started for every command.

From the host: one dictionary (see `main`), then a byte for each signal; the end of it is the end of everything. To the host,
lines: `started PID` with a descriptor of the process where there are such; or `failed ERRNO WHAT`; then
`exited CODE SIGNAL CPU_MS PEAK_BYTES`, with `-` for none.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself takes as long to import as all the rest
import _socket
import os
import select
import sys
from typing import Any

SIGKILL, SIGCHLD = 9, int(_signal.SIGCHLD)
SET_DUMPABLE, CAPBSET_DROP, CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 4, 24, 36, 38  # of prctl
# What a command of root's may keep without a sandbox (by number, from CAP_CHOWN to CAP_SETFCAP): as in a container. It cannot
# take the memory or descriptors of its supervisor and its host, load code into the kernel, or mount.
KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31)
SWEEP_MS = 50  # a process that dies deep in the family does not wake its supervisor


class Failed(Exception):
    """What keeps the command from being started."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(number, what)
        self.number = number
        self.what = what


def main(control: int, request: dict[str, Any]) -> None:
    """Keep one child, and exit.

    Args:
        control: the socket to the host.
        request: `programs`, the files that the command may stand for; `argv` and `env` as bytes; `cwd` with the
            `(device, inode)` that have to be there; `pipes`, the descriptors that become standard input (or None), output and
            error; `limits` as (resource, soft, hard); `pids`, how many processes there may be, or None; `fixed`, paths at
            which files have been put; `files` as (variable, content), to be written below `folder`; `adopt`, whether it is
            not in a sandbox, and orphans have to be asked for.
    """
    wake = _wake_pipe()
    socket = _socket.socket(fileno=control)
    try:
        try:
            _prepare(request)
            pid = _start(request, control)
        except Failed as failed:
            _tell(control, f"failed {failed.number} {failed.what}")
            return
        for pipe in request["pipes"]:
            if pipe is not None:
                os.close(pipe)
        _tell_started(socket, pid)
        _follow(control, wake, pid)
        _tell(control, _ended(pid))
        _sweep(wake)
    finally:
        _remove(request)
        os._exit(0)  # at once: there is nothing to take down


def _wake_pipe() -> int:
    """A descriptor that is readable when a child has ended."""
    wake, told = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(told, False)
    _signal.signal(SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    return wake


def _prepare(request: dict[str, Any]) -> None:
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        # Nobody without privileges takes descriptors or memory of ours; the command is as others are, once it is executed.
        prctl(SET_DUMPABLE, 0, 0, 0, 0)
        prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # no sudo, which would
        if request["adopt"]:
            prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
        request["prctl"] = prctl
    _check_fixed(request["fixed"])
    try:
        for number, (variable, content) in enumerate(request["files"]):
            if not number:
                os.mkdir(request["folder"], 0o700)
            path = f"{request['folder']}/{number}"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
                file.write(content)
            request["env"][variable] = os.fsencode(path)
    except OSError as error:
        raise Failed(error.errno or 0, "file") from error
    try:
        os.chdir(request["cwd"])
        status = os.stat(".")
    except OSError as error:
        raise Failed(error.errno or 0, "cwd") from error
    if (status.st_dev, status.st_ino) != request["inode"]:
        raise Failed(0, "cwd")


def _check_fixed(paths: list[bytes]) -> None:
    """See where files have really been put: while that was done, folders on the way could be exchanged for links."""
    if not paths:
        return
    with open("/proc/self/mountinfo", "rb") as file:
        places = {line.split(b" ", 5)[4] for line in file}
    for path in paths:
        for character in (b"\\", b" ", b"\t", b"\n"):
            path = path.replace(character, b"\\%03o" % ord(character))
        if path not in places:
            raise Failed(0, "file")


def _start(request: dict[str, Any], control: int) -> int:
    """Run the command, as the first of a session."""
    limits = list(request["limits"])
    if request["pids"] is not None:
        import resource

        most = _tasks() + request["pids"]
        limits.append((resource.RLIMIT_NPROC, most, most))
    failed, failing = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        raise Failed(error.errno or 0, "command") from error
    if not pid:
        _become(request, limits, control, failing)
    os.close(failing)
    answer = os.read(failed, 16)
    os.close(failed)
    if answer:
        os.waitpid(pid, 0)
        raise Failed(int(answer), "command")
    return pid


def _become(request: dict[str, Any], limits: list[tuple[int, int, int]], control: int, failing: int) -> None:
    """In the new process: turn into the command."""
    try:
        os.setsid()
        _signal.set_wakeup_fd(-1)
        for number in range(1, _signal.NSIG):
            if number != SIGKILL and _signal.getsignal(number) not in (_signal.SIG_DFL, None):
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        for target, pipe in enumerate(request["pipes"]):
            if pipe is not None:
                os.dup2(pipe, target)
                os.close(pipe)
        os.close(control)
        if "prctl" in request:
            _volunteer(request["prctl"])
            if request["adopt"] and not os.geteuid():
                _renounce(request["prctl"])
        if limits:
            import resource

            for what, soft, hard in limits:
                most = resource.getrlimit(what)[1] % (1 << 64)  # no limit is -1
                resource.setrlimit(what, (min(soft, most), min(hard, most)))
        _execute(request["programs"], request["argv"], request["env"])
    except OSError as error:
        os.write(failing, b"%d" % (error.errno or 0))
    except (ValueError, MemoryError):  # limits that cannot be set, or lived with
        os.write(failing, b"22")
    finally:
        os._exit(127)


def _execute(programs: list[bytes], argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Turn into the first of these files that is there and may be run. As `os.execvpe` does, a refusal is told rather than that
    another is not there."""
    failure: OSError = FileNotFoundError(2, "there is no such program")
    for program in programs:
        try:
            os.execve(program, argv, env)
        except (FileNotFoundError, NotADirectoryError) as error:
            failure = failure if not isinstance(failure, FileNotFoundError) else error
        except PermissionError as error:
            failure = error
    raise failure


def _volunteer(prctl: Any) -> None:
    """In the new process: be ended before the host when memory is short."""
    prctl(SET_DUMPABLE, 1, 0, 0, 0)  # else it cannot write to what is its own
    try:
        with open("/proc/self/oom_score_adj", "wb", 0) as file:
            file.write(b"500")
    except OSError:  # it is as likely to be as the host then
        return


def _renounce(prctl: Any) -> None:
    """In the new process: give up what no command of root's needs, for itself and all that it starts."""
    for capability in range(64):
        if capability not in KEPT and prctl(CAPBSET_DROP, capability, 0, 0, 0):
            return  # there are no more of them


def _tasks() -> int:
    """How many tasks this user has where we can see them."""
    own, count = os.getuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/status", "rb", 0) as file:  # the folder of a supervisor belongs to another user
                lines = dict(line.partition(b":")[::2] for line in file.read(8192).splitlines())
            if int(lines[b"Uid"].split()[0]) == own:
                count += int(lines[b"Threads"])
        except (OSError, KeyError):  # it has ended meanwhile
            continue
    return count


def _tell(control: int, line: str) -> None:
    try:
        os.write(control, line.encode() + b"\n")
    except OSError:
        return  # the host is gone, and its end is what is acted upon


def _tell_started(socket: _socket.socket, pid: int) -> None:
    line = f"started {pid}\n".encode()
    descriptors = b""
    opened = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    if opened is not None:
        descriptors = opened.to_bytes(4, sys.byteorder)
    try:
        if descriptors:
            socket.sendmsg([line], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        else:
            socket.send(line)
    except OSError:
        return
    finally:
        if opened is not None:
            os.close(opened)


def _follow(control: int, wake: int, pid: int) -> None:
    """Pass signals on until the command has ended; it is left unreaped, so that its number stays its own."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while not _has_ended(pid):
        for descriptor, _ in poll.poll():
            if descriptor == wake:
                _empty(wake)
                continue
            numbers = _read(control)
            for number in numbers:
                _signal_group(pid, number)
            if not numbers:
                _signal_group(pid, SIGKILL)
                poll.unregister(control)


def _read(control: int) -> bytes:
    try:
        return os.read(control, 256)
    except OSError:
        return b""


def _empty(wake: int) -> None:
    try:
        while len(os.read(wake, 512)) == 512:
            continue
    except BlockingIOError:
        return


def _has_ended(pid: int) -> bool:
    """Whether the command has ended; others that have are reaped."""
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return True
        other = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if other is None:
            return False
        if other.si_pid != pid:
            os.waitpid(other.si_pid, 0)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:  # some of it runs as another user
        return


def _ended(pid: int) -> str:
    """End the rest of the command's group, reap the command, and say how it ended."""
    _signal_group(pid, SIGKILL)
    _, status, used = os.wait4(pid, 0)
    code = signal = "-"
    if os.WIFSIGNALED(status):
        signal = str(os.WTERMSIG(status))
    else:
        code = str(os.WEXITSTATUS(status))
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"exited {code} {signal} {int((used.ru_utime + used.ru_stime) * 1000)} {peak}"


def _sweep(wake: int) -> None:
    """End all children that are left, and those that they leave, until there are none."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in _children():
            group = os.getpgid(pid)
            os.kill(pid, SIGKILL)
            if group != os.getpgrp():
                _signal_group(group, SIGKILL)  # its child is unreaped, so the number is still this group's
        poll.poll(SWEEP_MS)
        _empty(wake)


def _children() -> list[int]:
    """Our children that have not been reaped, where the system tells."""
    try:
        with open("/proc/thread-self/children", "rb", 0) as file:
            return [int(pid) for pid in file.read(1 << 20).split()]
    except OSError:  # this kernel does not
        return _children_by_parent()


def _children_by_parent() -> list[int]:
    own, found = os.getpid(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", 0) as file:
                fields = file.read(1024).rpartition(b")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == own:
            found.append(int(name))
    return found


def _remove(request: dict[str, Any]) -> None:
    for number in range(len(request["files"])):
        try:
            os.unlink(f"{request['folder']}/{number}")
        except FileNotFoundError:
            break
    if request["files"]:
        try:
            os.rmdir(request["folder"])
        except OSError:
            return
