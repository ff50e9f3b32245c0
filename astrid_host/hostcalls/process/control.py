"""What a host and a supervisor tell each other. A child may have got hold of its supervisor, so what that says is checked."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator
from typing import NamedTuple, TypeAlias

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.process.shapes import ExitInfo

LINE_BYTES = 256
_LINE = re.compile(
    rb"started (?P<pid>\d{1,9})|failed (?P<errno>\d{1,4}) (?P<what>[a-z]+)"
    rb"|exited (?P<code>\d{1,3}|-) (?P<signal>\d{1,3}|-) (?P<cpu>\d{1,15}) (?P<peak>\d{1,18})"
)


class Started(NamedTuple):
    """The command runs. `pid` is its number where the supervisor is; `child` a descriptor of it, where there are such."""

    pid: int
    child: int | None


class Failed(NamedTuple):
    """The command could not be run: an errno or 0, and what failed: `command`, `cwd` or `file`."""

    number: int
    what: str

    def error(self, command: str) -> HostError:
        """The error that a guest gets."""
        text = os.strerror(self.number) if self.number else "it was replaced meanwhile"
        if self.what == "cwd":
            return HostError("invalid-input", detail=f"cwd: {text}")
        if self.what == "file":
            return HostError("unknown", f"a file could not be put in place: {text}", detail=text)
        if self.number == errno.E2BIG:
            return HostError("too-large", detail=f"{text}: the system takes fewer arguments and variables")
        return HostError("unknown", f"{command[:256]} cannot be run: {text}", detail=f"{command!r}: {text}")


class Exited(NamedTuple):
    """The command has ended, and used so much."""

    how: ExitInfo
    cpu_ms: int
    peak_bytes: int


Word: TypeAlias = Started | Failed | Exited


async def words(control: socket.socket, request: bytes) -> AsyncGenerator[Word, None]:
    """Send a supervisor its request, then give what it says, until it is gone or says what no supervisor would.

    That is one `Started` and one `Exited`, or one `Failed`. Whoever gets a `Started` closes its descriptor; all others that
    arrive are closed at once. Cancelled, nothing is left behind.
    """
    here = trio.socket.from_stdlib_socket(control)
    await _send(here, request)
    del request
    descriptors: list[int] = []
    lines = b""
    expected: tuple[type[Word], ...] = (Started, Failed)
    try:
        while data := await _receive(here, descriptors, 1 if Started in expected else 0):
            *whole, lines = (lines + data).split(b"\n")
            for line in whole:
                word = _word(line)
                if not isinstance(word, expected):
                    return
                expected = ()
                if isinstance(word, Started):
                    expected = (Exited,)
                    word = word._replace(child=descriptors.pop() if descriptors else None)
                yield word
            if len(lines) > LINE_BYTES:
                return
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def _send(here: trio.socket.SocketType, request: bytes) -> None:
    left = memoryview(request)
    with contextlib.suppress(OSError):  # it has ended, as is heard next
        while left:
            left = left[await here.send(left) :]


async def _receive(here: trio.socket.SocketType, descriptors: list[int], most: int) -> bytes:
    """What came, and the descriptors that came with it; empty when it is gone. Those above `most` are closed."""
    try:
        data, ancillary, _, _ = await here.recvmsg(4096, socket.CMSG_SPACE(4))
    except OSError:
        return b""
    for _, kind, packed in ancillary:
        if kind == socket.SCM_RIGHTS:
            for at in range(0, len(packed) - 3, 4):
                descriptor = int.from_bytes(packed[at : at + 4], sys.byteorder)
                if len(descriptors) < most:
                    os.set_inheritable(descriptor, False)
                    descriptors.append(descriptor)
                else:
                    os.close(descriptor)
    return data


def _word(line: bytes) -> Word | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    if found["pid"]:
        return Started(int(found["pid"]), None)
    if found["errno"]:
        return Failed(int(found["errno"]), found["what"].decode())
    code, signal = (None if found[name] == b"-" else int(found[name]) for name in ("code", "signal"))
    return Exited(ExitInfo(code, signal), int(found["cpu"]), int(found["peak"]))
