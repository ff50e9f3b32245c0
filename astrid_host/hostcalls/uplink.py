"""astrid:uplink: bridges to other platforms, and what their users send.

A capsule needs `[capabilities] uplink`. It registers a bridge, 32 at most, and hands what the platform's users send to the host.
That waits, 128 messages and 8 MiB at most, until somebody who embeds the host takes it: `async with uplinks.inbound() as
messages`. Without such a reader nothing is accepted. Functions are plain. (Astrid, uplink.)
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import deque
from types import TracebackType

import msgspec
import trio

from astrid_host.errors import HostClosed, HostError
from astrid_host.gates.allowances import first_hidden
from astrid_host.hostcalls.interface import Caller, Interface, Running, hostcall
from astrid_host.scheduler import Scheduler

UPLINKS = 32  # of one capsule
NAME_CHARACTERS = 64
ID_CHARACTERS = 64
CONTENT_BYTES = 1 << 20
QUEUE = 128
QUEUE_BYTES = 8 << 20


class Registered(msgspec.Struct, frozen=True):
    """A bridge: `id` is a UUID, `source_id` tells which build of which capsule registered it."""

    id: str
    source_id: str
    name: str
    platform: str
    profile: str


class InboundMessage(msgspec.Struct, frozen=True):
    """What a user of another platform sent. `principal` is on whose behalf the bridge ran; `time` is in seconds since 1970."""

    uplink: Registered
    capsule: str
    principal: str
    platform_user_id: str
    content: str
    time: float


class Uplinks:
    """The bridges of one host, and what waits to be taken from them.

    Args:
        scheduler: whose lock guards the queue, and who wakes its reader.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._registered: dict[str, Registered] = {}
        self._waiting: deque[InboundMessage] = deque()
        self._bytes = 0
        self._reader: Inbound | None = None

    def register(self, source_id: str, name: str, platform: str, profile: str) -> Registered:
        """Note a bridge. From any thread.

        Raises:
            HostError: `invalid-input` when the capsule has one of that name and platform, `quota` when it has 32.
        """
        with self._scheduler.lock:
            own = [uplink for uplink in self._registered.values() if uplink.source_id == source_id]
            if any((uplink.name, uplink.platform) == (name, platform) for uplink in own):
                raise HostError("invalid-input", detail=f"the bridge {name!r} to {platform!r} is registered already")
            if len(own) >= UPLINKS:
                raise HostError("quota", detail=f"{UPLINKS} bridges are registered already")
            uplink = Registered(str(uuid.uuid4()), source_id, name, platform, profile)
            self._registered[uplink.id] = uplink
        return uplink

    def find(self, source_id: str, number: str) -> Registered | None:
        """A capsule's bridge of that id; another capsule's is none."""
        uplink = self._registered.get(number)
        return uplink if uplink is not None and uplink.source_id == source_id else None

    def forget(self, source_id: str) -> None:
        """The capsule was unloaded, or its run loop starts anew: its bridges are gone. From any thread."""
        with self._scheduler.lock:
            self._registered = {key: kept for key, kept in self._registered.items() if kept.source_id != source_id}

    def offer(self, message: InboundMessage) -> bool | None:
        """Let a message wait for the reader; False when there is no room, None when there is no reader. From any thread."""
        size = len(message.content) * 4
        with self._scheduler.lock:
            reader = self._reader
            if reader is None:
                return None
            if len(self._waiting) >= QUEUE or self._bytes + size > QUEUE_BYTES:
                return False
            self._waiting.append(message)
            self._bytes += size
        self._scheduler.call_soon(reader.wake)
        self._scheduler.wake_loop()
        return True

    def inbound(self) -> Inbound:
        """What comes in, from now on: `async with` it, then `async for` over it. There is one reader at a time."""
        return Inbound(self, self._scheduler)

    def take(self) -> InboundMessage | None:
        """The oldest message that waits."""
        with self._scheduler.lock:
            if not self._waiting:
                return None
            message = self._waiting.popleft()
            self._bytes -= len(message.content) * 4
            return message

    def attach(self, reader: Inbound | None) -> None:
        """Give the queue to a reader, or to none, which empties it.

        Raises:
            RuntimeError: another reader has it.
        """
        with self._scheduler.lock:
            if reader is not None and self._reader is not None:
                raise RuntimeError("somebody reads the bridges' messages already: leave that `async with` first")
            self._reader = reader
            if reader is None:
                self._waiting.clear()
                self._bytes = 0


class Inbound:
    """The messages of all bridges, in order of arrival. A cancelled wait loses nothing; leaving drops what was not taken."""

    def __init__(self, uplinks: Uplinks, scheduler: Scheduler) -> None:
        self._uplinks = uplinks
        self._scheduler = scheduler
        self._arrived = trio.Event()

    def wake(self) -> None:
        """Look for a message. On the trio thread."""
        self._arrived.set()

    async def __aenter__(self) -> Inbound:
        self._uplinks.attach(self)
        self._scheduler.call_at_end(self.wake)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.not_call_at_end(self.wake)
        self._uplinks.attach(None)

    def __aiter__(self) -> Inbound:
        return self

    async def __anext__(self) -> InboundMessage:
        """The next message. Raises HostClosed when the host has stopped."""
        await trio.lowlevel.checkpoint()
        while True:
            self._arrived = trio.Event()
            message = self._uplinks.take()
            if message is not None:
                return message
            if self._scheduler.closed:
                raise HostClosed("this host has stopped: no message will follow")
            await self._arrived.wait()


class Uplink(Interface):
    """The host functions of astrid:uplink.

    Args:
        uplinks: the bridges of the host.

    Each raises HostError `capability-denied` without `[capabilities] uplink = true`.
    """

    wit = ("astrid:uplink/host@1.0.0",)

    def __init__(self, uplinks: Uplinks) -> None:
        self._uplinks = uplinks

    @hostcall(
        "uplink-register",
        audited=lambda name, platform, _profile: f"{platform}:{name}",
    )
    def register(self, call: Running, name: str, platform: str, profile: str) -> str:
        """Announce a bridge and return its id, a UUID, which only this capsule can use.

        Raises:
            HostError: `invalid-input` for a name or platform that is blank, has more than 64 characters or some that cannot be
                seen, and when both are taken; `invalid-profile` when the capsule's `[[uplink]]` row of that name and platform
                says another; `quota` for more than 32 bridges.
        """
        _need(call.capsule)
        for what, text in (("name", name), ("platform", platform)):
            if not text.strip() or len(text) > NAME_CHARACTERS or first_hidden(text) is not None:
                detail = f"the {what} of a bridge has 1 to {NAME_CHARACTERS} characters that can be seen: {text[:64]!r}"
                raise HostError("invalid-input", detail=detail)
        for row in call.capsule.manifest.uplinks:
            if (row.name, row.platform) == (name, platform) and row.profile not in (None, profile):
                detail = f"[[uplink]] {name!r} says profile = {row.profile!r} and the capsule says {profile!r}"
                raise HostError("invalid-profile", detail=detail)
        return self._uplinks.register(call.capsule.source_id, name, platform, profile).id

    @hostcall(
        "uplink-send",
        takes=2 * CONTENT_BYTES,
        audited=lambda uplink_id, platform_user_id, _content: (
            f"{uplink_id[:ID_CHARACTERS]}:{platform_user_id[:ID_CHARACTERS]}"
        ),
    )
    def send(self, call: Running, uplink_id: str, platform_user_id: str, content: str) -> bool:
        """Hand a message of a platform's user to the host; False when 128 messages, or 8 MiB, wait already.

        Raises:
            HostError: `invalid-input` for an id of more than 64 characters, an uplink's id that is no UUID, a user's that is
                empty, and content of more than 1 MiB; `unknown-uplink` for a bridge that this capsule has not registered;
                `quota` when nobody reads what comes in.
        """
        _need(call.capsule)
        number = _uuid(uplink_id)
        if not 0 < len(platform_user_id) <= ID_CHARACTERS:
            detail = f"a user's id on a platform has 1 to {ID_CHARACTERS} characters: {platform_user_id[:64]!r}"
            raise HostError("invalid-input", detail=detail)
        if len(content) > CONTENT_BYTES or len(content.encode()) > CONTENT_BYTES:
            raise HostError("invalid-input", detail=f"a message has at most {CONTENT_BYTES} bytes")
        uplink = self._uplinks.find(call.capsule.source_id, number)
        if uplink is None:
            raise HostError("unknown-uplink", detail=f"{call.capsule.id} has registered no bridge {number}")
        message = InboundMessage(uplink, call.capsule.id, call.principal, platform_user_id, content, time.time())
        accepted = self._uplinks.offer(message)
        if accepted is None:
            raise HostError("quota", detail="nobody reads what bridges send: the embedding program has to")
        return accepted


def _need(capsule: Caller) -> None:
    if not capsule.manifest.capabilities.uplink:
        name = capsule.manifest.package.name
        detail = f"capsule {name!r} may be no bridge: write in its Capsule.toml: [capabilities] uplink = true"
        raise HostError("capability-denied", detail=detail)


def _uuid(text: str) -> str:
    """An id in its one spelling."""
    if len(text) <= ID_CHARACTERS:
        with contextlib.suppress(ValueError):
            return str(uuid.UUID(text))
    detail = f"the id of a bridge is the UUID that uplink-register returned: {text[:ID_CHARACTERS]!r}"
    raise HostError("invalid-input", detail=detail)
