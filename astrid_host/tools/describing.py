"""Describing: every capsule is asked for its tools, and the answers are put together in load order.

A described tool counts only from the capsule whose handler provides it, when any does; of those that nobody provides the first
counts. A tool whose schema nests deeper than 100 levels is left out: it would not fit into what tells of it.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import trio

from astrid_host.bus import Bus, Event
from astrid_host.capsules import Capsule, Registry
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.payloads.outside import Tool
from astrid_host.scheduler import Scheduler
from astrid_host.tools.topics import DESCRIBE, DESCRIBED, tool_of

log = logging.getLogger(__name__)

DESCRIBE_S = 0.5
SCHEMA_DEPTH = 100  # a payload has 127, and what tells of tools has some around their schemas


async def describe(bus: Bus, scheduler: Scheduler, registry: Registry, principal: str) -> list[Tool]:
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
            event.settled = [lambda: scheduler.call_soon(over.set)]
    try:
        scheduler.run_or_wake()
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
    providers = _providers(registry)
    found: dict[str, Tool] = {}
    for capsule in list(registry.capsules.values()):
        for answer in by_source.get(capsule.source_id, ()):
            for tool in _tools_in(answer, capsule):
                if providers.get(tool.name, capsule.id) == capsule.id:
                    found.setdefault(tool.name, tool)
    return list(found.values())


def _providers(registry: Registry) -> dict[str, str]:
    """By tool, the capsule that is called for it."""
    return {
        tool: capsule.id
        for capsule in registry.capsules.values()
        for handler in capsule.handlers
        if (tool := tool_of(handler.pattern)) is not None
    }


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
        if _is_told(tool, capsule)
    ]


def _is_told(tool: _Described, capsule: Capsule) -> bool:
    if not _is_deep(tool.input_schema):
        return True
    log.warning(
        "%s describes its tool %r by a schema that nests deeper than %d levels: the tool is left out",
        capsule.id,
        tool.name,
        SCHEMA_DEPTH,
    )
    return False


def _is_deep(schema: Any) -> bool:
    """Whether it nests deeper than it may. Level by level, so that nothing recurses."""
    level = [schema]
    for _ in range(SCHEMA_DEPTH):
        level = [
            part
            for outer in level
            for part in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return False
    return True


def _readable(data: Any, capsule: Capsule) -> list[_Described]:
    """Of an answer that has something wrong in it, the tools that can be read."""
    found = []
    for tool in data["tools"] if isinstance(data, dict) and isinstance(data.get("tools"), list) else [data]:
        try:
            found.append(msgspec.convert(tool, _Described))
        except msgspec.ValidationError as error:
            log.warning("%s describes a tool that cannot be used: %s", capsule.id, error)
    return found
