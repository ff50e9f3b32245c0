"""The server's end of the control socket: lets peers in, as many as it has room for, whatever they do.

Nothing that peers do ends the host: where the process or the machine has no room for one more connection, the next one waits.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from pathlib import Path

import trio

from astrid_host.control.frames import Share
from astrid_host.control.greeting import About
from astrid_host.control.limiter import PEERS, ConnectionLimiter
from astrid_host.control.peer import Peer
from astrid_host.control.policies import CallPolicies
from astrid_host.host import Host

log = logging.getLogger(__name__)

PAUSE_S = 0.1
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EPERM, errno.EPROTO)


async def serve(
    host: Host,
    path: Path,
    policies: CallPolicies,
    about: About | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen until cancelled.

    Args:
        host: whom peers talk to; made with these policies.
        path: where; nothing is there, and its folder is this user's alone.
        policies: answer what calls of peers ask for.
        about: what peers are told of it.
        task_status: told when peers may connect.

    Raises:
        OSError: the socket cannot be made.
    """
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        await listening.bind(str(path))
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)  # the folder keeps others out until then
        listening.listen(PEERS)
        limiter, share = ConnectionLimiter(), Share()
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                sock = await _accepted(listening, limiter)
                nursery.start_soon(Peer(host, policies, about or About(), limiter, share).run, sock)


async def _accepted(listening: trio.socket.SocketType, limiter: ConnectionLimiter) -> trio.socket.SocketType:
    """The next connection; what keeps it out for now is waited for."""
    told = False
    while True:
        try:
            sock, _ = await listening.accept()
            return sock
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            if not told and error.errno != errno.ECONNABORTED:
                log.warning("the control socket lets nobody in for now: %s", error.strerror)
            told = True
            limiter.ask_one_to_leave()
            await trio.sleep(PAUSE_S)
