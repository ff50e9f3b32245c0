"""What the kernel publishes about events: failure reports, and settled events for whoever asked.

A report goes to `astrid.v1.dispatch.failed.<topic>`, from the kernel, on behalf of the event's principal. Nobody is obliged
to listen: without a receiver a report costs one look-up and is not even built. Reports are never reported on. A settled event
goes to `astrid.v1.dispatch.settled.<topic>` in the same way, after everything that the event's handlers published.
"""

from __future__ import annotations

from typing import Any

import msgspec

from astrid_host.topics import FAILED_TOPICS, SETTLED_TOPICS

FAILED, SETTLED = FAILED_TOPICS, SETTLED_TOPICS
DETAIL_CHARACTERS = 4096


class Failure(msgspec.Struct, gc=False):
    """Why one handler did not end well.

    Attributes:
        reason: one word: `trap`, `deny`, `timeout`, `cancelled`, `no-instance`, `quarantined`, `queue-full`, `loop`,
            `guest-fault`, `no-handler` or `publish-denied`.
        detail: for people and models: what happened, and how to mend it.
        capsule: whose handler it was, None where there was none.
        action: the handler.
    """

    reason: str
    detail: str
    capsule: str | None = None
    action: str | None = None


class Report(msgspec.Struct, gc=False):
    """What stands in a failure report.

    `refused` tells a report on a publish that was refused to a handler from one on an event that was not handled: then `topic`
    is what was tried, and `payload` the event that was being handled.
    """

    reason: str
    detail: str
    topic: str
    seq: int
    principal: str | None
    capsule: str | None
    action: str | None
    handlers: int
    done: int
    published: list[str]
    payload: Any
    refused: bool = False


class Settled(msgspec.Struct, gc=False):
    """What stands in a settled event: `handlers` is the sum of those that ended well, that failed and that never ran."""

    topic: str
    seq: int
    principal: str | None
    handlers: int
    done: int
    failed: int
    skipped: int


def shorten(detail: str) -> str:
    """A detail that fits into a report, however long the guest's own text was."""
    return detail if len(detail) <= DETAIL_CHARACTERS else f"{detail[:DETAIL_CHARACTERS]}… ({len(detail)} characters)"
