"""Describing: every capsule is asked for its tools, and the answers are put together in load order."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import trio

from astrid_host.bus import Bus, Event
from astrid_host.calls import Turns
from astrid_host.capsules import Capsule, Registry
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.tools.topics import DESCRIBE, DESCRIBED

log = logging.getLogger(__name__)

DESCRIBE_S = 0.5


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


async def describe(bus: Bus, turns: Turns, registry: Registry, principal: str) -> list[Tool]:
    """Ask every capsule for its tools, on behalf of a principal; see `Tools.describe`."""
    over = trio.Event()
    answers: list[Event] = []

    def heard(event: Event) -> None:
        if event.principal == principal:
            answers.append(event)

    with bus.lock:
        stop = bus.observe_below(DESCRIBED, heard)
        event = bus.publish(DESCRIBE, from_value({}), principal, NIL_SOURCE, entering=True)
        waiting = event.left > 0
        if waiting:
            event.settled = [lambda: turns.tell(over.set)]
    try:
        turns.go()
        if waiting:
            with trio.move_on_after(DESCRIBE_S):
                await over.wait()
    finally:
        with bus.lock:
            stop()
    return _gathered(answers, registry)


def _gathered(answers: list[Event], registry: Registry) -> list[Tool]:
    by_source: dict[str, list[Event]] = {}
    for answer in answers:
        by_source.setdefault(answer.source_id, []).append(answer)
    found: dict[str, Tool] = {}
    for capsule in registry.capsules.values():
        for answer in by_source.get(capsule.source_id, ()):
            for tool in _tools_in(answer, capsule):
                found.setdefault(tool.name, tool)
    return list(found.values())


class _Described(msgspec.Struct):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class _Answer(msgspec.Struct):
    tools: list[Any]


def _tools_in(event: Event, capsule: Capsule) -> list[Tool]:
    """The tools that one answer describes. What is not described as a tool is left out, and said."""
    data = event.data
    if isinstance(data, dict) and "tools" not in data and isinstance(data.get("data"), dict):
        data = data["data"]
    try:
        described = [msgspec.convert(tool, _Described) for tool in msgspec.convert(data, _Answer).tools]
    except msgspec.ValidationError:
        described = _readable(data, capsule)
    declared = {tool.name for tool in capsule.manifest.tools if tool.mutable}
    return [
        Tool(
            tool.name,
            tool.description,
            tool.input_schema,
            capsule.id,
            tool.name in declared or tool.input_schema.get("mutable") is True,
        )
        for tool in described
    ]


def _readable(data: Any, capsule: Capsule) -> list[_Described]:
    """Of an answer that has something wrong in it, the tools that can be read."""
    found = []
    for tool in data["tools"] if isinstance(data, dict) and isinstance(data.get("tools"), list) else [data]:
        try:
            found.append(msgspec.convert(tool, _Described))
        except msgspec.ValidationError as error:
            log.warning("%s describes a tool that cannot be used: %s", capsule.id, error)
    return found
