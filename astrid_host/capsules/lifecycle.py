"""Lifecycle hooks: the first load of a package with a state folder runs its `astrid-install`, a higher version `astrid-upgrade`.

A capsule whose hook fails is not loaded, and its hook runs again at the next start. Hooks run on behalf of the host's owner,
within the capsule's own limits, and for the seconds that the operator gives them (`hook_secs`), what they wait for included. A
host that keeps nothing on disk runs none. (Astrid, guest exports.)
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from astrid_host.capsules.capsule import Capsule
from astrid_host.errors import GuestFailed, LoadError
from astrid_host.manifest.versions import parse_version
from astrid_host.scheduler import Scheduler, call_once
from astrid_host.stores import InstalledStore

INSTALL, UPGRADE = "astrid-install", "astrid-upgrade"
LIFECYCLE = (INSTALL, UPGRADE)


class Lifecycle:
    """Runs the hooks of one host's capsules.

    Args:
        installed: what was loaded before.
        scheduler: runs the guests.
        tell: sets what `get-config` answers to a capsule; None takes it back.
        hook_secs: for how long one may run.
    """

    def __init__(
        self,
        installed: InstalledStore,
        scheduler: Scheduler,
        tell: Callable[[str, str, str | None], None],
        hook_secs: float = 30.0,
    ) -> None:
        self._hook_secs = hook_secs
        self._installed = installed
        self._scheduler = scheduler
        self._tell = tell

    async def begin(self, capsule: Capsule) -> None:
        """Run the hook that is due, and remember what is loaded now.

        Raises:
            LoadError: the hook failed, or was not over in time.
            StoreError: what was loaded before cannot be read or written.

        Cancelled, the hook is stopped and runs again at the next start.
        """
        before = self._installed.find(capsule.storage_id)
        if before is None:
            await self._run(capsule, INSTALL)
        elif _is_higher(capsule.version, before.version):
            self._tell(capsule.id, "prev_version", before.version)
            try:
                await self._run(capsule, UPGRADE)
            finally:
                self._tell(capsule.id, "prev_version", None)
        # On a thread: another process may keep the database locked for a while.
        await trio.to_thread.run_sync(
            self._installed.remember, capsule.storage_id, capsule.version, capsule.wasm_hash, capsule.source_id
        )

    async def _run(self, capsule: Capsule, hook: str) -> None:
        entry = capsule.linked.entries.get(hook) if capsule.linked is not None else None
        if entry is None:
            return
        with trio.move_on_after(self._hook_secs) as bound:
            try:
                await call_once(self._scheduler, capsule, entry, (), capsule.owner, capsule.timeout_s)
            except GuestFailed as error:
                raise LoadError(f"{capsule.id}: its {hook} failed, so it is not loaded: {error}") from None
        if bound.cancelled_caught:
            raise LoadError(
                f"{capsule.id}: its {hook} was not over within {self._hook_secs:g} s, so it is not loaded; where it may take "
                "longer, raise hook_secs in the [host] table of host.toml"
            )


def _is_higher(version: str, before: str) -> bool:
    try:
        return parse_version(version) > parse_version(before)
    except ValueError:  # neither higher nor lower
        return False
