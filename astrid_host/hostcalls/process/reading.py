"""What is to be read of a child: its output, and how it is. From any thread, but for `read_logs`."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.process.shapes import LogChunk, LogCursor, ProcessInfo, ReadLogs

if TYPE_CHECKING:
    from astrid_host.hostcalls.process.child import Child

CHUNK_BYTES = 4 << 20
DECODED_AT_ONCE = 256 << 10
STREAMS = ("stdout", "stderr")
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_PLACE = re.compile("[0-9]{1,18}")


async def read_logs(child: Child) -> ReadLogs:
    """What a child wrote since this was asked last. On the trio thread; cancelled, what was taken is lost."""
    with child.lock:
        child.quiet = True
        taken = [ring.take() for ring in child.rings]
        if not all(ring.ended for ring in child.rings):
            child.log_signal.clear()
        ended = child.exit
    if sum(len(part.data) for part in taken) > DECODED_AT_ONCE:
        stdout, stderr = await trio.to_thread.run_sync(lambda: [part.text for part in taken])
    else:
        stdout, stderr = [part.text for part in taken]
    return ReadLogs(stdout, stderr, ended is None, ended)


def read_since(child: Child, stream: str, token: str | None, most: int) -> LogChunk:
    """What one stream wrote since a cursor.

    Raises:
        HostError: `invalid-input` for a cursor that no read returned.
    """
    ring = child.rings[STREAMS.index(stream)]
    with child.lock:
        if token is not None and (_PLACE.fullmatch(token) is None or int(token) > ring.end):
            raise HostError("invalid-input", detail=f"{token[:64]!r} is no cursor of this stream")
        child.quiet = True
        place = ring.dropped if token is None else int(token)
        data, after, lost = ring.since(place, min(most, CHUNK_BYTES))
        ended = child.exit is not None and ring.ended and after == ring.end
        return LogChunk(data, LogCursor(str(after)), ring.dropped if token is None else lost, ended)


def info_of(child: Child) -> ProcessInfo:
    """How a child is."""
    now = time.monotonic()
    with child.lock:
        cpu_ms, peak = child.cpu_ms, child.peak_bytes
        if child.os_pid is not None:
            cpu_ms, peak = _use(child.os_pid)
        phase = "exited" if child.exit is not None else "running" if child.started.is_set() else "starting"
        return ProcessInfo(
            id=child.id,
            label=child.command.label,
            command=child.command.text,
            os_pid=child.os_pid,
            phase=phase,
            exit=child.exit,
            age_ms=int((now - child.born) * 1000),
            idle_ms=int(max(now - child.touched, 0) * 1000),
            buffered_bytes=sum(ring.new_bytes for ring in child.rings),
            bytes_dropped=sum(ring.dropped for ring in child.rings),
            stdin_open=child.input.open,
            cpu_ms=cpu_ms,
            mem_bytes_peak=peak,
        )


def _use(pid: int) -> tuple[int | None, int | None]:
    """What a process that runs has used: milliseconds of computing, and bytes of memory at most."""
    cpu_ms = peak = None
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()
        cpu_ms = int((int(fields[11]) + int(fields[12])) * _TICK_MS)
        with open(f"/proc/{pid}/status", "rb", 0) as file:
            found = re.search(rb"VmHWM:\s*(\d+) kB", file.read(4096))
        peak = int(found[1]) * 1024 if found else None
    except OSError:  # it has ended meanwhile, or this system tells it elsewhere
        return cpu_ms, peak
    return cpu_ms, peak
