"""What a program that embeds a host, or talks to one that runs, is told: of an event, and of a tool."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec


class HostEvent(msgspec.Struct, frozen=True):
    """An event as the embedding program sees it: `payload` is the plain JSON value that a guest would receive."""

    topic: str
    payload: Any
    source_id: str
    principal: str | None
    seq: int
    timestamp: datetime.datetime


class Tool(msgspec.Struct, frozen=True):
    """A tool as its capsule describes it.

    Attributes:
        name: what it is called by.
        description: for the model.
        input_schema: JSON Schema of its arguments.
        capsule: who provides it.
        mutable: whether it changes anything; from the manifest, or from the schema.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    capsule: str
    mutable: bool
