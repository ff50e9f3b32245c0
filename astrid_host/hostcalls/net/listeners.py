"""Listeners, as their handles hold them."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
from collections import deque
from collections.abc import Callable

import trio

from astrid_host.hostcalls.addresses import shown
from astrid_host.hostcalls.io import Background, Signal
from astrid_host.hostcalls.net.connection import Connection
from astrid_host.hostcalls.net.handshake import Doorway, shake
from astrid_host.hostcalls.net.sockets import Endpoint
from astrid_host.sockets.handshake import HandshakeFailed

log = logging.getLogger(__name__)

BACKLOG = 16
AT_THE_DOOR = 8  # peers that shake hands, or have done so and wait to be accepted
BREATHER_S = 0.1  # after an accept that failed for want of something


class TcpListener(Endpoint):
    """What the handle of a `tcp-listener` holds."""

    __slots__ = ()

    def take(self) -> Connection | None:
        """Accept a connection, if one waits.

        Raises:
            OSError: the system gives none.
        """
        try:
            sock, peer = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        return Connection(sock, shown(*peer[:2]), self.background)


class UnixListener(Endpoint):
    """What the handle of a `unix-listener` holds: it shakes hands by itself, so that a slow peer keeps nobody waiting.

    Args:
        sock: bound and listening.
        path: where; removed when it is closed.
        background: where it shakes hands.
        doorway: whom to let in.
    """

    __slots__ = ("_arrived", "_at_the_door", "_doorway", "_free", "_path", "_scope", "_serves", "_shaken")

    def __init__(self, sock: socket.socket, path: str, background: Background, doorway: Doorway) -> None:
        super().__init__(sock, "unix", background)
        self._path = path
        self._doorway = doorway
        self._scope = trio.CancelScope()
        self._shaken: deque[Connection] = deque()
        self._arrived = Signal(background.scheduler)
        self._at_the_door = 0
        self._free = trio.Event()
        self._serves = False

    def serve(self) -> None:
        """Begin to let peers in, unless it has begun. The guest has the handle by now, so somebody will close it."""
        if not self._serves:
            self._serves = True
            self.background.start(self._serve)

    def ready(self) -> bool:
        return self.closed or bool(self._shaken)

    def when_ready(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._arrived.when_ready(wake)

    def take(self) -> Connection | None:
        """The next peer that shook hands, if there is one. On the loop's thread."""
        if not self._shaken:
            return None
        connection = self._shaken.popleft()
        if not self._shaken:
            self._arrived.clear()
        self._left()
        return connection

    async def arrival(self) -> None:
        """Return when there is one, or when it is closed."""
        await self._arrived.wait()

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            super().close()
            self.background.tell(self._scope.cancel)
            while self._shaken:
                self._shaken.popleft().close()
            self._arrived.set()

    def _left(self) -> None:
        self._at_the_door -= 1
        self._free.set()
        self._free = trio.Event()

    async def _serve(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                while not self.closed:
                    if self._at_the_door >= AT_THE_DOOR:
                        await self._free.wait()
                        continue
                    await self.readable.wait()
                    try:
                        sock, _ = self.sock.accept()
                    except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                        continue
                    except OSError as error:
                        if not self.closed:
                            log.warning("a capsule's Unix socket accepts nobody: %s", error)
                            await trio.sleep(BREATHER_S)
                        continue
                    self._at_the_door += 1
                    nursery.start_soon(self._greet, sock)

    async def _greet(self, sock: socket.socket) -> None:
        principal, let_in = None, False
        sock.setblocking(False)
        try:
            principal = await shake(sock, self._doorway)
            let_in = True
        except (HandshakeFailed, OSError) as error:
            log.warning("a peer of a capsule's Unix socket was not let in: %s", error)
        except Exception:
            # Anybody may come to the door: whatever one peer brings about, the others are still let in.
            log.exception("a peer of a capsule's Unix socket was not let in, because of a fault of the host")
        finally:
            if not let_in or self.closed:
                sock.close()
                self._left()
        if let_in and not self.closed:
            self._shaken.append(Connection(sock, "unix", self.background, principal))
            self._arrived.set()


def bind_unix(path: str) -> socket.socket:
    """A listening Unix socket at a path, which only its owner may connect to; what an ended host left there goes.

    Raises:
        OSError: `EADDRINUSE` when somebody listens there; what the system says.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        if _is_stale(path):
            os.unlink(path)
        sock.bind(path)
        os.chmod(path, 0o600)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_stale(path: str) -> bool:
    """Whether there is a socket that nobody listens on."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def bind_tcp(address: str, port: int) -> socket.socket:
    """A listening TCP socket.

    Args:
        address: numeric.
        port: 0 for a free one.

    Raises:
        OSError: what the system says.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
