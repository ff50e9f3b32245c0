"""What a capsule asks for beyond what a plain tool needs: each thing in plain words, with the manifest's row and its place.

A plain tool handles topics of its own, answers calls, has files of the workspace and a scratch folder, and reaches hosts that its
manifest names: it asks for nothing. What is asked for here is given only to a capsule that the operator trusts. Pure: a manifest
and the bundled ones go in, and rows with wildcards count for all that they reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from astrid_host.gates.contracts import Contracts
from astrid_host.gates.net import UNIX
from astrid_host.gates.precedence import gives_way
from astrid_host.gates.verdicts import quoted

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

WORKSPACE, SCRATCH = "cwd://", "/tmp"
_FLAGS = {
    "uplink": "brings messages of other platforms in, and speaks for their users",
    "allow_persistent": "starts processes that go on when the call is over",
    "allow_prompt_injection": "puts text of its own into the prompts of the model",
}
_IDENTITY = {
    "link": "says which user of another platform is which of yours",
    "admin": "makes and removes users",
}
# Below these names anybody may register a name of their own.
_OPEN_SECOND = ("ac", "co", "com", "edu", "gob", "gov", "go", "ne", "net", "nom", "or", "org")
_LOCAL = ("localhost",)


class Ask(msgspec.Struct, frozen=True):
    """One thing that a capsule asks for.

    Attributes:
        kind: `replaces`, `guard`, `intercepts`, `listens`, `role`, or the name of a capability.
        tells: in plain words, after the capsule's name.
        row: of the manifest, as TOML.
        place: the manifest's file and line, as `file:line`.
        needed: without consent the capsule does not load; else it loads, and its word does not count there.
    """

    kind: str
    tells: str
    row: str
    place: str = ""
    needed: bool = True

    @property
    def line(self) -> int:
        """The line in its file."""
        return int(self.place.rpartition(":")[2] or 1)

    def __str__(self) -> str:
        return f"{self.tells}: {self.row} ({self.place})"

    @property
    def same(self) -> tuple[str, str, str]:
        """What is equal in two versions of a manifest that ask for the same."""
        return self.kind, self.tells, self.row


def asks_of(
    manifest: Manifest, bundled: Iterable[Manifest], contracts: Contracts, bound_once: Callable[[str], bool]
) -> tuple[Ask, ...]:
    """Everything that a capsule asks for which did not come with the host.

    Args:
        manifest: the capsule's.
        bundled: those of the capsules that come with the host, as far as they are loaded.
        contracts: whose word counts on which topics.
        bound_once: whether a topic may be bound by one capsule only.
    """
    found = [*_replaced(manifest, bundled, bound_once), *_rows(manifest, contracts), *_roles(manifest, contracts)]
    found += _capabilities(manifest)
    where = manifest.path or Path("Capsule.toml")
    return tuple(Ask(kind, tells, row, f"{where}:{line}", needed) for kind, tells, row, line, needed in found)


_Found = tuple[str, str, str, int, bool]


def _replaced(manifest: Manifest, bundled: Iterable[Manifest], bound_once: Callable[[str], bool]) -> Iterator[_Found]:
    name = manifest.package.name
    for other in bundled:
        if other.package.name == name:
            row, line = f"[package] name = {quoted(name)}", manifest.line_of("package", "name")
            tells = f"takes the place of the bundled capsule {name}, with what is configured for that name in a run"
            yield "replaces", tells, row, line, True
        elif (way := gives_way(other, manifest, bound_once)) is not None:
            tells = f"takes the place of the bundled capsule {other.package.name}, because that one steps aside"
            yield "replaces", tells, way.row, way.line, True


def _rows(manifest: Manifest, contracts: Contracts) -> Iterator[_Found]:
    intercepted = frozenset(contracts.intercepted(manifest))
    for row in manifest.subscribe:
        shown = f"[subscribe] {quoted(row.pattern)}"
        if row.handler is not None:
            shown += f" = {{ handler = {quoted(row.handler)}{', guard = true' if row.guard else ''} }}"
        if row.guard:
            yield (
                "guard",
                "stands guard: it is asked before events are handled, and can stop them",
                shown,
                row.line,
                True,
            )
        elif row.pattern in intercepted:
            tells = "comes between others: it sees their events, and can change or stop them"
            yield "intercepts", tells, shown, row.line, True
        elif contracts.overheard(row.pattern):
            yield "listens", "hears what others say to each other", shown, row.line, True


def _roles(manifest: Manifest, contracts: Contracts) -> Iterator[_Found]:
    for name, rows in contracts.wanted(manifest).items():
        role = contracts.role(name)
        shown = f"[publish] {', '.join(map(quoted, rows))}"
        yield "role", f"wants the role {name}, to {role.tells}", shown, manifest.publish[rows[0]].line, role.consent


def _capabilities(manifest: Manifest) -> Iterator[_Found]:
    held = manifest.capabilities

    def found(field: str, tells: str, rows: Iterable[str] | None = None) -> _Found:
        value = "true" if rows is None else f"[{', '.join(map(quoted, rows))}]"
        return field, tells, f"[capabilities] {field} = {value}", capability_line(manifest, field), True

    for field, tells in _FLAGS.items():
        if getattr(held, field):
            yield found(field, tells)
    if held.host_process:
        yield found("host_process", "starts programs of this machine, outside of its sandbox", held.host_process)
    if broad := [row for row in held.net if _is_broad(row)]:
        yield found("net", "sends what it knows to any server on the internet", broad)
    if broad := [row for row in held.net_connect if _is_broad(row.rpartition(":")[0])]:
        yield found("net_connect", "opens connections to any server on the internet", broad)
    if outside := [row for row in held.fs_write if row != "*" and not _is_own(row)]:
        yield found("fs_write", "writes files outside of the workspace, which other capsules read", outside)
    if open_ := [row for row in held.net_bind if not row.startswith(UNIX)]:
        yield found("net_bind", "listens on the network", open_)
    for right in _IDENTITY:
        if right in held.identity:
            yield found("identity", _IDENTITY[right], (right,))


def capability_line(manifest: Manifest, field: str) -> int:
    """The line of a capability, whether it stands in `[capabilities]` or in that of the first component."""
    of_root = manifest.source.positions.line("capabilities", field)
    inner = manifest.source.positions.line("component", 0, "capabilities", field)
    around = manifest.source.positions.line("capabilities")
    return of_root if of_root != around or inner == 1 else inner


def _is_own(row: str) -> bool:
    """Whether a row of `fs_write` is about the workspace, or about the scratch folder that nobody else has."""
    return row == SCRATCH or row.startswith((WORKSPACE, f"{SCRATCH}/"))


def _is_broad(row: str) -> bool:
    """Whether a row of `net` reaches hosts that have no common owner: all of them, or all below a public suffix."""
    name = row.strip().lower().strip(".")
    if ":" in name or name in _LOCAL or name.replace(".", "").isdigit():
        return False
    labels = name.split(".")
    if "*" in labels or len(labels) == 1:
        return True
    return len(labels) == 2 and labels[0] in _OPEN_SECOND and len(labels[1]) == 2
