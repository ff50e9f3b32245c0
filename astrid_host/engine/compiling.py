"""Compiling in processes of their own, as many at once as there are cores, each with limits of memory and time.

A process is started for the first module that is not in the cache, and compiles the next ones too; one that has nothing to do
for ten seconds ends by itself, one that grew large is ended. They are of the whole program, so several hosts in it share them.
Their output is read only from the folder that was named to them, and nothing but a module's own bytes is given to them.

A module that takes more than its limits, or that the compiler does not survive, is a `ModuleRefused` that names size, limit and
the operator's key. `Compilation.end` ends the process at once, from any thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from astrid_host.engine.bounds import Bounds
from astrid_host.errors import ModuleRefused

LARGE_BYTES = 512 << 20  # a process that took so much is not kept
START_S = 30.0
# The program's own modules, and no others: no site, no environment, no user's folder.
_PROGRAM = (
    "import sys; sys.path[:0] = sys.argv[2:]; from astrid_host.engine.compiler import main; main(int(sys.argv[1]))"
)
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class Unkept(Exception):
    """What was compiled could not be written."""


class _Gone(Exception):
    """The process ended by itself before it began."""


class Worker:
    """A process that compiles.

    Args:
        memory_bytes: that it may take.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(memory_bytes), *_import_folders()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={**environment, "MALLOC_ARENA_MAX": "2"},
            start_new_session=True,
        )

    def ask(self, wasm: bytes, path: Path, secs: float) -> dict[str, Any] | None:
        """Have a module compiled; None when it was not done in that time, `_Gone` when the process had ended before it began."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin.fileno(), json.dumps({"bytes": len(wasm), "path": str(path)}).encode() + b"\n")
            _write(process.stdin.fileno(), wasm)
        except OSError as error:
            raise _Gone from error
        line, until = b"", time.monotonic() + secs
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                part = os.read(process.stdout.fileno(), 65536)
                if not part:
                    return self._died()
                line += part
        return dict(json.loads(line))

    def _died(self) -> dict[str, Any]:
        code = self._process.wait()
        if code == 0:
            raise _Gone
        if -code in (signal.SIGABRT, signal.SIGKILL) or code == 1:
            return {"memory": f"the compiler ended by {_named(code)}"}
        return {"refused": f"the compiler failed on it ({_named(code)})"}

    @property
    def is_there(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it in the middle of what it does. From any thread; whoever waits for its answer sees that it died."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """End it, and free what it holds. Nobody waits for its answer any more."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Compilation:
    """One module that is to be compiled.

    Args:
        workers: who do it.
        name: of the capsule, for messages.
        wasm: a core module.
        bounds: the limits.
    """

    def __init__(self, workers: Workers, name: str, wasm: bytes, bounds: Bounds) -> None:
        self._workers = workers
        self._name = name
        self._wasm = wasm
        self._bounds = bounds
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._ended = False

    def run(self, path: Path) -> None:
        """Compile it on this thread's time, waiting while all processes are busy. The result lies at `path` then.

        Raises:
            ModuleRefused: it is no valid module, or takes more than the limits allow; or it was ended.
            Unkept: what was compiled could not be written there.
        """
        answer = self._answer(path)
        if self._ended:
            raise ModuleRefused(f"{self._name} was not compiled: it was given up")
        if answer is None:
            raise ModuleRefused(self._too_much(f"{self._bounds.compile_secs:g} s", "compile_secs"))
        if "memory" in answer:
            most = self._bounds.compile_memory
            raise ModuleRefused(self._too_much(f"{most} bytes of memory", "compile_memory"))
        if "unkept" in answer:
            raise Unkept(answer["unkept"])
        if "refused" in answer:
            raise ModuleRefused(f"{self._name} does not compile: {answer['refused']}")

    def _too_much(self, limit: str, key: str) -> str:
        return (
            f"{self._name}: its module of {len(self._wasm)} bytes takes more than {limit} to compile. Build a smaller one, or, "
            f"where it is meant to be so large, raise {key} in the [host] table of host.toml"
        )

    def _answer(self, path: Path) -> dict[str, Any] | None:
        while True:
            worker = self._workers.take(self._bounds.compile_memory, lambda: self._ended)
            if worker is None:
                return None
            with self._lock:
                self._worker = None if self._ended else worker
            answer: dict[str, Any] | None = None
            try:
                if self._worker is not None:
                    answer = worker.ask(self._wasm, path, self._bounds.compile_secs)
            except _Gone:
                continue
            finally:
                with self._lock:
                    self._worker = None
                keep = answer is not None and 0 <= answer.get("resident", -1) <= LARGE_BYTES
                self._workers.give_back(worker, keep=keep or (answer is not None and "refused" in answer))
            return answer

    def end(self) -> None:
        """Give it up: the process that compiles it is ended, and `run` raises. From any thread, also when it is over."""
        with self._lock:
            self._ended = True
            if self._worker is not None:
                self._worker.kill()
        self._workers.look()


class Workers:
    """The processes of this program that compile. Any thread may use it.

    Args:
        most: how many at once.

    Attributes:
        busy: those that compile now.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy: set[Worker] = set()
        self._idle: list[Worker] = []
        self._changed = threading.Condition()
        self._closed = False
        atexit.register(self.close)

    def take(self, memory_bytes: int, given_up: Any) -> Worker | None:
        """A process with that limit of memory, once fewer than the most are busy; None when `given_up()` is true first."""
        with self._changed:
            while len(self.busy) >= self.most and not given_up() and not self._closed:
                self._changed.wait()
            if given_up() or self._closed:
                return None
            fitting = [worker for worker in self._idle if worker.memory_bytes == memory_bytes and worker.is_there]
            rest = [worker for worker in self._idle if worker not in fitting[:1]]
            gone = [worker for worker in rest if worker not in fitting]
            self._idle = [worker for worker in rest if worker in fitting]
            for worker in gone:
                worker.close()
            try:
                taken = fitting[0] if fitting else Worker(memory_bytes)
            except OSError as error:
                raise ModuleRefused(f"no process can be started to compile it: {error.strerror or error}") from error
            self.busy.add(taken)
            return taken

    def give_back(self, worker: Worker, *, keep: bool) -> None:
        """A process that was taken is free again."""
        with self._changed:
            self.busy.discard(worker)
            if keep and worker.is_there and not self._closed:
                self._idle.append(worker)
            else:
                worker.close()
            self._changed.notify_all()

    def reap(self) -> None:
        """Let go of processes that ended because they had nothing to do, so that the system does not keep their rows."""
        with self._changed:
            gone = [worker for worker in self._idle if not worker.is_there]
            self._idle = [worker for worker in self._idle if worker not in gone]
        for worker in gone:
            worker.close()

    def look(self) -> None:
        """Let those who wait see whether they were given up."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all of them."""
        with self._changed:
            self._closed = True
            for worker in self.busy:
                worker.kill()
            for worker in self._idle:
                worker.close()
            self._idle = []
            self._changed.notify_all()


def _import_folders() -> list[str]:
    """Where this program's modules are, as far as the compiler needs them."""
    import blake3
    import msgspec
    import wasmtime

    import astrid_host

    packages = (astrid_host, wasmtime, blake3, msgspec)
    return list(dict.fromkeys(str(Path(str(package.__file__)).resolve().parent.parent) for package in packages))


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _named(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


WORKERS = Workers(max(1, min(os.cpu_count() or 1, 8)))


def reap_compilers() -> None:
    """Let go of this program's compilers that ended because they had nothing to do. From any thread; it does not wait."""
    WORKERS.reap()
