"""The sandbox that children run in: bubblewrap, where a probe shows that it works.

A child in it sees its own processes only, all of which end with it; the disk read-only, but for the workspace, the home and
the scratch folder of its principal; no other principal's home, none of the host's databases and sockets, nothing of its
user's home but programs (`hiding` tells what exactly). It has a network of its own, with a loopback that leads to itself, unless
its capsule's manifest has `net = ["*"]`: then it has the host's, with all that listens there and abstract sockets too.

Without the sandbox a child is an ordinary process of the host's user, with all that this user may do but gain privileges, and
its keeper finds and ends its family as well as it can. It cannot trace its keeper. As root it has no privileges but those that
root has in a container, so it traces neither keeper nor host; it still writes to all files of root's. As another user it may
trace the host where the system lets processes of one user trace each other (kernel.yama.ptrace_scope = 0).
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from astrid_host.syscalls.process.hiding import Hidden, below, sockets, within
from astrid_host.syscalls.process.places import Grants

PROBE_S = 5.0
RUN = "/run"
# Where name servers are written down on some systems.
_RESOLVERS = ("/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf", "/run/connman/resolv.conf")
_FIRST = (
    *("--die-with-parent", "--new-session", "--as-pid-1", "--unshare-user-try", "--unshare-pid", "--unshare-ipc"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL"),
)
_OWN_NETWORK = "--unshare-net"
_ALWAYS = (("--ro-bind", "/", "/"), ("--dev", "/dev"), ("--proc", "/proc"), ("--tmpfs", RUN))
_INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"
_PLAIN = "commands run as ordinary processes, which may do all that the host's user may"
_ROOT = "; that user is root, as whom no capsules should run that are not trusted, unless in the sandbox"


class SandboxState(NamedTuple):
    """Whether children run in a sandbox, what to tell people about it, and whether all of them have the host's network there."""

    works: bool
    detail: str
    shares_network: bool = False


@functools.cache
def sandbox_state() -> SandboxState:
    """Try the sandbox, once a process. Takes some milliseconds, 10 s at most. (Astrid, process: sandbox.)"""
    plain = _PLAIN + (_ROOT if hasattr(os, "getuid") and not os.getuid() else "")
    if sys.platform != "linux":
        return SandboxState(False, f"there is no sandbox on this system, so {plain}")
    program = shutil.which("bwrap")
    if program is None:
        return SandboxState(False, f"bwrap was not found, so {plain}: {_INSTALL}")
    try:
        if _failure(program, _OWN_NETWORK) is None:
            return SandboxState(True, f"commands run in {program}")
        failure = _failure(program)
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


def _failure(program: str, *more: str) -> str | None:
    """What the sandbox says when it does not work; None when it does."""
    tried = [program, *_FIRST, *more, *itertools.chain(*_ALWAYS), "--", "true"]
    ended = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    return said[0] if ended.returncode else None


def wrapping(grants: Grants, hidden: Hidden, fixed: Sequence[tuple[int, str]]) -> list[str]:
    """The beginning of a command line that runs the rest of it in the sandbox.

    Args:
        grants: what may be written to, and whether the network of the host may be used.
        hidden: what stays hidden, but for what of `grants` is in it.
        fixed: contents that stand at a path, as (descriptor to read them from, path).
    """
    program = shutil.which("bwrap")
    assert program is not None, "the probe has found it"
    covers = _covers(grants, hidden)
    line = [program, *_FIRST]
    if grants.no_network is not None and not sandbox_state().shares_network:
        line.append(_OWN_NETWORK)
    # What is below another has to come after it.
    for _, cover in sorted(covers.items(), key=lambda item: len(Path(item[0]).parts)):
        line += cover
    for descriptor, path in fixed:
        line += ["--ro-bind-data", str(descriptor), path]
    for path, cover in covers.items():
        if cover[0] == "--tmpfs" and path != RUN:
            line += ["--remount-ro", path]
    return [*line, "--"]


def _covers(grants: Grants, hidden: Hidden) -> dict[str, tuple[str, ...]]:
    """What is mounted, by where; the later of two at one place counts."""
    covers: dict[str, tuple[str, ...]] = {cover[-1]: cover for cover in _ALWAYS}
    covers |= {path: ("--ro-bind-try", path, path) for path in _RESOLVERS}
    covers |= {path: ("--tmpfs", path) for path in hidden.folders}
    covers |= {seen: ("--ro-bind", real, seen) for real, seen in hidden.shown}
    covers["/tmp"] = ("--bind", grants.scratch, "/tmp")
    covers |= {path: ("--bind", path, path) for path in (grants.workspace, *hidden.fixed, grants.home)}
    covers |= {path: ("--ro-bind", "/dev/null", path) for path in (*hidden.files, *_strange_sockets(grants, hidden))}
    for path in _interpreter():
        if any(below(path, place) for place in ("/tmp", RUN, *hidden.folders)) and not within(path, grants.workspace):
            covers[path] = ("--ro-bind", path, path)
    return covers


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
    """What the keeper needs, for when that is hidden: the library, and the program that it is run with."""
    prefix, program = os.path.realpath(sys.base_prefix), keepers_program()
    return (prefix,) if within(program, prefix) else (prefix, program)


def keepers_program() -> str:
    """The interpreter, without the environment that it was perhaps started in, which may be hidden from children."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
