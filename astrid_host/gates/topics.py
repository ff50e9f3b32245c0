"""What a manifest lets a capsule publish on and subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from astrid_host.gates.verdicts import Denial, Verdicts, quoted
from astrid_host.topics import acl_allows, topic_fault

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


def may_publish(manifest: Manifest, topic: str) -> Denial | None:
    """Whether a capsule may publish on a topic: 256 bytes, no empty segment, 8 segments, a `[publish]` row, in that
    order."""
    fault = topic_fault(topic)
    if fault is not None:
        return Denial("invalid-input", fault)
    if acl_allows(manifest.publish, topic):
        return None
    return _lacks_row(manifest, "publish", topic)


def may_subscribe(manifest: Manifest, pattern: str) -> Denial | None:
    """Whether a capsule may subscribe to a pattern: 256 bytes, no empty segment, 8 segments, `*` only as the last of
    them, a `[subscribe]` row that covers the pattern as it is written, in that order."""
    fault = topic_fault(pattern)
    if fault is not None:
        return Denial("invalid-input", fault)
    if "*" in pattern.split(".")[:-1]:
        detail = f"{pattern!r} has a `*` before its last segment, and only the last may be one: subscribe to all below"
        return Denial("invalid-input", detail)
    if acl_allows(manifest.subscribe_rows, pattern):
        return None
    return _lacks_row(manifest, "subscribe", pattern)


def _lacks_row(manifest: Manifest, table: str, key: str) -> Denial:
    to = "publish" if table == "publish" else "subscribe to"
    line = f'[{table}] {quoted(key)} = {{ wit = "opaque" }}'
    detail = f"capsule {manifest.package.name!r} may not {to} {key!r}: add to its Capsule.toml: {line}"
    return Denial("capability-denied", detail)


class PublishGate(Verdicts):
    """`may_publish` of one manifest, remembered for each topic."""

    __slots__ = ()

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(lambda topic: may_publish(manifest, topic))


class SubscribeGate(Verdicts):
    """`may_subscribe` of one manifest, remembered for each pattern."""

    __slots__ = ()

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(lambda pattern: may_subscribe(manifest, pattern))
