"""`Capsule.toml`: its schema, reading with everything that is wrong, and writing.

`load` raises `ManifestError` with all problems; `check` returns them. Nothing here knows what a tool is.
`manifest.line_of("subscribe", pattern)` and `Problem` are there for whoever checks more than this room does.
"""

from astrid_host.errors import ManifestError
from astrid_host.manifest.files import read_module
from astrid_host.manifest.meta import Meta, check_meta, read_meta
from astrid_host.manifest.problems import Problem, quoted
from astrid_host.manifest.reading import check, check_text, load
from astrid_host.manifest.schema import (
    Capabilities,
    Command,
    Component,
    ContextFile,
    EnvField,
    Export,
    Import,
    Limits,
    Manifest,
    McpServer,
    OptionsFrom,
    Package,
    PublishRow,
    SubscribeRow,
    ToolRow,
    Uplink,
)
from astrid_host.manifest.writing import dump, write

__all__ = [
    "Capabilities",
    "Command",
    "Component",
    "ContextFile",
    "EnvField",
    "Export",
    "Import",
    "Limits",
    "Manifest",
    "ManifestError",
    "McpServer",
    "Meta",
    "OptionsFrom",
    "Package",
    "Problem",
    "PublishRow",
    "SubscribeRow",
    "ToolRow",
    "Uplink",
    "check",
    "check_meta",
    "check_text",
    "dump",
    "load",
    "quoted",
    "read_meta",
    "read_module",
    "write",
]
