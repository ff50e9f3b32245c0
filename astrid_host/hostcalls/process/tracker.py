"""All children of a host: whose they are, how many there may be, and how long those that have ended are remembered.

A child belongs to a principal and a capsule, and is reached by no other. Children of tool calls are found by their call_id, to
be interrupted when the call is cancelled. (Astrid, process: limits; cancel tracking.)
"""

from __future__ import annotations

import base64
import functools
import logging
import re
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import trio

from astrid_host.bundled import APPLICATION
from astrid_host.errors import HostError
from astrid_host.hostcalls.process.child import Child, Kind
from astrid_host.hostcalls.process.commands import Command
from astrid_host.hostcalls.process.launching import Spawner
from astrid_host.hostcalls.process.places import Folder, Grants, check_injection, grants, working_folder
from astrid_host.payloads import ToolExecuteRequest, from_value

if TYPE_CHECKING:
    from astrid_host.bus import Bus
    from astrid_host.hostcalls.interface import Running
    from astrid_host.hostcalls.io.background import Background
    from astrid_host.hostcalls.paths import Roots

LIVE = 256  # of one host
LIVE_OF_PRINCIPAL = 8  # in the background and persistent
RING_BYTES_OF_PRINCIPAL = 128 << 20
RETAINED = 256
RETAINED_OF_PRINCIPAL = 32
CANCEL_S = 2.0
TOPICS = "astrid.process.v1"

log = logging.getLogger(__name__)

_SUFFIX = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+){0,3}")


class Tracker:
    """The children of one host. Made on the trio thread.

    Args:
        bus: where the ends of watched children are told.
        background: where children live; its end is theirs.
        roots: what `cwd` leads into.
        private: a folder that children in the sandbox do not see: the one with databases and homes. The folders in which
            hosts of this user keep their state and compiled modules by default are hidden beside it.
        sandboxed: whether children run in the sandbox; by default when it works.
    """

    def __init__(
        self, bus: Bus, background: Background, roots: Roots, private: Path | None, sandboxed: bool | None = None
    ) -> None:
        self._bus = bus
        self._background = background
        self._roots = roots
        usual = (platformdirs.user_data_dir(APPLICATION), platformdirs.user_cache_dir(APPLICATION))
        own = [*map(Path, usual), *(() if private is None else (private,))]
        self._spawner = Spawner(sandboxed, own, lambda: roots.trusted)
        self._children: dict[str, Child] = {}

    def close(self) -> None:
        """End what starts children. The nursery that they live in has ended before, and with it all of them."""
        self._spawner.close()

    @property
    def children(self) -> list[Child]:
        """Those that live, and those that are remembered. From any thread."""
        with self._bus.lock:
            return list(self._children.values())

    async def start(self, call: Running, kind: Kind, command: Command, cwd: str | None) -> Child:
        """Start a command for a call, and return when it runs. On the trio thread.

        Raises:
            HostError: `quota` when the host has 256 children, or the principal 8 that are not of a call, or rings of
                128 MiB; `registry-full` for 32 persistent ones of the principal, or 256; `boundary-escape` and
                `invalid-input` for a `cwd` that is no folder of the caller's; `invalid-input` for a path where no file can be
                put; `unknown` when the command cannot be run.

        Cancelled, the child is killed.
        """
        folder, allowed = working_folder(self._roots, call, cwd), grants(self._roots, call)
        for path, _ in command.fixed:
            check_injection(path, self._roots, call, allowed)
        child = self._admit(call, kind, command)
        self._background.start(functools.partial(self._keep, child, folder, allowed))
        try:
            await child.started.wait()
        except trio.Cancelled:
            child.kill()
            raise
        if child.failure is not None:
            await child.gone.wait()
            self._forget(child)
            raise child.failure
        return child

    def _admit(self, call: Running, kind: Kind, command: Command) -> Child:
        principal, request = call.principal, call.message.data if call.message is not None else None
        call_id = request.call_id if kind == "foreground" and isinstance(request, ToolExecuteRequest) else None
        process_id = base64.b32encode(secrets.token_bytes(32)).decode().lower().rstrip("=")
        with self._bus.lock:
            children = self._children.values()
            live = [child for child in children if child.present]
            if len(live) >= LIVE:
                raise HostError("quota", detail=f"{LIVE} processes run already")
            own_rings = sum(2 * child.command.ring_bytes for child in children if child.principal == principal)
            if own_rings + 2 * command.ring_bytes > RING_BYTES_OF_PRINCIPAL:
                detail = (
                    f"the rings of {principal!r} would have more than {RING_BYTES_OF_PRINCIPAL} bytes: ask for smaller"
                )
                raise HostError("quota", detail=detail)
            if kind != "foreground":
                beside = sum(child.principal == principal and child.kind != "foreground" for child in live)
                if beside >= LIVE_OF_PRINCIPAL:
                    detail = f"{LIVE_OF_PRINCIPAL} processes of {principal!r} run in the background already"
                    raise HostError("quota", detail=detail)
            if kind == "persistent":
                retained = [child for child in children if child.kind == kind]
                own = sum(child.principal == principal for child in retained)
                if own >= RETAINED_OF_PRINCIPAL or len(retained) >= RETAINED:
                    detail = (
                        f"{RETAINED_OF_PRINCIPAL} persistent processes of {principal!r} are kept, or {RETAINED} in all"
                    )
                    raise HostError("registry-full", detail=detail)
            child = Child(
                process_id, kind, command, principal, call.capsule.id, call_id, self._background.scheduler, self._tell
            )
            self._children[process_id] = child
        return child

    async def _keep(self, child: Child, folder: Folder, allowed: Grants) -> None:
        try:
            try:
                await child.run(self._spawner, folder, allowed)
            except Exception:  # the trouble of one child is not the host's end
                log.exception("%s: a process of %s is lost", child.capsule, child.principal)
                child.fail(HostError("unknown", "the host failed", detail="see the log"))
            self._tell(child, "exited")
            if child.kind == "persistent" and child.failure is None:
                with trio.move_on_after(child.command.retention_s):
                    await child.released.wait()
        finally:
            self._forget(child)

    def _forget(self, child: Child) -> None:
        with self._bus.lock:
            self._children.pop(child.id, None)

    # Those that outlive the call.

    def find(self, call: Running, process_id: str) -> Child:
        """A persistent child of the caller. From any thread.

        Raises:
            HostError: `no-such-process`; of another capsule's or principal's the guest learns nothing else.
        """
        with self._bus.lock:
            child = self._children.get(process_id)
            if child is None or not _owns(call, child):
                detail = f"{call.capsule.id} has no such process for {call.principal!r}; it may have ended long ago"
                raise HostError("no-such-process", detail=detail)
            return child

    def of(self, call: Running) -> Iterator[Child]:
        """The caller's persistent children."""
        return (child for child in self.children if _owns(call, child))

    def release(self, child: Child) -> None:
        """Forget a child that has ended, or is being ended. From any thread."""
        self._forget(child)
        self._background.tell(child.released.set)

    def room(self, child: Child) -> None:
        """Some of what a child wrote was read. From any thread."""
        if child.command.waits:
            self._background.tell(child.make_room)

    # Telling.

    def watch(self, child: Child, suffix: str | None, source: str) -> None:
        """Publish what happens to a child: `astrid.process.v1.exited.<suffix>`, `log-ready` and `stdin-drained` likewise.

        Args:
            child: which.
            suffix: the end of the topics, by default its id.
            source: of the capsule that asks: who chooses a topic does not speak in the kernel's name.

        Raises:
            HostError: `invalid-input` for a suffix that is not one to four segments of `[a-z0-9_-]`.
        """
        suffix = child.id if suffix is None else suffix
        if len(suffix) > 200 or _SUFFIX.fullmatch(suffix) is None:
            raise HostError("invalid-input", detail=f"{suffix[:64]!r} is no end of a topic: {_SUFFIX.pattern}")
        with self._bus.lock:
            child.watched = suffix, source
            ended = child.gone.is_set()
        if ended:
            self._tell(child, "exited")

    def unwatch(self, child: Child) -> None:
        """Publish nothing more about it."""
        with self._bus.lock:
            child.watched = None

    def _tell(self, child: Child, what: str) -> None:
        with self._bus.lock:
            if child.watched is None or self._background.scheduler.closed:
                return
            payload: dict[str, object] = {"id": child.id, "label": child.command.label}
            if what == "exited" and child.exit is not None:
                payload["reason"] = child.reason
                payload["exit"] = {"exit_code": child.exit.exit_code, "signal": child.exit.signal}
            suffix, source = child.watched
            self._bus.publish(f"{TOPICS}.{what}.{suffix}", from_value(payload), child.principal, source)
        self._background.scheduler.run_or_wake()

    # Ending.

    def cancel(self, call_ids: Collection[str], principal: str) -> None:
        """Interrupt the children of a principal's tool calls: SIGINT to their groups, SIGKILL to their families 2 seconds
        later. From any thread, also with the bus's lock held; nobody waits. Children without a call_id go on."""
        with self._bus.lock:
            for child in self._children.values():
                if child.principal == principal and child.call_id is not None and child.call_id in call_ids:
                    self.interrupt(child)

    def unload(self, capsule: str) -> None:
        """Interrupt all children of a capsule that is unloaded, likewise."""
        with self._bus.lock:
            for child in self._children.values():
                if child.capsule == capsule:
                    self.interrupt(child)

    def interrupt(self, child: Child) -> None:
        """Interrupt one child likewise."""
        self._background.start(functools.partial(child.interrupt, CANCEL_S))


def _owns(call: Running, child: Child) -> bool:
    return child.kind == "persistent" and child.principal == call.principal and child.capsule == call.capsule.id
