"""What a manifest lets a capsule ask about users: `resolve` is less than `link`, which is less than `admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from astrid_host.gates.verdicts import Denial, quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

Level: TypeAlias = Literal["resolve", "link", "admin"]
LEVELS: tuple[Level, ...] = ("resolve", "link", "admin")


def may_identify(manifest: Manifest, level: Level) -> Denial | None:
    """Whether a capsule has a level of `identity`, or one that includes it. (Astrid, identity: levels.)"""
    rows = manifest.capabilities.identity
    if any(row in rows for row in LEVELS[LEVELS.index(level) :]):
        return None
    line = f"[capabilities] identity = [{', '.join(map(quoted, (*rows, level)))}]"
    detail = f"capsule {manifest.package.name!r} may not {_DOES[level]}: write in its Capsule.toml: {line}"
    return Denial("capability-denied", detail)


_DOES = {
    "resolve": "ask which user somebody is",
    "link": "see or change users' names on other platforms",
    "admin": "make users",
}
