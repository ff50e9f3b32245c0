"""Which commands a manifest lets a capsule run, and whether they have a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from astrid_host.gates.verdicts import Denial, quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


def may_spawn(manifest: Manifest, command: str, arguments: Sequence[str] = ()) -> Denial | None:
    """Whether a capsule may run a command.

    A row of `host_process` is a command, perhaps with the arguments that it has to begin with: `git status` allows `git` with the
    arguments `status -s`. A row without arguments allows all of them: `bash` allows everything. (Astrid, process: gates.)

    Args:
        manifest: the capsule's.
        command: a name without `/`, looked up on PATH, or an absolute path that is a row's.
        arguments: each one argument, whatever it contains.
    """
    rows = manifest.capabilities.host_process
    named = "/" not in command or command.startswith("/")
    if named and any(_allows(row, command, arguments) for row in rows):
        return None
    name = manifest.package.name
    if not named:
        detail = f"capsule {name!r} may not run {command!r}: a command is a name without '/', or an absolute path"
        return Denial("capability-denied", detail)
    line = f"[capabilities] host_process = [{', '.join(map(quoted, (*rows, command)))}]"
    return Denial("capability-denied", f"capsule {name!r} may not run {command!r}: write in its Capsule.toml: {line}")


def _allows(row: str, command: str, arguments: Sequence[str]) -> bool:
    if not command.strip():
        return False
    if row == command:
        return True
    first, *leading = row.split() or [""]
    return first == command and list(arguments[: len(leading)]) == leading


def may_persist(manifest: Manifest) -> Denial | None:
    """Whether a capsule may start processes that outlive the call."""
    if manifest.capabilities.allow_persistent:
        return None
    line = "[capabilities] allow_persistent = true"
    detail = f"capsule {manifest.package.name!r} may not leave processes behind: write in its Capsule.toml: {line}"
    return Denial("persist-unsupported", detail)


def may_use_network(manifest: Manifest) -> Denial | None:
    """Whether processes of a capsule may use the host's network: a row of `net` is `*`.

    A process cannot be held to single hosts, so narrower rows, and those of `net_connect` and `net_bind`, hold for the capsule's
    own requests and connections alone. (Astrid, process: sandbox.)
    """
    if "*" in manifest.capabilities.net:
        return None
    line = f"[capabilities] net = [{', '.join(map(quoted, (*manifest.capabilities.net, '*')))}]"
    detail = (
        f"processes of capsule {manifest.package.name!r} have no network but their own loopback; to let them (and the capsule) "
        f"reach all that the host reaches, write in its Capsule.toml: {line}"
    )
    return Denial("capability-denied", detail)
