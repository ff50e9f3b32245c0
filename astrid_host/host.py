"""`open_host`: puts the rooms together, starts and stops them in order.

Start: engine, stores, bus, turns, host functions, capsules. Stop is the reverse: every call is ended first, then threads,
instances, databases. An exception in the body, or a cancellation of it, stops the host the same way.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import platformdirs
import trio

from astrid_host.bundled import APPLICATION, capsules_folder, wit_folder
from astrid_host.bus import KERNEL_TOPICS, Bus, Event, Subscription
from astrid_host.calls import Tasks, Turns
from astrid_host.capsules import Loader, Registry
from astrid_host.dispatch import Dispatcher
from astrid_host.engine import Engine, Instances, Linker
from astrid_host.errors import HostClosed
from astrid_host.imports import HostImports
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.stores import Stores
from astrid_host.syscalls import Interface
from astrid_host.syscalls.fs import Fs
from astrid_host.syscalls.io import Poll
from astrid_host.syscalls.ipc import Ipc
from astrid_host.syscalls.kv import Kv
from astrid_host.syscalls.paths import Roots
from astrid_host.syscalls.sys import Sys
from astrid_host.tools import Tools, bound_once, tools_of
from astrid_host.topics import check_topic
from astrid_host.wit import Packages

log = logging.getLogger(__name__)

MEMORY = ":memory:"
WORKERS = 8
SWEEP_S = 10.0


class CapsuleInfo(msgspec.Struct, frozen=True):
    """What a host tells of one capsule.

    Attributes:
        id: the package's name.
        version: of the package; empty when its manifest cannot be read.
        state: `ready`, `failed`, `shadowed` or `unloaded`.
        error: why it is not ready.
        tools: what it provides, by name.
        handlers: topic patterns of its active handlers.
        inactive: those of rows that are never called.
        acl: the topic patterns that it may publish on.
        source_id: the UUID that stands on what it publishes.
        folder: where it was found.
        calls: how many of its handlers' calls ended.
        traps: how many of them trapped.
        memory_bytes: what its idle instances hold.
    """

    id: str
    version: str
    state: str
    error: str | None
    tools: list[str]
    handlers: list[str]
    inactive: list[str]
    acl: list[str]
    source_id: str
    folder: Path
    calls: int
    traps: int
    memory_bytes: int


class HostEvent(msgspec.Struct, frozen=True):
    """An event as the embedding program sees it: `payload` is the plain JSON value that a guest would receive."""

    topic: str
    payload: Any
    source_id: str
    principal: str | None
    seq: int
    timestamp: datetime.datetime


class HostSubscription:
    """Events that match a pattern, in the order of `seq`: `async with` it, then `async for` over it.

    `dropped` counts events that were not taken in time and gave way to newer ones. A cancelled wait loses nothing.
    """

    def __init__(self, bus: Bus, turns: Turns, queue: Subscription) -> None:
        self._bus = bus
        self._turns = turns
        self._queue = queue

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    @property
    def lagged(self) -> int:
        """Events that were missed for another reason than a full queue: none, since this subscription has its own."""
        return 0

    async def __aenter__(self) -> HostSubscription:
        with self._bus.lock:
            self._bus.subscribe(self._queue)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._bus.lock:
            self._bus.unsubscribe(self._queue)

    def __aiter__(self) -> HostSubscription:
        return self

    async def __anext__(self) -> HostEvent:
        await trio.lowlevel.checkpoint()
        while True:
            arrived = trio.Event()
            with self._bus.lock:
                event = self._queue.take()
                if event is None:
                    self._queue.waiter = partial(self._turns.tell, arrived.set)
            if event is not None:
                return seen(event)
            await arrived.wait()


def seen(event: Event) -> HostEvent:
    """An event of the bus, as the embedding program sees it."""
    payload = msgspec.json.decode(event.payload) if event.payload else None
    when = datetime.datetime.fromtimestamp(event.time, datetime.UTC)
    return HostEvent(event.topic, payload, event.source_id, event.principal, event.seq, when)


class Host:
    """A running host. Made by `open_host`.

    Attributes:
        tools: the tools of its capsules.
        principal: the owner, and the principal of calls that name none.
    """

    def __init__(self, bus: Bus, turns: Turns, registry: Registry, tools: Tools, principal: str) -> None:
        self._bus = bus
        self._turns = turns
        self._registry = registry
        self.tools = tools
        self.principal = principal

    @property
    def capsules(self) -> Mapping[str, CapsuleInfo]:
        """Every capsule that was found, by id, in load order."""
        return {name: _info(capsule) for name, capsule in self._registry.capsules.items()}

    def publish(self, topic: str, payload: Any, *, principal: str | None = None) -> int:
        """Publish an event from outside. From any thread; on the trio thread its handlers take a turn before this returns.

        Args:
            topic: at most 256 bytes and 8 segments, none of them empty.
            payload: a JSON value.
            principal: on whose behalf; the host's by default.

        Returns:
            The event's `seq`.

        A handler whose queue is full misses the event, which is reported on `astrid.v1.dispatch.failed.<topic>`.

        Raises:
            ValueError: the topic is malformed, or only the kernel publishes there.
            PayloadError: the payload is not a JSON value.
            HostClosed: the host has stopped.
        """
        check_topic(topic)
        if topic.startswith(KERNEL_TOPICS):
            raise ValueError(f"only the host itself publishes under {KERNEL_TOPICS}; given {topic!r}")
        if self._turns.closed:
            raise HostClosed("this host has stopped: publish inside its `async with open_host(...)`")
        made = from_value(payload)
        who = self.principal if principal is None else principal
        with self._bus.lock:
            seq = self._bus.publish(topic, made, who, NIL_SOURCE, entering=True).seq
        self._turns.go()
        return seq

    def subscribe(self, pattern: str, *, principal: str | None = None, observe: bool = False) -> HostSubscription:
        """Receive events: `async with host.subscribe("a.*") as events: async for event in events: ...`

        Args:
            pattern: by the bus's rules: `*` is one segment, a trailing `.*` one or more.
            principal: only this one's events; everybody's by default.
            observe: only watch; an event that nobody else receives is still reported as `no-handler`.
        """
        return HostSubscription(self._bus, self._turns, Subscription(pattern, principal, observe))


def _info(capsule: Any) -> CapsuleInfo:
    manifest = capsule.manifest if capsule.has_manifest else None
    live = capsule.state == "ready"
    return CapsuleInfo(
        id=capsule.id,
        version=capsule.version,
        state=capsule.state,
        error=capsule.error,
        tools=[name for name in tools_of(manifest) if not _inactive(capsule, name)] if manifest and live else [],
        handlers=[handler.pattern for handler in capsule.handlers],
        inactive=list(capsule.inactive),
        acl=list(manifest.publish) if manifest else [],
        source_id=capsule.source_id,
        folder=capsule.folder,
        calls=capsule.calls,
        traps=capsule.traps,
        memory_bytes=capsule.pool.held_bytes() if capsule.linked is not None else 0,
    )


def _inactive(capsule: Any, tool: str) -> bool:
    return any(pattern.endswith(f".{tool}") for pattern in capsule.inactive)


@contextlib.asynccontextmanager
async def open_host(
    capsules: Sequence[str | os.PathLike[str]] | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
    state_dir: str | os.PathLike[str] | None = None,
    principal: str = "default",
    workers: int | None = None,
    strict: bool = False,
) -> AsyncGenerator[Host]:
    """Run a host for as long as the body runs. Needs trio.

    Args:
        capsules: folders that are a capsule or contain capsules; by default those that come with the host, whose folder is
            `astrid_host.BUNDLED`.
        workspace: what `cwd://` means to capsules.
        state_dir: where databases and homes are; by default this user's data folder. `":memory:"` keeps databases in
            memory, and homes in a private temporary folder that is removed at the end.
        principal: the owner, and the principal of calls that name none.
        workers: threads that take over guests which compute for long; by default one for each core, 8 at most.
        strict: raise when a capsule fails to load, instead of keeping its error.

    Raises:
        AstridError: the workspace is no folder.
        LoadError: a folder does not exist; with `strict`, a capsule failed to load.
        StoreError: the databases cannot be opened.

    Cancelled, or left by an exception, the host ends every call and frees all it holds.
    """
    places = [capsules_folder()] if capsules is None else [Path(place) for place in capsules]
    with contextlib.ExitStack() as stack:
        folder = _state_folder(state_dir, stack)
        stores = stack.enter_context(contextlib.closing(Stores(None if _in_memory(state_dir) else folder)))
        roots = stack.enter_context(contextlib.closing(Roots(Path(workspace), folder)))
        engine = Engine(Path(platformdirs.user_cache_dir(APPLICATION)) / "modules")
        bus = Bus()
        async with _nursery() as nursery:
            turns = Turns(engine, bus.lock, workers or min(os.cpu_count() or 1, WORKERS))
            instances = Instances()
            try:
                dispatcher = Dispatcher(bus, turns, principal)
                bus.sink = dispatcher
                imports = HostImports(Packages(wit_folder()), Tasks(turns, nursery))
                loader = Loader(engine, Linker(engine.wasmtime, imports), bus, dispatcher, instances)
                registry = Registry(loader, dispatcher, bus, turns, principal, bound_once)
                stack.callback(registry.close)
                imports.provide(_interfaces(bus, turns, stores, roots, registry))
                await registry.load(places, capsules_folder(), strict)
                tools = Tools(bus, turns, dispatcher, registry, principal)
                nursery.start_soon(_sweep, instances, dispatcher, registry)
                yield Host(bus, turns, registry, tools, principal)
            finally:
                await turns.close()
                nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _nursery() -> AsyncGenerator[trio.Nursery]:
    """A nursery out of which a single error comes as it is: callers shall not have to look into groups."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
        return
    except BaseExceptionGroup as group:
        if len(group.exceptions) != 1:
            raise
        only = group.exceptions[0]
    raise only


def _interfaces(bus: Bus, turns: Turns, stores: Stores, roots: Roots, registry: Registry) -> Iterable[Interface]:
    return (Ipc(bus, turns), Poll(bus, turns), Kv(stores.kv), Sys(registry), Fs(roots))


async def _sweep(instances: Instances, dispatcher: Dispatcher, registry: Registry) -> None:
    """Close instances that have been idle for a minute, and forget queues in which nothing waits."""
    while True:
        await trio.sleep(SWEEP_S)
        instances.sweep(time.monotonic())
        with dispatcher.bus.lock:
            for capsule in registry.capsules.values():
                dispatcher.sweep(capsule)


def _in_memory(state_dir: str | os.PathLike[str] | None) -> bool:
    return state_dir is not None and os.fspath(state_dir) == MEMORY


def _state_folder(state_dir: str | os.PathLike[str] | None, stack: contextlib.ExitStack) -> Path:
    if _in_memory(state_dir):
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{APPLICATION}-")))
    return Path(platformdirs.user_data_dir(APPLICATION) if state_dir is None else state_dir)
