"""Making an instance of a capsule without calling it: what its start function and its `_initialize` do shows then.

The instance is made on behalf of the host's owner, by the path that every call takes, and closed again.
"""

from __future__ import annotations

from typing import Any, cast

import trio

from astrid_host.capsules.capsule import Capsule
from astrid_host.engine import Entry
from astrid_host.errors import GuestFailed, LoadError
from astrid_host.scheduler import Scheduler, call_once

MAKING_S = 10.0


class _MadeError(GuestFailed):
    """The instance is there."""


class _NoExport:
    """In place of an export: asking which one is to be called ends the call, and by then the instance was made."""

    @property
    def name(self) -> str:
        raise _MadeError("nothing of it is to be called")


async def make_instance(scheduler: Scheduler, capsule: Capsule) -> None:
    """Make an instance of it and close it again.

    Args:
        scheduler: runs the guest.
        capsule: its module is built.

    Raises:
        LoadError: its start function or its `_initialize` failed, or was not over within 10 s.

    Cancelled, the guest is stopped.
    """
    no_export = cast(Entry, _NoExport())
    arguments: tuple[Any, ...] = ()
    with trio.move_on_after(MAKING_S) as bound:
        try:
            await call_once(scheduler, capsule, no_export, arguments, capsule.owner, min(capsule.timeout_s, MAKING_S))
        except _MadeError:
            return
        except GuestFailed as error:
            raise LoadError(f"{capsule.id}: no instance of it can be made: {error}") from None
    if bound.cancelled_caught:
        raise LoadError(f"{capsule.id}: no instance of it can be made: its start was not over within {MAKING_S:g} s")
