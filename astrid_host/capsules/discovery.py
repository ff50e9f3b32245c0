"""Finding capsules in folders, and the order in which they are loaded.

A folder with a Capsule.toml is a capsule; any other is searched one level deep, in the order of names. The first capsule
of a name counts. Those that declare `uplink` come first; within each part a capsule comes after the capsules whose exports
satisfy its imports; else the order is that of discovery. A cycle of imports is said and broken at its first member.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from astrid_host.errors import LoadError
from astrid_host.manifest import Manifest

log = logging.getLogger(__name__)
MANIFEST = "Capsule.toml"
META = "meta.json"


def find_folders(places: Iterable[Path]) -> list[Path]:
    """The folders below `places` that are capsules, in order.

    Raises:
        LoadError: a place does not exist.
    """
    found: list[Path] = []
    for place in places:
        if (place / MANIFEST).exists():
            found.append(place)
            continue
        try:
            children = sorted(child for child in place.iterdir() if child.is_dir())
        except OSError as error:
            raise LoadError(
                f"no capsules can be read from {place}: {error.strerror}; name a folder that has a {MANIFEST}, "
                "or one whose folders have"
            ) from None
        capsules = [child for child in children if (child / MANIFEST).exists()]
        if not capsules:
            log.warning("there is no capsule in %s: neither it nor a folder in it has a %s", place, MANIFEST)
        found.extend(capsules)
    return found


def trusted_in(places: Iterable[Path], workspace: Path) -> list[Path]:
    """What of these places nobody but the operator may change: all of each that lies below the workspace, or apart from it. Of
    one that is the workspace or holds it, each capsule's folder; and of a capsule's folder that does, its manifest and modules.

    Args:
        places: folders that are capsules or contain some; one that is missing is named too.
        workspace: what guests may write to.
    """
    real, found = workspace.resolve(), list[Path]()
    for place in places:
        if not real.is_relative_to(place.resolve()):
            found.append(place)
            continue
        for folder in (place, *_folders_in(place)):
            if not (folder / MANIFEST).exists():
                continue
            whole = not real.is_relative_to(folder.resolve())
            found += [folder] if whole else [folder / MANIFEST, folder / META, *folder.glob("*.wasm")]
    return found


def _folders_in(place: Path) -> list[Path]:
    try:
        return sorted(child for child in place.iterdir() if child.is_dir())
    except OSError:  # whoever reads it says so
        return []


def in_load_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The same manifests, providers before those that import from them."""
    order: list[Manifest] = []
    for uplink in (True, False):
        part = [manifest for manifest in manifests if manifest.capabilities.uplink is uplink]
        order.extend(_sorted_by_imports(part))
    return order


def _sorted_by_imports(manifests: list[Manifest]) -> list[Manifest]:
    waiting = list(manifests)
    order: list[Manifest] = []
    while waiting:
        ready = next((m for m in waiting if not any(_provides(other, m) for other in waiting if other is not m)), None)
        if ready is None:
            names = ", ".join(manifest.package.name for manifest in waiting)
            log.warning(
                "these capsules import from each other in a cycle, so their order is that of discovery: %s", names
            )
            return order + waiting
        waiting.remove(ready)
        order.append(ready)
    return order


def _provides(provider: Manifest, importer: Manifest) -> bool:
    return any(wanted.satisfied_by(export) for wanted in importer.imports for export in provider.exports)


def unsatisfied(manifest: Manifest, others: Iterable[Manifest]) -> list[str]:
    """The required imports that no other capsule exports, as `namespace:interface requirement`."""
    exports = [export for other in others if other is not manifest for export in other.exports]
    return [
        f"{wanted.namespace}:{wanted.interface} {wanted.requirement}"
        for wanted in manifest.imports
        if not wanted.optional and not any(wanted.satisfied_by(export) for export in exports)
    ]
