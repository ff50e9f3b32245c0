"""The sandbox that children run in: bubblewrap, where a probe shows that it works.

A child in it sees its own processes only, all of which end with it; the disk read-only, but for the workspace, the home and
the scratch folder of its principal; no other principal's home, none of the host's databases and sockets, nothing of its
user's home but programs (`hiding` tells what exactly). It has a network of its own, with a loopback that leads to itself, unless
its capsule's manifest has `net = ["*"]`: then it has the host's, with all that listens there and abstract sockets too.
It has a host name of its own, changes nothing of the kernel (`kernel_files`), and what the host itself runs or trusts is
read-only to it, wherever that lies. Where the host is root and the kernel lets it, a child has the id of an ordinary user: it
still owns root's files where it may write at all.

Without the sandbox a child is an ordinary process of the host's user, with all that this user may do but gain privileges, and
its supervisor finds and ends its family as well as it can. It cannot trace its supervisor. As root it has no privileges but those
that root has in a container, so it traces neither supervisor nor host; it still writes to all files of root's. As another user it
may trace the host where the system lets processes of one user trace each other (kernel.yama.ptrace_scope = 0).
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from astrid_host.hostcalls.process.hiding import Hidden, below, sockets, within
from astrid_host.hostcalls.process.kernel_files import kernel_covers
from astrid_host.hostcalls.process.places import Grants

PROBE_S = 5.0
RUN = "/run"
# Where name servers are written down on some systems.
_RESOLVERS = ("/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf", "/run/connman/resolv.conf")
_FIRST = (
    *("--die-with-parent", "--new-session", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    # A name that every program can look up, and that tells nothing of the machine.
    *("--hostname", "localhost", "--unshare-cgroup-try", "--cap-drop", "ALL"),
)
ORDINARY = 1000  # the id of user and group that root's children have
_SAME_USER = ("--unshare-user-try",)
_ORDINARY_USER = ("--unshare-user", "--uid", str(ORDINARY), "--gid", str(ORDINARY))
_OWN_NETWORK = "--unshare-net"
_ALWAYS = (("--ro-bind", "/", "/"), ("--dev", "/dev"), ("--proc", "/proc"), ("--tmpfs", RUN))
_INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"
_PLAIN = "commands run as ordinary processes, which may do all that the host's user may"
_ROOT = "; that user is root, as whom no capsules should run that are not trusted, unless in the sandbox"
_REMAINS_ORDINARY = (
    "the host is root: commands have another id, but what they write in the workspace is root's, and they change what is root's "
    "there"
)
_REMAINS_ROOT = (
    "the host is root, and so are its commands, because the kernel gives them no other id: they have no privileges and change "
    "nothing of the kernel's, but all that is root's in the workspace"
)


class SandboxState(NamedTuple):
    """Whether children run in a sandbox, what to tell people about it, and whether all of them have the host's network there."""

    works: bool
    detail: str
    shares_network: bool = False


@functools.cache
def sandbox_state() -> SandboxState:
    """Try the sandbox, once a process. Takes some milliseconds, 15 s at most. (Astrid, process: sandbox.)"""
    plain = _PLAIN + (_ROOT if _is_root() else "")
    if sys.platform != "linux":
        return SandboxState(False, f"there is no sandbox on this system, so {plain}")
    program = shutil.which("bwrap")
    if program is None:
        return SandboxState(False, f"bwrap was not found, so {plain}: {_INSTALL}")
    try:
        user = _user(program)
        if _failure(program, *user, _OWN_NETWORK) is None:
            return SandboxState(True, f"commands run in {program}")
        failure = _failure(program, *user)
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxState(False, f"{program} cannot be run, so {plain}: {error}")
    mend = (
        "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for it)"
    )
    if failure is None:
        return SandboxState(
            True, f"commands run in {program}, with the network of the host: {mend}", shares_network=True
        )
    return SandboxState(False, f"{program} fails, so {plain}: {failure}; {mend}")


def remains_of_root() -> str | None:
    """What the sandbox does not take from children of a host that is root; None for another host, and without a sandbox."""
    state = sandbox_state()
    program = shutil.which("bwrap")
    if not state.works or program is None or not _is_root():
        return None
    return _REMAINS_ORDINARY if _user(program) is _ORDINARY_USER else _REMAINS_ROOT


def _is_root() -> bool:
    return hasattr(os, "getuid") and not os.getuid()


@functools.cache
def _user(program: str) -> tuple[str, ...]:
    """The options that say whose id a child has: an ordinary user's, where the host is root and the kernel lets it."""
    ordinary = _is_root() and _failure(program, *_ORDINARY_USER) is None
    return _ORDINARY_USER if ordinary else _SAME_USER


def _failure(program: str, *more: str) -> str | None:
    """What the sandbox says when it does not work; None when it does."""
    covers = itertools.chain(*_ALWAYS, *kernel_covers().values())
    tried = [program, *_FIRST, *more, *covers, "--", "true"]
    ended = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    return said[0] if ended.returncode else None


def wrapping(grants: Grants, hidden: Hidden, fixed: Sequence[tuple[int, str]]) -> list[str]:
    """The beginning of a command line that runs the rest of it in the sandbox.

    Args:
        grants: what may be written to, and whether the network of the host may be used.
        hidden: what stays hidden, but for what of `grants` is in it.
        fixed: contents that stand at a path, as (descriptor to read them from, path).

    Raises:
        OSError: bubblewrap is gone.
    """
    program = shutil.which("bwrap")
    if program is None:  # it was there when it was tried
        raise FileNotFoundError(errno.ENOENT, "bwrap was removed while the host ran")
    covers = _covers(grants, hidden)
    line = [program, *_FIRST, *_user(program)]
    if grants.no_network is not None and not sandbox_state().shares_network:
        line.append(_OWN_NETWORK)
    # What is below another has to come after it.
    for _, cover in sorted(covers.items(), key=lambda item: len(Path(item[0]).parts)):
        line += cover
    for descriptor, path in fixed:
        line += ["--ro-bind-data", str(descriptor), path]
    for path, cover in covers.items():
        if cover[0] == "--tmpfs" and path != RUN:  # what is mounted on it, for a place in it to be seen, stays as it is
            line += ["--remount-ro", path]
    return [*line, "--"]


def _covers(grants: Grants, hidden: Hidden) -> dict[str, tuple[str, ...]]:
    """What is mounted, by where; the later of two at one place counts."""
    covers: dict[str, tuple[str, ...]] = {cover[-1]: cover for cover in _ALWAYS} | kernel_covers()
    covers |= {path: ("--ro-bind-try", path, path) for path in _RESOLVERS}
    covers |= {path: ("--tmpfs", path) for path in hidden.folders}
    covers |= {seen: ("--ro-bind", real, seen) for real, seen in hidden.shown}
    covers["/tmp"] = ("--bind", grants.scratch, "/tmp")
    covers |= {path: ("--bind", path, path) for path in (grants.workspace, *hidden.fixed, grants.home)}
    covers |= {path: ("--ro-bind", path, path) for path in hidden.kept}
    covers |= {path: ("--ro-bind", "/dev/null", path) for path in (*hidden.files, *_strange_sockets(grants, hidden))}
    for path in _interpreter():
        if any(below(path, place) for place in ("/tmp", RUN, *hidden.folders)) and not within(path, grants.workspace):
            covers[path] = ("--ro-bind", path, path)
    return covers


def names_of(grants: Grants) -> list[tuple[str, bytes]]:
    """Files that give the child's user and group a name, as (path, content): programs ask for their own. None when the system
    knows one already, or the child's user is the host's."""
    program = shutil.which("bwrap")
    if program is None or _user(program) is not _ORDINARY_USER:
        return []
    lines = {
        "/etc/passwd": f"sandbox:x:{ORDINARY}:{ORDINARY}::{grants.home}:/bin/sh\n",
        "/etc/group": f"sandbox:x:{ORDINARY}:\n",
    }
    return [(path, content) for path, line in lines.items() if (content := _with_line(path, line)) is not None]


def _with_line(path: str, line: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    taken = any(entry.split(b":")[2:3] == [str(ORDINARY).encode()] for entry in content.splitlines())
    return None if taken or os.path.realpath(path) != path else content.rstrip(b"\n") + b"\n" + os.fsencode(line)


def _strange_sockets(grants: Grants, hidden: Hidden) -> list[str]:
    """Sockets that would be seen, outside of what the child may write to: they are others' doors."""
    places = ("/tmp", "/dev", RUN, grants.workspace, grants.home, *hidden.folders)
    shown = [real for real, _ in hidden.shown]
    return [
        path
        for path in sockets()
        if not any(within(path, place) for place in places) or any(within(path, place) for place in shown)
    ]


def _interpreter() -> tuple[str, ...]:
    """What the supervisor needs, for when that is hidden: the library, and the program that it is run with."""
    prefix, program = os.path.realpath(sys.base_prefix), supervisors_program()
    return (prefix,) if within(program, prefix) else (prefix, program)


def supervisors_program() -> str:
    """The interpreter, without the environment that it was perhaps started in, which may be hidden from children."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
