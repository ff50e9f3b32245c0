"""Which capabilities a manifest claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest


def holds(manifest: Manifest, capability: str) -> bool:
    """Whether a manifest claims a capability, named as in the Capsule.toml; False for a name that there is not."""
    return capability in manifest.capabilities.names()
