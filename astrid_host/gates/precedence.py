"""When a bundled capsule steps aside for one that was given: by its `yields_to`, by an interface, by a topic that is bound once.

Pure; nothing is looked up but the two manifests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from astrid_host.gates.verdicts import quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


class GivesWay(NamedTuple):
    """Why a bundled capsule steps aside: in words that follow "which", the row of the given manifest, and its line."""

    why: str
    row: str
    line: int


def gives_way(bundled: Manifest, given: Manifest, bound_once: Callable[[str], bool]) -> GivesWay | None:
    """Why a bundled capsule steps aside for a given one of another name; None when both take part.

    Args:
        bundled: the manifest of the one that came with the host.
        given: that of the other.
        bound_once: whether a topic may be bound by one capsule only.
    """
    name = given.package.name
    if name in bundled.package.yields_to:
        return GivesWay("it yields to", f"[package] name = {quoted(name)}", given.line_of("package", "name"))
    interfaces = {(export.namespace, export.interface) for export in bundled.exports}
    for export in given.exports:
        if (export.namespace, export.interface) in interfaces:
            interface = f"{export.namespace}:{export.interface}"
            row = f"[exports] {quoted(interface)} = {quoted(str(export.version))}"
            line = max(given.line_of("exports", interface), given.line_of("exports", export.namespace))
            return GivesWay(f"exports {interface} too", row, line)
    bound = {row.pattern for row in bundled.handlers if bound_once(row.pattern)}
    for handled in given.handlers:
        if handled.pattern in bound:
            row = f"[subscribe] {quoted(handled.pattern)} = {{ handler = {quoted(handled.handler or '')} }}"
            return GivesWay(f"binds {handled.pattern} too", row, handled.line)
    return None
