"""astrid:sys: configuration, the caller, logs, clocks, random bytes, and what capsules may do.

`get-config` answers from what the operator set, then from the manifest's `[env]`: a declared key that nobody set has
its default, or is empty; an undeclared one is none, and so is a secret that nobody set.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from astrid_host.errors import HostError
from astrid_host.gates import holds
from astrid_host.syscalls.interface import Interface, Running, syscall

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

SLEEP_NS = 60_000_000_000
RANDOM_BYTES = 4096
LOG_CHARACTERS = 65_536
SECRET = "secret"
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
        the key or not; None when nobody set it."""
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
    """

    wit = ("astrid:sys/host@1.0.0",)

    def __init__(self, capsules: Capsules, settings: Settings | None = None) -> None:
        self._capsules = capsules
        self._settings = settings or NoSettings()
        self._loggers: dict[str, logging.Logger] = {}

    @syscall("get-config")
    def get_config(self, call: Running, key: str) -> str | None:
        """The value of a key, None for one that is neither set nor declared."""
        value = self._settings.setting(call, key)
        if value is not None:
            return value or _empty(call.capsule.manifest, key)
        return configured(call.capsule.manifest, key)

    @syscall("get-caller")
    def get_caller(self, call: Running) -> CallerContext:
        """Who caused the event that is handled, and when (RFC 3339)."""
        message = call.message
        if message is None:
            return CallerContext(None, "", "")
        when = datetime.datetime.fromtimestamp(message.time, datetime.UTC)
        return CallerContext(message.principal, message.source_id, when.isoformat())

    @syscall("log")
    def log(self, call: Running, level: str, message: str) -> None:
        """Write a line to the capsule's log, `astrid_host.capsule.<id>`: control characters escaped, 65,536
        characters."""
        capsule = call.capsule.id
        logger = self._loggers.get(capsule)
        if logger is None:
            logger = self._loggers[capsule] = logging.getLogger(f"astrid_host.capsule.{capsule}")
        number = _LEVELS[level]
        if logger.isEnabledFor(number):
            logger.log(number, "%s", in_one_line(message), extra={"principal": call.principal})

    @syscall("signal-ready")
    def signal_ready(self, call: Running) -> None:
        """The capsule's run loop has subscribed to what it needs."""
        call.capsule.signal_ready()

    @syscall("clock-ms")
    def clock_ms(self, _call: Running) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    @syscall("clock-monotonic-ns")
    def clock_monotonic_ns(self, _call: Running) -> int:
        """Nanoseconds since some time before the host started; never goes back."""
        return time.monotonic_ns()

    @syscall("sleep-ns")
    async def sleep_ns(self, _call: Running, duration_ns: int) -> None:
        """Sleep. `too-large` for more than 60 s. When the call is ended meanwhile, so is the sleep."""
        if duration_ns > SLEEP_NS:
            raise HostError("too-large", detail=f"a sleep takes at most {SLEEP_NS} ns; {duration_ns} were asked for")
        await trio.sleep(duration_ns / 1_000_000_000)

    @syscall("random-bytes")
    def random_bytes(self, _call: Running, length: int) -> bytes:
        """Random bytes of the operating system. `too-large` for more than 4,096."""
        if length > RANDOM_BYTES:
            raise HostError("too-large", detail=f"at most {RANDOM_BYTES} random bytes a call; {length} were asked for")
        return os.urandom(length)

    @syscall("check-capsule-capability")
    def check_capsule_capability(self, _call: Running, request: CapabilityCheckRequest) -> CapabilityCheckResponse:
        """Whether the capsule with that source UUID claims a capability; False for one that is not loaded."""
        try:
            source = str(uuid.UUID(request.source_uuid))
        except ValueError:
            return CapabilityCheckResponse(False)
        capsule = self._capsules.by_source(source)
        return CapabilityCheckResponse(capsule is not None and holds(capsule.manifest, request.capability))

    @syscall("enumerate-capabilities")
    def enumerate_capabilities(self, call: Running) -> list[str]:
        """The names of the capabilities that the capsule claims, sorted."""
        return call.capsule.manifest.capabilities.names()


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
