"""`open_host`: puts the rooms together, starts and stops them in order.

Start: engine, stores, bus, scheduler, host functions, capsules. Stop is the reverse: every call is ended first, then threads,
instances, databases. An exception in the body, or a cancellation of it, stops the host the same way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import platformdirs
import trio

from astrid_host import __version__
from astrid_host.announcer import Announcer
from astrid_host.bundled import APPLICATION, capsules_folder, contracts_files, wit_folder
from astrid_host.bus import Backlog, Bus, Receiver, Subscription
from astrid_host.capsules import Capsule, Consent, Lifecycle, Loader, Registry, Reloader, RunLoops, Trust, trusted_in
from astrid_host.dispatch import Dispatcher
from astrid_host.engine import Bounds, Engine, Instances, Linker
from astrid_host.errors import HostClosed, PayloadError
from astrid_host.gates import Contracts, Rules
from astrid_host.host_functions import HostFunctions
from astrid_host.hostcalls.auditor import Auditor
from astrid_host.hostcalls.configuration import Configuration
from astrid_host.hostcalls.lock_retry import LockRetry
from astrid_host.hostcalls.paths import Roots
from astrid_host.imports import HostImports
from astrid_host.installation import own_program
from astrid_host.inventory import CapsuleInfo, capsule_info
from astrid_host.kernel_methods import KernelMethods
from astrid_host.limits import HostLimits, host_limits
from astrid_host.listening import HostSubscription
from astrid_host.payloads import NIL_SOURCE, PAYLOAD_BYTES, Payload, from_value
from astrid_host.principals import check_principal
from astrid_host.scheduler import Accounts, Scheduler, Tasks
from astrid_host.stats import HostStats, Quarantined, usage_of
from astrid_host.stores import Stores
from astrid_host.stores.redaction import redacted_logs
from astrid_host.sweeping import sweep
from astrid_host.tools import Tools, bound_once
from astrid_host.topics import KERNEL_TOPICS, check_pattern, check_topic
from astrid_host.wit import Packages

if TYPE_CHECKING:
    from astrid_host.hostcalls.approval import Policy
    from astrid_host.hostcalls.uplink import Inbound

log = logging.getLogger(__name__)

MEMORY = ":memory:"
OWN_FOLDER = ".astrid-host"  # in a state folder that is the workspace, too
WORKERS = 8


class Host:
    """A running host. Made by `open_host`.

    Attributes:
        tools: the tools of its capsules.
        principal: the owner, and the principal of calls that name none.
        methods: what the kernel answers when it is asked over the bus.
    """

    def __init__(
        self,
        bus: Bus,
        scheduler: Scheduler,
        registry: Registry,
        instances: Instances,
        functions: HostFunctions,
        tools: Tools,
        reloader: Reloader,
        methods: KernelMethods,
        principal: str,
    ) -> None:
        self._reloader = reloader
        self.methods = methods
        self._bus = bus
        self._scheduler = scheduler
        self._registry = registry
        self._instances = instances
        self._functions = functions
        self.tools = tools
        self.principal = principal

    @property
    def capsules(self) -> Mapping[str, CapsuleInfo]:
        """Every capsule that was found, by id, in load order."""
        return {name: capsule_info(capsule) for name, capsule in self._registry.capsules.items()}

    @property
    def refused(self) -> list[CapsuleInfo]:
        """The capsules that were not loaded because nobody consented to what they ask for, in the order in which they were
        found. In `capsules`, another one may have their name."""
        return [capsule_info(capsule) for capsule in self._registry.refused]

    def publish(self, topic: str, payload: Any, *, principal: str | None = None, settle: bool = False) -> int:
        """Publish an event from outside. From any thread; on the trio thread a slice of its handlers runs before this returns.

        Args:
            topic: at most 256 bytes and 8 segments, none of them empty.
            payload: a JSON value, or what was read as a `Payload` already.
            principal: on whose behalf; the host's by default.
            settle: publish an event on `astrid.v1.dispatch.settled.<topic>` when the last of its handlers has ended.

        Returns:
            The event's `seq`.

        A handler whose queue is full misses the event, which is reported on `astrid.v1.dispatch.failed.<topic>`.

        Raises:
            ValueError: the topic is malformed, or only the kernel publishes there; the principal is no name for one.
            TypeError: the principal is no text.
            PayloadError: the payload is not a JSON value, or has more than 1 MiB.
            HostClosed: the host has stopped.
        """
        check_topic(topic)
        if topic.startswith(KERNEL_TOPICS):
            raise ValueError(f"only the host itself publishes under {KERNEL_TOPICS}; given {topic!r}")
        who = self.principal if principal is None else principal
        check_principal(who)
        made = payload if isinstance(payload, Payload) else from_value(payload)
        if len(made.guest) > PAYLOAD_BYTES:
            raise PayloadError(f"the payload has {len(made.guest)} bytes; {PAYLOAD_BYTES} are allowed")
        with self._bus.lock:
            if self._scheduler.closing:
                raise HostClosed("this host has stopped: publish inside its `async with open_host(...)`")
            seq = self._bus.publish(topic, made, who, NIL_SOURCE, entering=True, asks=settle).seq
        self._scheduler.run_or_wake()
        return seq

    def subscribe(
        self, pattern: str, *, principal: str | None = None, observe: bool = False, name: str | None = None
    ) -> HostSubscription:
        """Receive events: `async with host.subscribe("a.*") as events: async for event in events: ...`

        Events wait until they are taken, up to 1 MiB of them; then the oldest give way, and `dropped` counts them. Each
        principal has its turn, however much another one has waiting.

        Args:
            pattern: by the bus's rules: `*` is one segment, a trailing `.*` one or more.
            principal: only this one's events; everybody's by default.
            observe: only watch, through the ring of the last 1,024 events: an event that nobody else receives is still
                reported as `no-handler`, and `lagged` counts what was missed.
            name: under which `host.stats()` counts what an observer missed; the pattern by default.

        Raises:
            ValueError: no topic can match the pattern, or the principal is no name for one.
            TypeError: the principal is no text.
        """
        check_pattern(pattern)
        if principal is not None:
            check_principal(principal)
        source = Receiver(name or pattern, pattern, principal) if observe else Subscription(pattern, principal)
        return HostSubscription(self._bus, self._scheduler, source)

    def inbound(self) -> Inbound:
        """What users of other platforms sent through capsules' bridges: `async with` it, then `async for` over it.

        There is one reader at a time; without one a bridge is told `quota`.
        """
        return self._functions.uplinks.inbound()

    async def reload(self, capsule: str) -> None:
        """Replace a capsule by what lies in its folder now: also one that failed to load, or was unloaded.

        Calls in flight end on the old version; what waits is handled by the new one. A version that does not load leaves the
        old one as it was.

        Args:
            capsule: its id.

        Raises:
            LoadError: there is no such capsule, or its new version does not load: the message says why.
            HostClosed: the host has stopped.

        Cancelled before the new version takes over, it changes nothing.
        """
        self._check_open()
        await self._reloader.reload(capsule)

    async def unload(self, capsule: str) -> None:
        """Take a capsule out. Calls in flight end; what waits for it is reported as `cancelled`. `reload` takes it in again.

        Args:
            capsule: its id.

        Raises:
            LoadError: there is no such capsule, or it takes no part.
            HostClosed: the host has stopped.
        """
        self._check_open()
        await self._reloader.unload(capsule)

    def _check_open(self) -> None:
        if self._scheduler.closing:
            raise HostClosed("this host has stopped: use it inside its `async with open_host(...)`")

    def stats(self) -> HostStats:
        """What the host did since it started, and what it holds now. From any thread; nobody waits for it for long."""
        bus, capsules = self._bus, self._registry.capsules
        with bus.lock:
            now = time.monotonic()
            queues = [queue for capsule in capsules.values() for queue in capsule.queues]
            quarantined = tuple(
                Quarantined(capsule.id, principal, seconds)
                for capsule in capsules.values()
                for principal, seconds in capsule.quarantine.running(now)
            )
            failures = dict(bus.failures)
            dropped, lagged = dict(bus.subscriptions.losses.by_name), dict(bus.ring.losses.by_name)
            principals = list(self._registry.accounts.by_principal.items())
        return HostStats(
            events=bus.seq,
            bytes=bus.bytes,
            failures=failures,
            dropped=dropped,
            lagged=lagged,
            kernel_refused=sum(bus.kernel_refused.by_name.values()),
            queues=len(queues),
            queued=sum(len(queue.works) for queue in queues),
            instances=self._instances.live + self._instances.waiting,
            waiting=self._instances.waiting,
            memory_bytes=self._instances.memory.used,
            quarantined=quarantined,
            capsules={capsule.id: usage_of(capsule.account) for capsule in list(capsules.values())},
            principals={name: usage_of(account) for name, account in principals},
        )


@contextlib.asynccontextmanager
async def open_host(
    capsules: Sequence[str | os.PathLike[str]] | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
    state_dir: str | os.PathLike[str] | None = None,
    principal: str = "default",
    workers: int | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    allow_local: Sequence[str] = (),
    proxy_from_env: bool = False,
    approvals: Policy | None = None,
    trust: Trust = False,
    strict: bool = False,
    limits: HostLimits | Mapping[str, Any] | None = None,
) -> AsyncGenerator[Host]:
    """Run a host for as long as the body runs. Needs trio.

    Args:
        capsules: folders that are a capsule or contain capsules; by default those that come with the host, whose folder is
            `astrid_host.BUNDLED`.
        workspace: what `cwd://` means to capsules.
        state_dir: where databases and homes are; by default this user's data folder. `":memory:"` keeps databases in
            memory, and homes in a private temporary folder that is removed at the end.
        principal: the owner, and the principal of calls that name none.
        workers: threads that take over guests which compute for long, at least one; by default one for each core, 8 at most.
        config: what `get-config` answers in this run, by capsule and key, over what is stored.
        allow_local: private addresses that capsules with a fitting row may connect to, as `HOST:PORT`.
        proxy_from_env: whether requests over HTTP go through the proxies that the environment names (HTTP_PROXY and the like).
        approvals: answers capsules' requests for approval in place of a person.
        trust: whether capsules that did not come with the host may have all that they ask for: True for all of them, folders
            that are such capsules or contain some, or a function, async or not, that gets a `TrustRequest` for each capsule
            which asks for more than a plain tool needs, and returns True for yes; that is recorded in the state folder. What
            `astrid-host trust` recorded there counts as well.
        strict: raise when a capsule fails to load or is not trusted, instead of keeping its error.
        limits: ceilings for the whole host: single keys of `HostLimits`, which go before those of `host.toml` in the state
            folder, or all of them.

    Raises:
        AstridError: the workspace is no folder, or lies in the state folder or the cache.
        ValueError: fewer than one worker, the principal is no name for one, or one of `config`, `allow_local`, `limits` and a
            proxy of the environment cannot be used.
        ManifestError: the state folder's `host.toml` cannot be used.
        LoadError: a folder does not exist; with `strict`, a capsule failed to load.
        StoreError: the databases cannot be opened.

    Cancelled, or left by an exception, the host ends every call and frees all it holds.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers is how many threads may compute beside the loop's, at least 1; given {workers}")
    check_principal(principal)
    places = [capsules_folder()] if capsules is None else [Path(place) for place in capsules]
    cache = Path(platformdirs.user_cache_dir(APPLICATION))
    with contextlib.ExitStack() as stack:
        folder = _state_folder(state_dir, stack)
        if folder.resolve() == Path(workspace).resolve():  # what it holds is nothing for capsules to read
            folder = folder / OWN_FOLDER
            log.warning("the workspace is the state folder: the host keeps its own files in %s", folder)
        ceilings = host_limits(None if _in_memory(state_dir) else folder, limits)
        kept = None if _in_memory(state_dir) else folder
        stores = stack.enter_context(
            contextlib.closing(Stores(kept, 0, (ceilings.kv, ceilings.kv_of_all), ceilings.audit))
        )
        stack.enter_context(redacted_logs(stores.secrets.redactor))
        usual = Path(
            platformdirs.user_data_dir(APPLICATION)
        )  # the state of hosts that are given no folder of their own
        trusted = (*own_program(Path(workspace)), *trusted_in(places, Path(workspace)), usual)
        hidden = (cache, usual) if usual.is_dir() else (cache,)
        roots = stack.enter_context(
            contextlib.closing(Roots(Path(workspace), folder, hidden, trusted, ceilings.disk_free))
        )
        configuration = Configuration(stores.settings, stores.secrets, config)
        engine = Engine(
            cache / "modules", Bounds(ceilings.compile_memory, ceilings.compile_secs, ceilings.module_cache)
        )
        contracts = Contracts.read(contracts_files())
        rules = Rules(contracts)
        backlog = Backlog(ceilings.waiting, ceilings.waiting_of_principal)
        bus = Bus(None, rules, backlog, ceilings.watched, ceilings.publish_bytes_per_sec)
        bus.redacted = stores.secrets.redactor.whole
        async with _nursery() as nursery:
            threads = workers or min(os.cpu_count() or 1, WORKERS)
            scheduler = Scheduler(engine, bus.lock, threads)
            instances, accounts = Instances(memory_bytes=ceilings.memory, threads=threads + 1), Accounts()
            try:
                dispatcher = Dispatcher(bus, scheduler, principal, accounts)
                bus.sink = dispatcher
                patience = None if _in_memory(state_dir) else LockRetry(stores.retries, scheduler)
                auditor = Auditor(stores.audit, stores.secrets.redacted, patience)
                imports = HostImports(Packages(wit_folder()), Tasks(scheduler, nursery), auditor, ceilings.call_bytes)
                loader = Loader(
                    engine,
                    Linker(engine.wasmtime, imports),
                    bus,
                    dispatcher,
                    rules,
                    instances,
                    auditor.denied,
                    configuration.hide_given,
                    stores.secrets.redacted,
                    ceilings,
                )
                lifecycle = Lifecycle(stores.installed, scheduler, configuration.tell, ceilings.hook_secs)

                def gone(capsule: Capsule) -> None:
                    functions.forget(capsule)

                run_loops = RunLoops(bus, scheduler, nursery, gone)
                consent = Consent(
                    contracts,
                    bound_once,
                    capsules_folder(),
                    trust,
                    None if _in_memory(state_dir) else stores.trusted,
                    ""
                    if state_dir is None or _in_memory(state_dir)
                    else f"--state-dir {quote(str(folder.absolute()))}",
                )
                registry = Registry(
                    loader,
                    dispatcher,
                    bus,
                    run_loops,
                    principal,
                    accounts,
                    bound_once,
                    contracts,
                    consent,
                    stores.origins.claim,
                    None if _in_memory(state_dir) else lifecycle,
                    nursery,
                    ceilings.start_secs,
                )
                stack.callback(registry.close)
                functions = HostFunctions(
                    bus,
                    scheduler,
                    nursery,
                    stores,
                    roots,
                    registry,
                    configuration,
                    workspace=Path(workspace),
                    private=folder,
                    owner=principal,
                    wit=wit_folder(),
                    allow_local=allow_local,
                    proxy_from_env=proxy_from_env,
                    policy=approvals,
                )
                stack.callback(functions.close)
                functions.offer_to(imports)
                await registry.load(places, strict)
                _tell_unknown(config or {}, registry)
                tools = Tools(
                    bus, scheduler, dispatcher, registry, rules.exchanges, principal, functions.cancel_children
                )
                announcer = Announcer(bus, scheduler, registry, accounts, principal, tools.of)

                def changed() -> None:
                    roots.trust(())  # a version that was put there is other files
                    announcer.change()

                registry.starting.joined = changed
                reloader = Reloader(registry, bus, run_loops, scheduler, nursery, gone, changed, announcer.seen)
                methods = KernelMethods(bus, scheduler, registry, reloader, nursery, principal, __version__)
                nursery.start_soon(configuration.follow)
                nursery.start_soon(sweep, instances, bus, registry)
                nursery.start_soon(announcer.run)
                yield Host(bus, scheduler, registry, instances, functions, tools, reloader, methods, principal)
            finally:
                bus.stopping = True
                await scheduler.close()
                nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _nursery() -> AsyncGenerator[trio.Nursery]:
    """A nursery out of which a single error comes as it is: callers shall not have to look into groups."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
        return
    except BaseExceptionGroup as group:
        only: BaseException = group
        while isinstance(only, BaseExceptionGroup):  # a start that is strict has a nursery of its own
            if len(only.exceptions) != 1:
                raise
            only = only.exceptions[0]
    raise only


def _tell_unknown(config: Mapping[str, object], registry: Registry) -> None:
    for name in config:
        if name not in registry.capsules:
            log.warning("config is given for the capsule %s, which was not found", name)


def _in_memory(state_dir: str | os.PathLike[str] | None) -> bool:
    return state_dir is not None and os.fspath(state_dir) == MEMORY


def _state_folder(state_dir: str | os.PathLike[str] | None, stack: contextlib.ExitStack) -> Path:
    if _in_memory(state_dir):
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{APPLICATION}-")))
    return Path(platformdirs.user_data_dir(APPLICATION) if state_dir is None else state_dir)
