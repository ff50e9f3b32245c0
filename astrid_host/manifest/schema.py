"""What a Capsule.toml says: the data model is its documentation.

Tables and fields are those of Astrid's manifest; what is this host's own is marked so. Defaults are what holds when a field is
absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from astrid_host.manifest.positions import NOWHERE, Source
from astrid_host.manifest.versions import Requirement, Version

DEFAULT_PRIORITY = 100


class Package(msgspec.Struct, frozen=True):
    """`[package]`. `yields_to` is this host's own: capsules for which a bundled one steps aside."""

    name: str
    version: str
    description: str | None = None
    authors: tuple[str, ...] = ()
    repository: str | None = None
    homepage: str | None = None
    documentation: str | None = None
    license: str | None = None
    license_file: str | None = None
    readme: str | None = None
    keywords: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    astrid_version: str | None = None
    yields_to: tuple[str, ...] = ()


class Component(msgspec.Struct, frozen=True):
    """One `[[component]]`: `file` is the WebAssembly, relative to the capsule's folder. Only the first is loaded.

    `hash` is the file's BLAKE3 in hexadecimal; `kind` (the field `type`) and `link` have no effect.
    """

    file: str
    id: str = ""
    hash: str | None = None
    kind: str = ""
    link: tuple[str, ...] = ()


class Export(msgspec.Struct, frozen=True):
    """An interface that the capsule offers by convention of topics."""

    namespace: str
    interface: str
    version: Version


class Import(msgspec.Struct, frozen=True):
    """An interface that the capsule expects another to offer."""

    namespace: str
    interface: str
    requirement: Requirement
    optional: bool = False

    def satisfied_by(self, export: Export) -> bool:
        """Whether that export is what is wanted."""
        same = (export.namespace, export.interface) == (self.namespace, self.interface)
        return same and self.requirement.allows(export.version)


class PublishRow(msgspec.Struct, frozen=True):
    """One row of `[publish]`: the capsule may publish where the bus matches `pattern`.

    `wit` and `pin` (one of version, tag, rev, branch, path, with its value) name the schema of its events and are never
    resolved. `settle` is this host's own: the kernel tells when the last handler of an event has ended.
    """

    pattern: str
    wit: str | None = None
    pin: tuple[str, str] | None = None
    fanout: Any = None
    settle: bool = False
    source: Source = NOWHERE

    @property
    def line(self) -> int:
        """Where it stands; 1 when it was not read from a file."""
        return self.source.line_of("publish", self.pattern)


class SubscribeRow(msgspec.Struct, frozen=True):
    """One row of `[subscribe]`: the capsule may subscribe there, and `handler` is called for events that match.

    `on_error`, `reply`, `guard` and `excepted` (the field `except`) are this host's own: a chain goes on after a failure of this
    member; what the handler returns is published on a topic; the row alone does not make an event handled; topics that match
    and for which the handler is not called all the same. `wit` and `pin` are as in `PublishRow`.
    """

    pattern: str
    wit: str | None = None
    handler: str | None = None
    priority: int = DEFAULT_PRIORITY
    on_error: Literal["fail", "continue"] = "fail"
    reply: str | None = None
    guard: bool = False
    excepted: tuple[str, ...] = ()
    pin: tuple[str, str] | None = None
    fanout: Any = None
    source: Source = NOWHERE

    @property
    def line(self) -> int:
        """Where it stands; 1 when it was not read from a file."""
        return self.source.line_of("subscribe", self.pattern)


class ToolRow(msgspec.Struct, frozen=True):
    """One `[[tool]]`: what people are told before the guest describes itself.

    `mutable` says that it changes something, `asks_approval` that it asks for approval itself, more finely than others could.
    """

    name: str
    description_for_llm: str | None = None
    input_schema_wit: str | None = None
    mutable: bool = False
    asks_approval: bool = False


class Capabilities(msgspec.Struct, frozen=True):
    """`[capabilities]`, those of the first component added."""

    uplink: bool = False
    net: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    fs_read: tuple[str, ...] = ()
    fs_write: tuple[str, ...] = ()
    host_process: tuple[str, ...] = ()
    allow_persistent: bool = False
    net_bind: tuple[str, ...] = ()
    net_connect: tuple[str, ...] = ()
    bind_workers: int | None = None
    identity: tuple[str, ...] = ()
    allow_prompt_injection: bool = False

    def names(self) -> list[str]:
        """Those that are given, sorted; `bind_workers` is a setting, not a capability."""
        fields = (name for name in self.__struct_fields__ if name != "bind_workers")
        return sorted(name for name in fields if getattr(self, name))


class OptionsFrom(msgspec.Struct, frozen=True):
    """Where the choices for an env field come from: what `select` finds in the JSON that a GET of `http` answers.

    `bearer` names the field whose value is sent as a token, `after` those that have to be filled in first.
    """

    http: str
    bearer: str | None = None
    select: str | None = None
    after: tuple[str, ...] = ()


class EnvField(msgspec.Struct, frozen=True):
    """One field of `[env]`: a value that is configured for the capsule.

    `type` is free text; text, secret, select, array, string and integer are known. `default` is a TOML value of any type
    and counts only when `has_default`.
    """

    type: str = "text"
    request: str | None = None
    description: str | None = None
    default: Any = None
    has_default: bool = False
    enum_values: tuple[str, ...] = ()
    placeholder: str | None = None
    options_from: OptionsFrom | None = None


class Command(msgspec.Struct, frozen=True):
    """One `[[command]]`."""

    name: str
    description: str | None = None
    file: str | None = None
    kind: Literal["slash", "cli"] = "slash"


class ContextFile(msgspec.Struct, frozen=True):
    """One `[[context_file]]`."""

    name: str | None = None
    file: str | None = None


class McpServer(msgspec.Struct, frozen=True):
    """One `[[mcp_server]]`: a process that speaks the Model Context Protocol. `kind` is the field `type`."""

    id: str | None = None
    description: str | None = None
    kind: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()


class Uplink(msgspec.Struct, frozen=True):
    """One `[[uplink]]`."""

    name: str | None = None
    platform: str | None = None
    profile: str | None = None


class Limits(msgspec.Struct, frozen=True):
    """`[limits]`, this host's own: what one call may take, and how many run at once for one principal."""

    memory_bytes: int = 64 << 20
    timeout_secs: float = 300.0
    concurrency: int = 1
    on_trap: Literal["quarantine", "reload"] = "quarantine"


class Manifest(msgspec.Struct, frozen=True, eq=False):
    """A whole Capsule.toml. `source` knows where its rows stand."""

    package: Package
    components: tuple[Component, ...] = ()
    imports: tuple[Import, ...] = ()
    exports: tuple[Export, ...] = ()
    publish: Mapping[str, PublishRow] = {}
    subscribe: tuple[SubscribeRow, ...] = ()
    tools: tuple[ToolRow, ...] = ()
    capabilities: Capabilities = Capabilities()
    env: Mapping[str, EnvField] = {}
    commands: tuple[Command, ...] = ()
    context_files: tuple[ContextFile, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    skills: tuple[Mapping[str, Any], ...] = ()
    limits: Limits = Limits()
    path: Path | None = None
    source: Source = NOWHERE

    @property
    def publish_rows(self) -> tuple[str, ...]:
        """What it may publish on."""
        return tuple(self.publish)

    @property
    def subscribe_rows(self) -> tuple[str, ...]:
        """What it may subscribe to."""
        return tuple(row.pattern for row in self.subscribe)

    @property
    def handlers(self) -> tuple[SubscribeRow, ...]:
        """The rows that name a handler."""
        return tuple(row for row in self.subscribe if row.handler is not None)

    def line_of(self, table: str, name: str) -> int:
        """The line on which a row of `publish`, `subscribe`, `tool`, `command`, `env` or `limits` stands.

        Returns:
            Counted from 1; the table's line when it has no such row, 1 when there is no such table or no file.
        """
        return self.source.line_of(table, name)
