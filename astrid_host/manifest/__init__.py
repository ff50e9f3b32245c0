"""`Capsule.toml`: its schema, reading with everything that is wrong, and writing.

`load` raises `ManifestError` with all problems; `check` returns them. Nothing here knows what a tool is.
"""

from astrid_host.errors import ManifestError
from astrid_host.manifest.meta import Meta, read_meta
from astrid_host.manifest.problems import Problem
from astrid_host.manifest.reading import check, check_text, load
from astrid_host.manifest.schema import (
    Capabilities,
    Command,
    Component,
    EnvField,
    Export,
    Import,
    Limits,
    Manifest,
    Package,
    PublishRow,
    SubscribeRow,
    ToolRow,
)
from astrid_host.manifest.writing import dump

__all__ = [
    "Capabilities",
    "Command",
    "Component",
    "EnvField",
    "Export",
    "Import",
    "Limits",
    "Manifest",
    "ManifestError",
    "Meta",
    "Package",
    "Problem",
    "PublishRow",
    "SubscribeRow",
    "ToolRow",
    "check",
    "check_text",
    "dump",
    "load",
    "read_meta",
]
