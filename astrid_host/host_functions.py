"""The host functions of one host, and what they share. Each package is made when the first module imports it.

What belongs to none of the guests ends with the host: background work with the nursery, children with `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from astrid_host.bus import Bus
from astrid_host.capsule_sockets import CapsuleSockets
from astrid_host.capsules import LIFECYCLE, Capsule, Registry
from astrid_host.hostcalls import Interface
from astrid_host.hostcalls.configuration import Configuration
from astrid_host.hostcalls.ipc import Ipc
from astrid_host.hostcalls.kv import Kv
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.sys import Sys
from astrid_host.hostcalls.threads import Threads
from astrid_host.imports import HostImports
from astrid_host.scheduler import Scheduler
from astrid_host.stores import Stores
from astrid_host.stores.settings import SOCKET_PATH

if TYPE_CHECKING:
    from astrid_host.hostcalls.addresses import Airlock
    from astrid_host.hostcalls.approval import Policy
    from astrid_host.hostcalls.http import Http
    from astrid_host.hostcalls.http.proxies import Proxies
    from astrid_host.hostcalls.interface import Running
    from astrid_host.hostcalls.io import Background
    from astrid_host.hostcalls.process import Tracker
    from astrid_host.hostcalls.questions import Questions
    from astrid_host.hostcalls.uplink import Uplinks


PACKAGES = ("ipc", "kv", "sys", "fs", "io", "http", "net", "process", "approval", "elicit", "identity", "uplink")


class HostFunctions:
    """What the guests of one host can call. Made on the trio thread.

    Args:
        bus: where they publish.
        scheduler: who wakes guests that wait.
        nursery: in which work goes on while no guest waits for it.
        stores: where they keep things.
        roots: what guests' paths lead into.
        registry: the capsules.
        configuration: what operators set for them.
        workspace: what `cwd://` means.
        private: the state folder, which children do not see.
        owner: the host's principal.
        wit: the folder of the WIT packages.
        allow_local: private addresses that may be connected to, as `HOST:PORT`.
        proxy_from_env: whether requests over HTTP go through the proxies that the environment names.
        policy: answers requests for approval in place of a person.

    Raises:
        ValueError: a row of `allow_local` is no `HOST:PORT`, or a proxy of the environment cannot be used.
    """

    def __init__(
        self,
        bus: Bus,
        scheduler: Scheduler,
        nursery: trio.Nursery,
        stores: Stores,
        roots: Roots,
        registry: Registry,
        configuration: Configuration,
        *,
        workspace: Path,
        private: Path,
        owner: str,
        wit: Path,
        allow_local: Sequence[str] = (),
        proxy_from_env: bool = False,
        policy: Policy | None = None,
    ) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._nursery = nursery
        self._stores = stores
        self._roots = roots
        self._registry = registry
        self._configuration = configuration
        self._workspace = workspace
        self._private = private
        self._wit = wit
        self._allow_local = tuple(allow_local)
        self._policy = policy
        self._proxies: Proxies | None = None
        if proxy_from_env:
            from astrid_host.hostcalls.http.proxies import Proxies

            self._proxies = Proxies.of_environment()
        self._threads = Threads()
        self._capsule_sockets = CapsuleSockets(private, owner)
        configuration.answer(SOCKET_PATH, self._capsule_sockets.told)
        if self._allow_local:
            try:
                _ = self._airlock  # made to read its rows
            except ValueError as error:
                raise ValueError(f"allow_local: {error}") from None

    def offer_to(self, imports: HostImports) -> None:
        """Let modules import them."""
        for package in PACKAGES:
            imports.offer(package, getattr(self, f"_{package}"))

    def cancel_children(self, call_ids: Sequence[str], principal: str) -> None:
        """Interrupt the processes that a principal's calls with these ids have started. The bus's lock is held."""
        tracker: Tracker | None = self.__dict__.get("_tracker")  # made or not
        if tracker is not None:
            tracker.cancel(call_ids, principal)

    def forget(self, capsule: Capsule) -> None:
        """A capsule takes no part any more, or its run loop is over: its bridges are gone, and, unless another version of it
        goes on, its children."""
        uplinks: Uplinks | None = self.__dict__.get("uplinks")
        if uplinks is not None:
            uplinks.forget(capsule.source_id)
        tracker: Tracker | None = self.__dict__.get("_tracker")
        if tracker is not None and capsule.state == "unloaded" and self._registry.capsules.get(capsule.id) is capsule:
            tracker.unload(capsule.id)

    def close(self) -> None:
        """End what starts children; the nursery has ended before."""
        tracker: Tracker | None = self.__dict__.get("_tracker")
        if tracker is not None:
            tracker.close()

    # What several packages share.

    @cached_property
    def _airlock(self) -> Airlock:
        from astrid_host.hostcalls.addresses import Airlock

        return Airlock(self._allow_local)

    @cached_property
    def _background(self) -> Background:
        from astrid_host.hostcalls.io import Background

        return Background(self._scheduler, self._nursery)

    @cached_property
    def _questions(self) -> Questions:
        from astrid_host.hostcalls.questions import Questions

        return Questions(self._bus, self._scheduler, self._bus.received)

    @cached_property
    def _tracker(self) -> Tracker:
        from astrid_host.hostcalls.process import Tracker

        return Tracker(self._bus, self._background, self._roots, self._private)

    @cached_property
    def _client(self) -> Http:
        from astrid_host.hostcalls.http import Http

        return Http(self._airlock, self._background, self._proxies)

    @cached_property
    def uplinks(self) -> Uplinks:
        """The bridges to other platforms."""
        from astrid_host.hostcalls.uplink import Uplinks

        return Uplinks(self._scheduler)

    # The packages.

    def _ipc(self) -> Iterable[Interface]:
        return (Ipc(self._bus, self._scheduler),)

    def _kv(self) -> Iterable[Interface]:
        return (Kv(self._stores.kv, self._threads),)

    def _sys(self) -> Iterable[Interface]:
        complete, redacted = (lambda: self._registry.complete), self._stores.secrets.redactor.whole
        return (Sys(self._registry, self._configuration, complete, redacted, self._roots.workspace),)

    def _fs(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.fs import Fs, Views

        return (Fs(self._roots, Views(self._registry.folders, self._wit), self._threads),)

    def _io(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.io import Errors, Poll, Streams

        return Errors(), Poll(self._bus, self._scheduler), Streams()

    def _http(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.http import Http10, Http11

        return Http10(self._client), Http11(self._client)

    def _net(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.net import interfaces

        return interfaces(self._background, self._airlock, self._capsule_sockets)

    def _process(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.process import Process

        return (Process(self._tracker),)

    def _approval(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.approval import Approval

        workspace, redacted = str(self._workspace.resolve()), self._stores.secrets.redactor.whole
        return (Approval(self._questions, self._stores.approvals, workspace, self._policy, redacted=redacted),)

    def _elicit(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.elicit import Elicit

        return (Elicit(self._questions, self._stores.secrets, _in_lifecycle),)

    def _identity(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.identity import Identity

        return (Identity(self._stores.identities),)

    def _uplink(self) -> Iterable[Interface]:
        from astrid_host.hostcalls.uplink import Uplink

        return (Uplink(self.uplinks),)


def _in_lifecycle(call: Running) -> bool:
    return getattr(call, "entry").name in LIFECYCLE  # noqa: B009 - what host functions need to know of a call has no entry
