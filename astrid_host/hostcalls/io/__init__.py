"""astrid:io: pollables that really become ready, and streams of bytes.

A guest that blocks is suspended; it costs nothing until what it waits for has come or its call is ended. What other packages
give guests to wait for is a `Pollable`, what they give them to read or write an `InputStream` or an `OutputStream`.
"""

from astrid_host.hostcalls.io.background import Background
from astrid_host.hostcalls.io.poll import POLLABLES, WAIT_S, Poll, Pollable, Readiness, Signal, patience
from astrid_host.hostcalls.io.streams import (
    Errors,
    InputStream,
    OutputStream,
    StreamError,
    Streams,
    stream_closed,
    stream_failed,
)

__all__ = [
    "POLLABLES",
    "WAIT_S",
    "Background",
    "Errors",
    "InputStream",
    "OutputStream",
    "Poll",
    "Pollable",
    "Readiness",
    "Signal",
    "StreamError",
    "Streams",
    "patience",
    "stream_closed",
    "stream_failed",
]
