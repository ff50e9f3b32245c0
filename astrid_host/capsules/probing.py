"""Trying a capsule before it runs: does it load, and does its guest know the actions that its manifest names?

The guest runs in a throw-away host whose functions all refuse, so it can do nothing; only the answer "unknown action"
counts, because any other is what a guest may rightly say to an empty payload.
"""

from __future__ import annotations

from astrid_host.capsules.capsule import HOOK, Capsule
from astrid_host.capsules.loading import Loader
from astrid_host.errors import GuestFailed
from astrid_host.scheduler import Scheduler, call_once

UNKNOWN = ("unknown hook action", "unknown tool:", "unknown action")
PROBE_S = 5.0


async def unknown_actions(capsule: Capsule, loader: Loader, scheduler: Scheduler) -> list[str]:
    """The actions of the manifest's handlers that the guest does not answer to.

    Raises:
        LoadError: the capsule does not load.

    Cancelled, the guest is stopped.
    """
    await loader.build(capsule)
    if capsule.linked is None or HOOK not in capsule.linked.entries:
        return []
    unknown = []
    for action in dict.fromkeys(row.handler for row in capsule.manifest.handlers if row.handler):
        try:
            result = await call_once(scheduler, capsule, capsule.hook, (action, b"{}"), capsule.owner, PROBE_S)
        except GuestFailed:
            continue
        if result.action in ("deny", "abort") and (result.data or "").startswith(UNKNOWN):
            unknown.append(action)
    return unknown
