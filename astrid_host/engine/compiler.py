"""The compiler: a program of its own that compiles modules for a host, one after the other, within limits of memory.

Compiling is the one thing that a file makes the host do without a bound of its own: a few megabytes can take minutes and
gigabytes. Here it can be ended at any time, and takes nobody down with it. The program is niced, has nothing of the host's
environment, holds no descriptor but its three, and ends with the host, however that ends: when its standard input does.

From the host, for each module: a line of JSON, `{"bytes", "path"}`, and so many bytes, a core module. To the host: a line of
JSON, `{"resident"}` in bytes when the compiled form lies at `path`; else `{"refused"}`, `{"unkept"}` or `{"memory"}`, and why.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

IDLE_S = 10.0
NICENESS = 5
OUTPUT_BYTES = 2 << 30
DESCRIPTORS = 64


def main(memory_bytes: int) -> None:
    """Compile what comes on standard input until nothing comes for a while.

    Args:
        memory_bytes: that may be taken.
    """
    _limit(memory_bytes)
    jobs: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, jobs), daemon=True).start()
    from astrid_host.engine.cache import ModuleCache
    from astrid_host.engine.engine import SETTINGS, configured

    engine, cache = configured(), ModuleCache(None, SETTINGS)
    while True:
        try:
            request, wasm = jobs.get(timeout=IDLE_S)
        except queue.Empty:
            os._exit(0)
        _answer(_contained(partial(_compile, engine, cache, wasm, Path(request["path"]))))
        del wasm


def _limit(memory_bytes: int) -> None:
    os.nice(NICENESS)
    # On Linux a process's data are all that it has for itself; elsewhere its addresses come nearest to that.
    data = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for limit, most in (
        (data, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
    ):
        _soft, hard = resource.getrlimit(limit)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))


def _read(stream: BinaryIO, jobs: queue.SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    """Take what the host asks for. When the host is gone, so is this process, in the middle of what it does."""
    try:
        while line := stream.readline():
            request = json.loads(line)
            wasm = stream.read(request["bytes"])
            if len(wasm) < request["bytes"]:
                break
            jobs.put((request, wasm))
    finally:
        os._exit(1)


def _contained(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except MemoryError:
        return {"memory": "the compiler"}
    except OSError as error:
        return {"unkept": str(error)}


def _compile(engine: Any, cache: Any, wasm: bytes, path: Path) -> dict[str, Any]:
    import wasmtime

    from astrid_host.abi import core_module
    from astrid_host.errors import ModuleRefused

    try:
        code = bytes(wasmtime.Module(engine, wasm).serialize())
        cache.write(path, code, core_module(wasm))
    except (wasmtime.WasmtimeError, ModuleRefused) as error:
        return {"refused": str(error)[:4096]}
    return {"resident": _resident()}


def _resident() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
