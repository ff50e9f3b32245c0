"""What the kernel answers when it is asked over the bus: `astrid.v1.request.<x>` is answered on `astrid.v1.response.<x>`.

A request is `{"type": "raw_json", "method": M, "params": {...}}`; what has no `method` is traffic between capsules and left
alone. A guest is told nothing of other principals and of the host's process; the owner, who asks from outside, is told all. The
answer is `{"status": S, "data": ...}` with the caller's principal and the nil source: S is `Success`, or a word of its own for
some methods; `Error` has what went wrong as its data. What changes the host (`ReloadCapsule`, `UnloadCapsule`,
`Shutdown`) is answered only to the host's owner, who asks from outside or through a capsule that is an uplink. (Astrid, kernel
requests.)
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from astrid_host.bus import Bus, Event
from astrid_host.capsules import Capsule, Registry, Reloader, unsatisfied
from astrid_host.errors import AstridError, PayloadError
from astrid_host.payloads import NIL_SOURCE, PAYLOAD_BYTES, Payload, RawJson, from_value
from astrid_host.scheduler import Scheduler
from astrid_host.tools import EXECUTE, tools_of
from astrid_host.topics import REQUESTS, RESPONSES, acl_allows

log = logging.getLogger(__name__)

PROMPT, ANSWER = "user.v1.prompt", "agent.v1.response"


class KernelMethods:
    """Answers kernel requests of one host. Made on the trio thread.

    Args:
        bus: where requests come from.
        scheduler: runs what hears the answers.
        registry: the capsules.
        reloader: reloads and unloads them.
        nursery: in which that goes on.
        owner: the host's principal.
        version: the host's.

    Attributes:
        connections: clients of the control socket, by principal.
        shut_down: called when the host is asked to stop; None where nobody can be asked to.
    """

    def __init__(
        self,
        bus: Bus,
        scheduler: Scheduler,
        registry: Registry,
        reloader: Reloader,
        nursery: trio.Nursery,
        owner: str,
        version: str,
    ) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._registry = registry
        self._reloader = reloader
        self._nursery = nursery
        self._owner = owner
        self._version = version
        self._begun = time.monotonic()
        self.connections: dict[str, int] = {}
        self.shut_down: Callable[[], None] | None = None
        self._tells: Mapping[str, tuple[str, Callable[[Event], Any]]] = {
            "ListCapsules": ("Success", lambda _: self._names()),
            "GetStatus": ("Status", self._status),
            "GetAgentReadiness": ("AgentReadiness", lambda _: self._readiness()),
            "GetCommands": ("Commands", lambda _: self._commands()),
            "GetCapsuleMetadata": ("CapsuleMetadata", lambda _: self._metadata()),
        }
        self._changes: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "ReloadCapsule": self._reload,
            "UnloadCapsule": self._unload,
            "Shutdown": self._stop,
        }
        bus.observe_below(REQUESTS, self._asked)

    def _asked(self, event: Event) -> bool:
        """A request may be one for the kernel; whether it was. The bus's lock is held, on any thread."""
        data = event.data
        if not isinstance(data, RawJson):
            return False
        method, params = data.get("method"), data.get("params")
        if not isinstance(method, str):
            return False
        tell = self._tells.get(method)
        if tell is not None:
            self._answer(event, tell[0], tell[1](event))
        elif method in self._changes and not self._may_change(event):
            self._answer(
                event, "Error", f"only the host's owner, {self._owner}, may ask for {method}, and not by a capsule"
            )
        elif method in self._changes:
            change = self._changes[method]
            given = params if isinstance(params, dict) else {}
            self._scheduler.call_soon(lambda: self._nursery.start_soon(self._change, event, change, given))
        else:
            known = ", ".join((*self._tells, *self._changes))
            self._answer(event, "Error", f"there is no method {method[:64]!r}; there are: {known}")
        return True

    def _may_change(self, event: Event) -> bool:
        if event.principal != self._owner:
            return False
        if event.source_id == NIL_SOURCE:
            return True
        capsule = self._registry.by_source(event.source_id)
        return capsule is not None and capsule.manifest.capabilities.uplink

    def _answer(self, event: Event, status: str, data: Any) -> None:
        topic = RESPONSES + event.topic.removeprefix(REQUESTS)
        try:
            payload: Payload = from_value({"status": status, "data": data})
        except PayloadError as error:
            log.exception("the answer on %s cannot be told: a fault of the host", topic)
            payload = from_value({"status": "Error", "data": f"the answer cannot be told: {_telling(error)}"})
        if len(payload.guest) > PAYLOAD_BYTES:
            payload = from_value({"status": "Error", "data": f"the answer has more than {PAYLOAD_BYTES} bytes"})
        self._bus.publish(topic, payload, event.principal, NIL_SOURCE, cause=event)

    async def _change(
        self, event: Event, change: Callable[[Mapping[str, Any]], Awaitable[Any]], params: Mapping[str, Any]
    ) -> None:
        try:
            status, data = "Success", await change(params)
        except AstridError as error:
            status, data = "Error", _telling(error)
        except Exception as error:  # asked from outside: it may not end the host
            log.exception("what %s asked for failed: a fault of the host", event.topic)
            status, data = "Error", f"a fault of the host: {_telling(error)}"
        with self._bus.lock:
            self._answer(event, status, data)
        self._scheduler.run_or_wake()

    # What changes the host.

    async def _reload(self, params: Mapping[str, Any]) -> Any:
        await self._reloader.reload(_text(params, "id"))
        return {"id": params["id"]}

    async def _unload(self, params: Mapping[str, Any]) -> Any:
        await self._reloader.unload(_text(params, "id"))
        return {"id": params["id"]}

    async def _stop(self, _params: Mapping[str, Any]) -> Any:
        if self.shut_down is None:
            raise AstridError("this host is part of another program, which stops it")
        self._scheduler.call_soon(self.shut_down)
        return {}

    # What only tells. The lock is held.

    def _ready(self) -> list[Capsule]:
        return [capsule for capsule in self._registry.capsules.values() if capsule.state == "ready"]

    def _names(self) -> list[str]:
        return [capsule.id for capsule in self._ready()]

    def _status(self, asked: Event) -> dict[str, Any]:
        outside = asked.source_id == NIL_SOURCE
        all_of_it = outside and asked.principal == self._owner
        connections = {
            principal: count
            for principal, count in sorted(self.connections.items())
            if all_of_it or principal == asked.principal
        }
        return {
            "pid": os.getpid() if outside else 0,
            "uptime_secs": int(time.monotonic() - self._begun),
            "version": self._version,
            "ephemeral": False,
            "connected_clients": sum(connections.values()),
            "connections_by_principal": [
                {"principal": principal, "count": count} for principal, count in connections.items()
            ],
            "loaded_capsules": self._names(),
        }

    def _readiness(self) -> dict[str, Any]:
        ready = self._ready()
        manifests = [capsule.manifest for capsule in ready]
        hears = [
            capsule.id
            for capsule in ready
            if any(handler.pattern == PROMPT and not handler.guard for handler in capsule.handlers)
            or (
                capsule.run_loop is not None and acl_allows([row.pattern for row in capsule.manifest.subscribe], PROMPT)
            )
        ]
        says = [capsule.id for capsule in ready if acl_allows(capsule.manifest.publish_rows, ANSWER)]
        missing = [f"{m.package.name}: {wanted}" for m in manifests for wanted in unsatisfied(m, manifests)]
        return {
            "ready": bool(hears and says and not missing),
            "prompt_subscribers": hears,
            "response_publishers": says,
            "unsatisfied_required_imports": missing,
            "loaded_capsules": [capsule.id for capsule in ready],
        }

    def _commands(self) -> list[dict[str, Any]]:
        return [
            {
                "name": command.name,
                "description": command.description or "",
                "provider_capsule": capsule.id,
                "kind": command.kind,
            }
            for capsule in self._ready()
            for command in capsule.manifest.commands
        ]

    def _metadata(self) -> list[dict[str, Any]]:
        ready = self._ready()
        bound = {name for capsule in ready if capsule.run_loop is None for name in _bound(capsule)}
        return [_metadata_of(capsule, bound) for capsule in ready]


def _bound(capsule: Capsule) -> list[str]:
    """The tools that a capsule's handlers provide."""
    return [name for name in tools_of(capsule.manifest) if EXECUTE + name not in capsule.inactive]


def _metadata_of(capsule: Capsule, bound: set[str]) -> dict[str, Any]:
    """What is told of one capsule: for each tool what its manifest says, whether it describes itself or not. A tool that no
    capsule's row binds by name is that of who declares it: a run loop's, or one behind a pattern."""
    manifest = capsule.manifest
    said = {tool.name: tool for tool in manifest.tools}
    own = [] if capsule.run_loop is not None else _bound(capsule)
    provided = [*own, *(name for name in said if name not in bound)]
    return {
        "name": capsule.id,
        "version": capsule.version,
        "description": manifest.package.description,
        "source_id": capsule.source_id,
        "interceptor_events": [handler.pattern for handler in capsule.handlers],
        "imports": _interfaces((row.namespace, row.interface, row.requirement) for row in manifest.imports),
        "exports": _interfaces((row.namespace, row.interface, row.version) for row in manifest.exports),
        "tools": [
            {
                "name": name,
                "mutable": name in said and said[name].mutable,
                "asks_approval": name in said and said[name].asks_approval,
            }
            for name in provided
        ],
    }


def _interfaces(rows: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for namespace, interface, version in rows:
        found.setdefault(namespace, {})[interface] = str(version)
    return found


def _telling(error: Exception) -> str:
    """Its message as text that JSON can hold: the names of files need not be UTF-8."""
    return str(error).encode("utf-8", "backslashreplace").decode()


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise AstridError(f"the parameter {name!r} must be a text; found {value!r}")
    return value
