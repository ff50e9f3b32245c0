"""The host functions of astrid:net and astrid:io on a loop of their own, called as a guest would, and peers on loopback."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import trio
from named_functions import NamedFunctions

from astrid_host.bus import Bus
from astrid_host.engine import Engine
from astrid_host.errors import HostError
from astrid_host.hostcalls.addresses import Airlock, Resolve
from astrid_host.hostcalls.io import Background, Errors, Poll, Streams
from astrid_host.hostcalls.net import Doorway, interfaces
from astrid_host.manifest import Capabilities, Manifest, Package
from astrid_host.scheduler import Scheduler

MIB = 1 << 20


class Held:
    """The handles of an instance, as far as host functions count them."""

    def __init__(self) -> None:
        self.reps: list[Any] = []

    def count(self, kind: type[Any]) -> int:
        return sum(1 for _ in self.of(kind))

    def of(self, kind: type) -> Iterator[Any]:
        held: list[Any] = [rep for rep in self.reps if isinstance(rep, kind)]
        return (rep for rep in held if not rep.closed)


def call(
    connect: Sequence[str] = ("127.0.0.1:*", "localhost:*", "[::1]:*"),
    bind: Sequence[str] = ("127.0.0.1:*", "localhost:*", "0.0.0.0:*", "unix:socket"),
    follows: bool = False,
) -> Any:
    """The running call of a capsule with such rows of `net_connect` and `net_bind`."""
    capabilities = Capabilities(net_connect=tuple(connect), net_bind=tuple(bind))
    manifest = Manifest(Package("sockets", "1.0.0"), capabilities=capabilities)
    capsule = SimpleNamespace(id="sockets", storage_id="sockets", manifest=manifest)
    instance = SimpleNamespace(handles=Held())
    return SimpleNamespace(principal="alice", capsule=capsule, message=None, follows=follows, instance=instance)


class Functions(NamedFunctions):
    """Calls host functions on behalf of one guest that holds what they return."""

    def __init__(self, scheduler: Scheduler, background: Background, made: Sequence[Any], caller: Any) -> None:
        super().__init__(made, scheduler, caller)
        self.background = background

    async def __call__(self, name: str, *arguments: Any) -> Any:
        value = await super().__call__(name, *arguments)
        if hasattr(value, "closed"):
            self.call.instance.handles.reps.append(value)
        return value

    def drop_all(self) -> None:
        for rep in self.call.instance.handles.reps:
            rep.close()


@functools.cache
def engine() -> Engine:
    return Engine(None)


@asynccontextmanager
async def functions(
    *allow: str, caller: Any = None, resolve: Resolve | None = None, doorway: Doorway | None = None
) -> AsyncIterator[Functions]:
    """The functions, with an airlock that admits `allow` besides public addresses."""
    bus = Bus()
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler(engine(), bus.lock, 1)
        background = Background(scheduler, nursery)
        made = (*interfaces(background, Airlock(allow, resolve), doorway), Poll(bus, scheduler), Streams(), Errors())
        found = Functions(scheduler, background, made, caller or call())
        try:
            yield found
        finally:
            found.drop_all()
            await scheduler.close()
            nursery.cancel_scope.cancel()


def names(table: Mapping[str, Sequence[str]]) -> Resolve:
    """A resolver that knows these names only."""

    async def resolve(name: str, port: int) -> Sequence[str]:
        if name not in table:
            raise OSError(f"no such name: {name}")
        return table[name]

    return resolve


@contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[tuple[socket.socket, int]]:
    """A server's socket, and its port."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        server.listen(16)
        yield server, server.getsockname()[1]


@asynccontextmanager
async def connected(caller: Any = None) -> AsyncIterator[tuple[Functions, Any, trio.SocketStream]]:
    """The functions, a connection that the guest made, and its peer."""
    with listening() as (server, port):
        async with functions(f"127.0.0.1:{port}", caller=caller) as net:
            stream = await net("connect-tcp", "127.0.0.1", port)
            peer = server.accept()[0]
            peer.setblocking(False)
            async with trio.SocketStream(trio.socket.from_stdlib_socket(peer)) as other:
                yield net, stream, other


async def fill(net: Functions, stream: Any) -> int:
    """Write until the peer, who reads nothing, takes no more; how many bytes it took."""
    await net("[method]tcp-stream.set-write-timeout", stream, 20)
    sent = 0
    try:
        while sent < 100 * MIB:
            sent += await net("[method]tcp-stream.write-bytes", stream, bytes(11 * MIB))
    except HostError as error:
        if error.case != "would-block":
            raise
    await net("[method]tcp-stream.set-write-timeout", stream, None)
    return sent


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def reset(peer: trio.SocketStream) -> None:
    """Break a connection off, as a peer that crashes does."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


def open_sockets() -> int:
    """How many sockets this process holds."""
    count = 0
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the one of this listing is closed by now
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return count


async def until(true: Callable[[], bool], seconds: float = 5) -> None:
    """Let the loop run until something is true."""
    with trio.fail_after(seconds):
        while not true():
            await trio.sleep(0.001)
