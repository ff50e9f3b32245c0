"""Which commands a manifest lets a capsule run, and whether they have a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astrid_host.gates.verdicts import Denial, quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


def may_spawn(manifest: Manifest, command: str) -> Denial | None:
    """Whether a capsule may run a command: it equals a row of `host_process`, or goes on after one with a space.

    Arguments are not looked at: a row `bash` allows everything. (Astrid, process: gates.)
    """
    rows = manifest.capabilities.host_process
    if any(command == row or command.startswith(f"{row} ") for row in rows if row):
        return None
    line = f"[capabilities] host_process = [{', '.join(map(quoted, (*rows, command)))}]"
    detail = f"capsule {manifest.package.name!r} may not run {command!r}: write in its Capsule.toml: {line}"
    return Denial("capability-denied", detail)


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
