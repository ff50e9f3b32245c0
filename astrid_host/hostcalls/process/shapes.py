"""The records of astrid:process, as Python values."""

from __future__ import annotations

import msgspec


class ExitInfo(msgspec.Struct, frozen=True, gc=False):
    """`exit-info`: the exit code, or the signal that ended it."""

    exit_code: int | None
    signal: int | None


class ProcessResult(msgspec.Struct, gc=False):
    """`process-result`."""

    stdout: str
    stderr: str
    exit: ExitInfo


class ReadLogs(msgspec.Struct, gc=False):
    """`read-logs-result`."""

    stdout: str
    stderr: str
    running: bool
    exit: ExitInfo | None


class KillResult(msgspec.Struct, gc=False):
    """`kill-result`."""

    killed: bool
    exit: ExitInfo | None
    stdout: str
    stderr: str


class LogCursor(msgspec.Struct, gc=False):
    """`log-cursor`."""

    token: str | None


class LogChunk(msgspec.Struct, gc=False):
    """`log-chunk`."""

    data: bytes
    next: LogCursor
    bytes_dropped: int
    drained_eof: bool


class ProcessInfo(msgspec.Struct, gc=False):
    """`process-info`; times are in milliseconds."""

    id: str
    label: str
    command: str
    os_pid: int | None
    phase: str
    exit: ExitInfo | None
    age_ms: int
    idle_ms: int
    buffered_bytes: int
    bytes_dropped: int
    stdin_open: bool
    cpu_ms: int | None
    mem_bytes_peak: int | None
