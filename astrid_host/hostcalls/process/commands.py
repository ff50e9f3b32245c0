"""What a guest asks to run, checked: a `Command`.

Nothing is passed on to a child but what is named here: a few variables that say where programs and texts are, and those that
the guest gives. Variables that change how programs load are refused. (Astrid, process: env policy, limits.)

Limits that a guest does not ask for: no core files, and 1,024 open files, which a program may raise to 65,536. When memory is
short the kernel ends children before their host. There are no others by default. Address space would be one that programs with
a garbage collector or a compiler of their own run into at once, since they reserve far more than they use; processes are
counted for each user, the host and its other children with them, and for root not at all; time and output are bounded already,
and a file may be as large as its disk has room for. A guest asks for `limits` where it knows what its command needs; an
operator bounds the host and all its children together, with a control group (`systemd-run --user --scope -p MemoryMax=…
-p TasksMax=…`).
"""

from __future__ import annotations

import os
import re
import resource
import shlex
from collections.abc import Iterable
from typing import Any

import msgspec

from astrid_host.errors import HostError

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
VARIABLES = 256
VALUE_BYTES = 64 << 10
ARGUMENTS = 4096
ARGUMENT_BYTES = 1 << 20  # together
STDIN_BYTES = 4 << 20
LABEL_BYTES = 128
SHOWN = 4096
RING_BYTES = (4 << 10, 1 << 20, 8 << 20)  # least, by default, most
LIFETIME_S = 6 * 3600.0
IDLE_S = 30 * 60.0
RETENTION_S = (5 * 60.0, 3600.0)  # by default, most
INJECTIONS = 128
INJECTION_BYTES = 8 << 20
INJECTED_BYTES = 16 << 20

OPEN_FILES = (1024, 65_536)  # soft, hard

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESERVED = {
    *("PATH", "ASTRID_SESSION_TOKEN", "BASH_ENV", "ENV", "GCONV_PATH", "NODE_OPTIONS", "PERL5OPT", "PYTHONHOME"),
    *("PYTHONPATH", "RUBYOPT", "ZDOTDIR"),
}
_RESERVED_PREFIXES = ("DYLD_", "LD_")
_NO_LIMIT = (1 << 63) - 1


class Command(msgspec.Struct, gc=False):
    """A command that may be run.

    Attributes:
        argv: the command and its arguments.
        env: all its variables.
        stdin: what it finds on its input, or None.
        limits: resources as (number, soft limit, hard limit).
        pids: how many processes it may be, or None.
        files: contents that it finds where a variable says, as (variable, content).
        fixed: contents that it finds at a path, as (path, content).
        label: what people call it.
        stdin_open: its input stays open for more.
        waits: it has to wait when nobody reads what it writes.
        ring_bytes: how much of each stream is kept.
        lifetime_s, idle_s, retention_s: seconds until it is ended; until it is when nobody uses it; kept after its end.
    """

    argv: list[str]
    env: dict[str, str]
    stdin: bytes | None
    limits: list[tuple[int, int, int]]
    pids: int | None
    files: list[tuple[str, bytes]]
    fixed: list[tuple[str, bytes]]
    label: str
    stdin_open: bool
    waits: bool
    ring_bytes: int
    lifetime_s: float
    idle_s: float
    retention_s: float

    @property
    def text(self) -> str:
        """As a shell would have it, the first 4,096 characters."""
        shown: list[str] = []
        for part in self.argv:
            shown.append(shlex.quote(part[:SHOWN]))
            if sum(map(len, shown)) > SHOWN:
                break
        return " ".join(shown)[:SHOWN]


def command_of(request: Any) -> Command:
    """A `spawn-request` of either version, checked.

    Raises:
        HostError: `too-large` for more than 4,096 arguments or 1 MiB of them, 256 variables of 64 KiB, 4 MiB of input, a
            label of 128 bytes, 128 files of 8 MiB or 16 MiB together; `invalid-input` for a NUL, a name that is none, is
            given twice or is reserved, a limit or time of 0.
    """
    files, fixed = _injections(getattr(request, "file_injections", ()))
    env = _environment(request.env, [name for name, _ in files])
    if request.stdin is not None and len(request.stdin) > STDIN_BYTES:
        raise HostError("too-large", detail=f"stdin has {len(request.stdin)} bytes; {STDIN_BYTES} are allowed")
    least, usual, most = RING_BYTES
    limits, pids = _limits(request.limits)
    return Command(
        argv=_argv(request.cmd, request.args),
        env=env,
        stdin=request.stdin,
        limits=limits,
        pids=pids,
        files=files,
        fixed=fixed,
        label=_label(request.label, request.cmd),
        stdin_open=bool(request.keep_stdin_open),
        waits=request.overflow == "backpressure",
        ring_bytes=usual if request.log_ring_bytes is None else max(least, min(request.log_ring_bytes, most)),
        lifetime_s=_seconds(request.max_lifetime_ms, LIFETIME_S, LIFETIME_S, "max-lifetime-ms"),
        idle_s=_seconds(request.idle_timeout_ms, IDLE_S, LIFETIME_S, "idle-timeout-ms"),
        retention_s=_seconds(request.exit_retention_ms, *RETENTION_S, "exit-retention-ms"),
    )


def _argv(cmd: str, arguments: list[str]) -> list[str]:
    argv = [cmd, *arguments]
    if len(argv) > ARGUMENTS or sum(map(len, argv)) > ARGUMENT_BYTES:
        raise HostError("too-large", detail=f"more than {ARGUMENTS} arguments, or {ARGUMENT_BYTES} bytes of them")
    if not cmd or any("\0" in part for part in argv):
        raise HostError("invalid-input", detail="a command is not empty, and has no NUL characters")
    return argv


def _environment(given: list[Any], injected: list[str]) -> dict[str, str]:
    if len(given) + len(injected) > VARIABLES:
        raise HostError("too-large", detail=f"more than {VARIABLES} variables")
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    seen: set[str] = set()
    for name, value in (*((pair.key, pair.value) for pair in given), *((name, "") for name in injected)):
        if len(value) > VALUE_BYTES or len(value.encode()) > VALUE_BYTES:
            raise HostError("too-large", detail=f"the variable {name[:64]!r} has more than {VALUE_BYTES} bytes")
        if len(name) > VALUE_BYTES or _NAME.fullmatch(name) is None or "\0" in value:
            raise HostError(
                "invalid-input", detail=f"{name[:64]!r} is no variable: a name is {_NAME.pattern}, a value has no NUL"
            )
        if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            raise HostError("invalid-input", detail=f"{name[:64]!r} is reserved: it changes how programs load")
        if name in seen:
            raise HostError("invalid-input", detail=f"the variable {name[:64]!r} is given twice")
        seen.add(name)
        env[name] = value
    return env


def _limits(given: Any) -> tuple[list[tuple[int, int, int]], int | None]:
    limits = [(resource.RLIMIT_CORE, 0, 0)]
    if given is None:
        return [*limits, (resource.RLIMIT_NOFILE, *OPEN_FILES)], None
    asked = (given.max_memory_bytes, given.max_cpu_secs, given.max_open_files, given.max_pids)
    if any(limit == 0 for limit in asked):
        raise HostError("invalid-input", detail="a limit of 0 leaves nothing to run with")
    if given.max_open_files is None:
        limits.append((resource.RLIMIT_NOFILE, *OPEN_FILES))
    for number, limit in zip((resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE), asked, strict=False):
        if limit is not None:
            soft = min(limit, _NO_LIMIT - 1)
            # It is told first that its time is up, and ended a second later.
            limits.append((number, soft, soft + 1 if number == resource.RLIMIT_CPU else soft))
    return limits, given.max_pids


def _injections(given: Iterable[Any]) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    files: list[tuple[str, bytes]] = []
    fixed: list[tuple[str, bytes]] = []
    total = 0
    for number, injection in enumerate(given):
        size = len(injection.content)
        total += size
        if number >= INJECTIONS or size > INJECTION_BYTES or total > INJECTED_BYTES:
            detail = f"files: {INJECTIONS} of {INJECTION_BYTES} bytes at most, {INJECTED_BYTES} together"
            raise HostError("too-large", detail=detail)
        where = injection.placement
        (files if where.case == "env-pointer" else fixed).append((where.value, injection.content))
    for path, _ in fixed:
        if not path.startswith("/") or len(path) > 4096 or "\0" in path or os.path.normpath(path) != path:
            raise HostError(
                "invalid-input", detail=f"{path[:64]!r} is no absolute path without empty, `.` and `..` segments"
            )
    if len({path for path, _ in fixed}) < len(fixed):
        raise HostError("invalid-input", detail="two files are to stand at one path")
    return files, fixed


def _label(given: str | None, cmd: str) -> str:
    if given is None:
        return _CONTROL.sub("", os.path.basename(cmd))[:LABEL_BYTES]
    if len(given) > LABEL_BYTES or len(given.encode()) > LABEL_BYTES:
        raise HostError("too-large", detail=f"a label has at most {LABEL_BYTES} bytes")
    if _CONTROL.search(given):
        raise HostError("invalid-input", detail="a label has no control characters")
    return given


def _seconds(given_ms: int | None, usual: float, most: float, field: str) -> float:
    if given_ms is None:
        return usual
    if given_ms == 0:
        raise HostError("invalid-input", detail=f"{field} is 0: leave it out for {usual:g} seconds")
    return min(given_ms / 1000, most)
