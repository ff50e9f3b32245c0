"""A capsule: its manifest, its module, what it may do, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from astrid_host.capsules.files import Files
from astrid_host.dispatch import Handler, Quarantine, Queues
from astrid_host.engine import Entry, Pool, Prelinked
from astrid_host.errors import LoadError
from astrid_host.gates import Ask, SubscribeGate
from astrid_host.hostcalls.ipc import Publisher
from astrid_host.manifest import Limits, Manifest, Problem
from astrid_host.scheduler import Account, Accounts, Call

State: TypeAlias = Literal["loading", "ready", "failed", "shadowed", "unloaded"]
HOOK, RUN = "astrid-hook-trigger", "run"


class Capsule:
    """One capsule of a host, whether it loaded or not.

    `state` is `ready` when it takes part, `failed` when it could not be loaded or its run loop ended badly (`error` says
    why), `shadowed` when it stepped aside for another, `unloaded` when it was taken out, or replaced by a newer version.
    `inactive` names the topics of rows that another capsule keeps. `trusted` says that it came with the host or that the operator
    allowed it what it asks for, `roles` in which its word counts, and `owned` the topics that it answers for: its own rows of
    exactly that name. `asks` is what it asks for beyond a plain tool, `storage_id` under which what it keeps is filed, and
    `overlaid` whether what was configured for its name in this run is for it. `unheard` has the rows of `[publish]` that
    reach topics on which its word does not count, with why.

    Args:
        id: the package's name, or the folder's when the manifest cannot be read.
        folder: where it was found.
        bundled: it came with the host, so given ones win over it.
        owner: the host's principal.
        accounts: where the use of principals is counted.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's own word
        folder: Path,
        bundled: bool,
        owner: str,
        accounts: Accounts,
    ) -> None:
        self.id = id
        self.folder = folder
        self.bundled = bundled
        self.owner = owner
        self.state: State = "loading"
        self.error: str | None = None
        self.trusted = bundled
        self.asks: tuple[Ask, ...] = ()
        self.files: Files | None = None  # the bytes that were consented to, until they are loaded
        self.storage_id = id
        self.overlaid = bundled
        self.roles: frozenset[str] = frozenset()
        self.owned: frozenset[str] = frozenset()
        self.unheard: Mapping[str, str] = {}
        self.aside_for = ""  # while it is shadowed, the id of the capsule that it steps aside for
        self.problems: Sequence[Problem] = ()
        self.inactive: list[str] = []
        self.source_id = ""
        self.wasm_hash = ""
        self.account = Account()
        self.accounts = accounts
        self.quarantine = Quarantine()
        self.quarantines = True
        self.queues = Queues()
        self.handlers: list[Handler] = []
        self.run_loop: Call | None = None
        self.is_ready = threading.Event()
        self.concurrency = 1
        self.timeout_s = 0.0
        # These are there once the module is built.
        self.pool: Pool
        self.publisher: Publisher
        self.hook: Entry
        self._manifest: Manifest | None = None
        self._linked: Prelinked | None = None
        self.subscribe_gate: SubscribeGate | None = None

    def described_by(self, manifest: Manifest) -> None:
        """Its manifest was read."""
        self._manifest = manifest
        self.subscribe_gate = SubscribeGate(manifest)
        self.limited_by(manifest.limits)

    def limited_by(self, limits: Limits) -> None:
        """What its calls may take."""
        self.concurrency = limits.concurrency
        self.timeout_s = limits.timeout_secs
        self.quarantines = limits.on_trap == "quarantine"

    def built(self, linked: Prelinked, pool: Pool, publisher: Publisher) -> None:
        """Its module was compiled and linked."""
        self._linked, self.pool, self.publisher = linked, pool, publisher
        if HOOK in linked.entries:
            self.hook = linked.entries[HOOK]

    def owns(self, topics: frozenset[str]) -> None:
        """It answers for these topics from now on. The bus's lock is held."""
        self.owned = topics
        if self._linked is not None:
            self.publisher.look_again()

    def take_over(self, old: Capsule) -> None:
        """What waits for an older version of it, and what was counted, is its own now. The bus's lock is held."""
        self.account = old.account
        self.queues, old.queues = old.queues, Queues()

    def step_aside(self, name: str, why: str) -> None:
        """Another capsule takes its place."""
        self.state, self.aside_for = "shadowed", name
        self.error = f"steps aside for {name}, which {why}"

    def come_back(self) -> None:
        """The capsule that it stepped aside for is not there, after all."""
        self.state, self.aside_for, self.error = "loading", "", None

    def fail(self, error: str) -> None:
        """It does not take part; `error` says why."""
        self.state = "failed"
        self.error = error
        self.is_ready.set()

    def signal_ready(self) -> None:
        """Its run loop has subscribed to what it needs. From any thread."""
        self.is_ready.set()

    @property
    def manifest(self) -> Manifest:
        if self._manifest is None:
            raise LoadError(f"{self.id}: its manifest could not be read")
        return self._manifest

    @property
    def has_manifest(self) -> bool:
        return self._manifest is not None

    @property
    def version(self) -> str:
        return self._manifest.package.version if self._manifest is not None else ""

    @property
    def linked(self) -> Prelinked | None:
        return self._linked

    def close(self) -> None:
        """Close its instances and free its module; nothing of it runs any more."""
        linked, self._linked = self._linked, None
        if linked is not None:
            self.pool.close()
            linked.close()
