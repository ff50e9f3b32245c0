"""The sandbox that children run in: bubblewrap, where a probe shows that it works.

A child in it sees its own processes only, all of which end with it; the disk read-only, but for the workspace, the home and
the scratch folder of its principal; no other principal's home, none of the host's databases and sockets. The network stays.
Without it a child is an ordinary process of the host's user, and its keeper finds and ends its family as well as it can.
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

from astrid_host.syscalls.process.places import Mounts

PROBE_S = 5.0
RUN = "/run"
# Where name servers are written down on some systems.
_RESOLVERS = ("/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf", "/run/connman/resolv.conf")
_FIRST = (
    *("--die-with-parent", "--new-session", "--as-pid-1", "--unshare-user-try", "--unshare-pid", "--unshare-ipc"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL"),
)
_ALWAYS = (("--ro-bind", "/", "/"), ("--dev", "/dev"), ("--proc", "/proc"), ("--tmpfs", RUN))
_INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"


class SandboxState(NamedTuple):
    """Whether children run in a sandbox, and what to tell people about it."""

    works: bool
    detail: str


@functools.cache
def sandbox_state() -> SandboxState:
    """Try the sandbox, once a process. Takes some milliseconds, 5 s at most. (Astrid, process: sandbox.)"""
    if sys.platform != "linux":
        return SandboxState(False, "there is no sandbox on this system: commands run as ordinary processes")
    program = shutil.which("bwrap")
    if program is None:
        return SandboxState(False, f"bwrap was not found, so commands run as ordinary processes: {_INSTALL}")
    tried = [program, *_FIRST, *itertools.chain(*_ALWAYS), "--", "true"]
    try:
        ended = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxState(False, f"{program} cannot be run, so commands run as ordinary processes: {error}")
    if ended.returncode == 0:
        return SandboxState(True, f"commands run in {program}")
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    mend = (
        "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for it)"
    )
    return SandboxState(False, f"{program} fails, so commands run as ordinary processes: {said[0]}; {mend}")


def wrapping(mounts: Mounts, private: str | None, fixed: Sequence[tuple[int, str]]) -> list[str]:
    """The beginning of a command line that runs the rest of it in the sandbox.

    Args:
        mounts: what may be written to.
        private: a folder that stays hidden but for what of `mounts` is in it.
        fixed: contents that stand at a path, as (descriptor to read them from, path).
    """
    program = shutil.which("bwrap")
    assert program is not None, "the probe has found it"
    covers = [*_ALWAYS, *(("--ro-bind-try", path, path) for path in _RESOLVERS)]
    covers += [("--bind", mounts.scratch, "/tmp"), ("--bind", mounts.workspace, mounts.workspace)]
    if private is not None:
        covers.append(("--tmpfs", private))
    covers.append(("--bind", mounts.home, mounts.home))
    covers.sort(key=lambda cover: len(Path(cover[-1]).parts))  # what is below another has to come after it
    line = [program, *_FIRST, *itertools.chain(*covers)]
    interpreter = os.path.realpath(sys.base_prefix)
    if any(_below(interpreter, hidden) for hidden in ("/tmp", RUN, private) if hidden):
        line += ["--ro-bind", interpreter, interpreter]
    for descriptor, path in fixed:
        line += ["--ro-bind-data", str(descriptor), path]
    return [*line, "--"]


def may_stand_at(path: str, mounts: Mounts) -> bool:
    """Whether a file may be put at a path for one child: in /run, which is its own, or over a file that is there in /etc, /tmp,
    its home or its workspace. Never over programs, their libraries, and what says which of these are loaded.

    Args:
        path: absolute, without `.` and `..`.
        mounts: where the home and the workspace are, and what stands at /tmp.
    """
    if _below(path, RUN):
        return True
    if _below(path, mounts.workspace) or _below(path, mounts.home):
        found = path
    elif _below(path, "/tmp"):
        found = mounts.scratch + path.removeprefix("/tmp")
    elif _below(path, "/etc") and not path.startswith("/etc/ld.so."):
        found = path
    else:
        return False
    return os.path.isfile(found) and os.path.realpath(found) == found


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
