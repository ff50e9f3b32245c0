"""Sockets that never block, and waiting for them.

Reads and writes happen at once, on whatever thread runs the guest. Waits are tasks of the trio loop: one for each direction of
a socket, however many wait for it, and none when nobody does. A socket that is closed wakes who waits for it; it is closed on
the loop, because trio has to let go of it first.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.io import Background
from astrid_host.hostcalls.net.errors import socket_error

Given = TypeVar("Given")


class Watch:
    """One direction of a socket, waited for on behalf of whoever asks. All but `ready` is for the loop's thread."""

    __slots__ = ("_background", "_events", "_scope", "_sock", "_wait", "_waiting")

    def __init__(
        self,
        sock: socket.socket,
        events: int,
        wait: Callable[[socket.socket], Awaitable[None]],
        background: Background,
    ) -> None:
        self._sock = sock
        self._events = events
        self._wait = wait
        self._background = background
        self._waiting: dict[object, Callable[[], None]] = {}
        self._scope: trio.CancelScope | None = None  # of the task that waits

    def ready(self) -> bool:
        """Whether it is, now. From any thread."""
        poll = select.poll()
        poll.register(self._sock, self._events)
        return bool(poll.poll(0))

    def add(self, key: object, told: Callable[[], None]) -> None:
        """Call `told` once it is ready, or the socket is closed."""
        self._waiting[key] = told
        if self._scope is None:
            self._scope = scope = trio.CancelScope()
            self._background.start(lambda: self._run(scope))

    def remove(self, key: object) -> None:
        """Do not, after all."""
        if self._waiting.pop(key, None) is not None and not self._waiting and self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _run(self, scope: trio.CancelScope) -> None:
        if scope.cancel_called:  # it may not even begin: the next task waits for the same socket
            return
        with contextlib.suppress(trio.ClosedResourceError), scope:
            if self._sock.fileno() >= 0:
                await self._wait(self._sock)
        if self._scope is scope:
            self._scope = None
            waiting, self._waiting = self._waiting, {}
            for told in waiting.values():
                told()

    async def wait(self) -> None:
        """Return when it is ready, or the socket is closed. Cancelled, nothing is left behind."""
        event = trio.Event()
        self.add(event, event.set)
        try:
            await event.wait()
        finally:
            self.remove(event)


class Endpoint:
    """A socket that a guest holds by a handle.

    Args:
        sock: it is the endpoint's from now on.
        target: what it is called in the audit.
        background: where its waits run.

    Dropped without being closed, as by a call that ended before its guest learned of it, it closes itself.
    """

    __slots__ = ("__weakref__", "background", "closed", "readable", "sock", "target", "writable")

    def __init__(self, sock: socket.socket, target: str, background: Background) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.target = target
        self.background = background
        self.closed = False
        self.readable = Watch(sock, select.POLLIN, trio.lowlevel.wait_readable, background)
        self.writable = Watch(sock, select.POLLOUT, trio.lowlevel.wait_writable, background)

    def ready(self) -> bool:
        """Whether something is to be read, or the end. From any thread."""
        return self.closed or self.readable.ready()

    def when_ready(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, with the bus's lock held, once `ready`; what is returned ends that."""
        return _tell_when(self.readable, wake, self.background)

    def close(self) -> None:
        """Close it: from any thread, soon, and once. Who waits for it is woken."""
        if not self.closed:
            self.closed = True
            self.background.tell(lambda sock=self.sock: _shut(sock))  # type: ignore[misc]

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()

    def check_open(self) -> None:
        """
        Raises:
            HostError: `closed`.
        """
        if self.closed:
            raise HostError("closed", detail=f"{self.target} is closed")

    async def attempt(
        self, once: Callable[[], Given | None], watch: Watch, seconds: float, case: str = "timeout"
    ) -> Given:
        """What `once` gives, tried anew each time the socket is ready.

        Args:
            once: returns None as long as the socket is not ready for it.
            watch: the direction to wait for.
            seconds: how long; at least one attempt is made.
            case: of the error when that is over.

        Raises:
            HostError: `case`; `closed` when it is closed meanwhile; what `once` raises, a `OSError` as its typed error.
        """
        with trio.move_on_after(seconds):
            while True:
                self.check_open()
                try:
                    given = once()
                except (BlockingIOError, InterruptedError):
                    given = None
                except OSError as error:
                    raise socket_error(error) from error
                if given is not None:
                    return given
                await watch.wait()
        raise HostError(case, detail=f"{self.target}: nothing happened for {seconds:g} s")


def _tell_when(watch: Watch, wake: Callable[[], None], background: Background) -> Callable[[], None]:
    key = object()
    scheduler = background.scheduler

    def told() -> None:
        with scheduler.lock:
            wake()
        scheduler.wake_loop()

    background.tell(lambda: watch.add(key, told))
    return lambda: background.tell(lambda: watch.remove(key))


def _shut(sock: socket.socket) -> None:
    if trio.lowlevel.in_trio_run():
        trio.lowlevel.notify_closing(sock)
    sock.close()
