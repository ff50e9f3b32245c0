"""astrid:sys: configuration, the caller, logs, clocks, random bytes, and what capsules may do.

`get-config` answers from what the operator set, then from the manifest's `[env]`: a declared key that nobody set has
its default, or is empty; an undeclared one is none, and so is a secret that nobody set. Only `sleep-ns` waits, without a
thread; what a capsule logs is bounded in size and rate, and what is beyond is dropped, which is logged too. (Astrid, sys.)
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from astrid_host.errors import HostError, StoreError
from astrid_host.gates import holds
from astrid_host.hostcalls.interface import Interface, Running, hostcall

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

SLEEP_NS = 60_000_000_000
RANDOM_BYTES = 4096
LOG_CHARACTERS = 65_536
LOG_LINES_PER_S = 1000  # of one capsule
LOG_CHARACTERS_PER_S = 1 << 20
LOG_TAKES = 2 << 20
SECRET = "secret"
WORKSPACE_ROOT = "workspace_root"  # an [env] row of that name without a default has the workspace's place
SOCKET_PATH = "ASTRID_SOCKET_PATH"  # the host's to say; an [env] row of that name is ignored

TRACE = 5
_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class Settings(Protocol):
    """What the operator set for capsules. From any thread, in microseconds."""

    def setting(self, call: Running, key: str) -> str | None:
        """The value of a key for the call's capsule and principal, secrets included, whether its manifest declares
        the key or not; None when nobody set it. Raises StoreError when what is stored cannot be read."""
        ...


class NoSettings:
    """Settings of a host in which nobody set anything."""

    def setting(self, call: Running, key: str) -> str | None:
        return None


class Known(Protocol):
    """A loaded capsule, as far as asking for its rights needs it."""

    @property
    def manifest(self) -> Manifest: ...


class Capsules(Protocol):
    """The loaded capsules. From any thread."""

    def by_source(self, source: str) -> Known | None:
        """The capsule that publishes under that UUID."""
        ...


class CallerContext(NamedTuple):
    """`caller-context`; the source and time are empty where there is no message."""

    principal: str | None
    source_id: str
    timestamp: str


class CapabilityCheckRequest(Protocol):
    """`capability-check-request`."""

    @property
    def source_uuid(self) -> str: ...
    @property
    def capability(self) -> str: ...


class CapabilityCheckResponse(NamedTuple):
    """`capability-check-response`."""

    allowed: bool


class Sys(Interface):
    """The host functions of astrid:sys.

    Args:
        capsules: the loaded capsules.
        settings: what the operator set.
        complete: whether all capsules have been loaded, so that one that is not found is not there.
        redacted: takes secrets out of what capsules log, before it is cut and escaped.
        workspace: the absolute path of the workspace, which a capsule is told that declares `workspace_root`.
    """

    wit = ("astrid:sys/host@1.0.0",)

    def __init__(
        self,
        capsules: Capsules,
        settings: Settings | None = None,
        complete: Callable[[], bool] = lambda: True,
        redacted: Callable[[str], str] = str,
        workspace: str = "",
    ) -> None:
        self._capsules = capsules
        self._settings = settings or NoSettings()
        self._complete = complete
        self._redacted = redacted
        self._workspace = workspace
        self._logs: dict[str, CapsuleLog] = {}

    @hostcall("get-config")
    def get_config(self, call: Running, key: str) -> str | None:
        """The value of a key, None for one that is neither set nor declared. `unknown` when what is stored cannot be
        read. (Astrid, env resolution.)"""
        try:
            value = self._settings.setting(call, key)
        except StoreError as error:
            raise HostError("unknown", "the configuration cannot be read", detail=str(error)) from error
        if value is not None:
            return value or _empty(call.capsule.manifest, key)
        return configured(call.capsule.manifest, key) or self._by_default(call.capsule.manifest, key)

    def _by_default(self, manifest: Manifest, key: str) -> str | None:
        row = manifest.env.get(key)
        if row is None or row.type == SECRET or key == SOCKET_PATH:
            return None
        return self._workspace if key == WORKSPACE_ROOT else ""

    @hostcall("get-caller")
    def get_caller(self, call: Running) -> CallerContext:
        """Who caused the event that is handled, and when (RFC 3339)."""
        message = call.message
        if message is None:
            return CallerContext(None, "", "")
        when = datetime.datetime.fromtimestamp(message.time, datetime.UTC)
        return CallerContext(message.principal, message.source_id, when.isoformat())

    @hostcall("log", takes=LOG_TAKES)
    def log(self, call: Running, level: str, message: str) -> None:
        """Write a line to the capsule's log, `astrid_host.capsule.<id>`: control characters escaped, 65,536 characters.
        Beyond 1,000 lines or 1,048,576 characters a second of one capsule, lines are dropped."""
        capsule = call.capsule.id
        log = self._logs.get(capsule)
        if log is None:
            log = self._logs[capsule] = CapsuleLog(capsule, self._redacted)
        log.write(_LEVELS[level], message, call.principal)

    @hostcall("signal-ready")
    def signal_ready(self, call: Running) -> None:
        """The capsule's run loop has subscribed to what it needs."""
        call.capsule.signal_ready()

    @hostcall("clock-ms")
    def clock_ms(self, _call: Running) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    @hostcall("clock-monotonic-ns")
    def clock_monotonic_ns(self, _call: Running) -> int:
        """Nanoseconds since some time before the host started; never goes back."""
        return time.monotonic_ns()

    @hostcall("sleep-ns")
    async def sleep_ns(self, _call: Running, duration_ns: int) -> None:
        """Sleep that many nanoseconds, on no thread. `too-large` for more than 60 s. When the call is ended meanwhile, by
        cancellation or because its capsule is unloaded, so is the sleep."""
        if duration_ns > SLEEP_NS:
            raise HostError("too-large", detail=f"a sleep takes at most {SLEEP_NS} ns; {duration_ns} were asked for")
        await trio.sleep(duration_ns / 1_000_000_000)

    @hostcall("random-bytes")
    def random_bytes(self, _call: Running, length: int) -> bytes:
        """Random bytes of the operating system. `too-large` for more than 4,096."""
        if length > RANDOM_BYTES:
            raise HostError("too-large", detail=f"at most {RANDOM_BYTES} random bytes a call; {length} were asked for")
        return os.urandom(length)

    @hostcall("check-capsule-capability")
    def check_capsule_capability(self, _call: Running, request: CapabilityCheckRequest) -> CapabilityCheckResponse:
        """Whether the capsule with that source UUID claims a capability; False for one that is not loaded.
        `registry-unavailable` while one that is not found may yet be loaded."""
        try:
            source = str(uuid.UUID(request.source_uuid))
        except ValueError:
            return CapabilityCheckResponse(False)
        capsule = self._capsules.by_source(source)
        if capsule is None and not self._complete():
            raise HostError("registry-unavailable", detail=f"capsules are still being loaded; none has {source} yet")
        return CapabilityCheckResponse(capsule is not None and holds(capsule.manifest, request.capability))

    @hostcall("enumerate-capabilities")
    def enumerate_capabilities(self, call: Running) -> list[str]:
        """The names of the capabilities that the capsule claims, sorted."""
        return call.capsule.manifest.capabilities.names()


class CapsuleLog:
    """The log of one capsule. Two threads that write at once may get a few lines more than there is room for.

    Args:
        capsule: its id.
    """

    __slots__ = ("_characters", "_dropped", "_lines", "_logger", "_redacted", "_until")

    def __init__(self, capsule: str, redacted: Callable[[str], str] = str) -> None:
        self._redacted = redacted
        self._logger = logging.getLogger(f"astrid_host.capsule.{capsule}")
        self._until = 0.0
        self._lines = self._characters = self._dropped = 0

    def write(self, level: int, message: str, principal: str) -> None:
        """Write a line, unless its level is off or the second's lines are used up."""
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        now = time.monotonic()
        if now >= self._until:
            self._next_second(now)
        self._lines += 1
        self._characters += min(len(message), LOG_CHARACTERS)
        if self._lines <= LOG_LINES_PER_S and self._characters <= LOG_CHARACTERS_PER_S:
            logger.log(
                level, "%s", in_one_line(self._redacted(message[: 2 * LOG_CHARACTERS])), extra={"principal": principal}
            )
            return
        if not self._dropped:
            text = "it logs more than %d lines or %d characters a second: the rest of this second's is dropped"
            logger.warning(text, LOG_LINES_PER_S, LOG_CHARACTERS_PER_S)
        self._dropped += 1

    def _next_second(self, now: float) -> None:
        dropped = self._dropped
        self._until = now + 1
        self._lines = self._characters = self._dropped = 0
        if dropped:
            self._logger.warning("%d of its lines were dropped", dropped)


def configured(manifest: Manifest, key: str) -> str | None:
    """What a manifest alone says about a key that nobody set."""
    row = manifest.env.get(key)
    if row is None or key == SOCKET_PATH or row.type == SECRET:
        return None
    if row.default is None or len(row.enum_values) > 1:  # who can choose has to
        return ""
    return row.default if isinstance(row.default, str) else json.dumps(row.default, ensure_ascii=False, default=str)


def _empty(manifest: Manifest, key: str) -> str | None:
    row = manifest.env.get(key)
    return None if row is not None and row.type == SECRET else ""


def in_one_line(message: str) -> str:
    """A guest's text as one line of a log: what cannot be printed is escaped, what is too long is cut."""
    if len(message) > LOG_CHARACTERS:
        message = f"{message[:LOG_CHARACTERS]}… ({len(message)} characters)"
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
