"""What a host tells of its capsules: which were found, what became of them, and what they provide."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from astrid_host.capsules import Capsule
from astrid_host.gates import Ask
from astrid_host.tools import tools_of


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
        trust: `bundled`, `trusted` with all that it asks for, `plain` when it asks for nothing that needs consent, or `refused`.
        asks: what it asks for beyond a plain tool.
        roles: in which its word counts, by name.
        unheard: of those patterns, the ones that reach topics on which its word does not count, with why.
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
    trust: Literal["bundled", "trusted", "plain", "refused"]
    asks: list[Ask]
    roles: list[str]
    unheard: dict[str, str]
    source_id: str
    folder: Path
    calls: int
    traps: int
    memory_bytes: int


def capsule_info(capsule: Capsule) -> CapsuleInfo:
    """What is told of one capsule now."""
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
        trust=_trust(capsule),
        asks=list(capsule.asks),
        roles=sorted(capsule.roles),
        unheard=dict(capsule.unheard),
        source_id=capsule.source_id,
        folder=capsule.folder,
        calls=capsule.account.calls,
        traps=capsule.account.failures.get("trap", 0),
        memory_bytes=capsule.pool.held_bytes() if capsule.linked is not None else 0,
    )


def _trust(capsule: Capsule) -> Literal["bundled", "trusted", "plain", "refused"]:
    if capsule.bundled:
        return "bundled"
    if capsule.trusted:
        return "trusted"
    return "refused" if any(ask.needed for ask in capsule.asks) else "plain"


def _inactive(capsule: Capsule, tool: str) -> bool:
    return any(pattern.endswith(f".{tool}") for pattern in capsule.inactive)
