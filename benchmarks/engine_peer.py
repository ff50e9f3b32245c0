"""Our engine, as the host uses it: an instance from the pool, an activation of its own for each call, epochs that pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from astrid_host.bundled import wit_folder
from astrid_host.capsules.loading import EXPORTS
from astrid_host.engine import TICK_S, Activation, Engine, Import, Instances, Linker, Pool, wat
from astrid_host.wit import Packages
from benchmarks.calls import TOPIC, Published
from benchmarks.relay import CORE, HOOK, IPC

PRINCIPAL = "bench"
MEMORY_BYTES = 64 << 20


class _Imports:
    """The one host function, with the signature that the host's own WIT declares."""

    def __init__(self, published: Published) -> None:
        interface = Packages(wit_folder()).interface(IPC)
        if interface is None:
            raise RuntimeError(f"there is no {IPC} in {wit_folder()}")

        def publish(_call: Activation, topic: str, payload: str) -> None:
            published.take(topic, payload)

        self._publish = Import(interface.functions["publish"], publish, waits=False)

    def find(self, module: str, name: str) -> Import | None:
        return self._publish if (module, name) == (IPC, "publish") else None

    def known(self) -> Iterable[tuple[str, str]]:
        return [(IPC, "publish")]


class EnginePeer:
    """One module in a pool; every call leases an instance and gives it back."""

    def __init__(self) -> None:
        self.published = Published()
        self._engine = Engine(None)
        self._linker = Linker(self._engine.wasmtime, _Imports(self.published))
        self._linked = self._linker.prelink(self._engine.module("relay", wat(CORE)), {HOOK: EXPORTS[HOOK]})
        self._pool = Pool(self._linked, MEMORY_BYTES, Instances())
        self._hook = self._linked.entries[HOOK]

    def __enter__(self) -> EnginePeer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.close()
        self._linked.close()

    def call(self, payload: bytes) -> str:
        activation = Activation(self._hook, (TOPIC, payload))
        activation.instance = instance = self._pool.lease(PRINCIPAL)
        while not activation.advance():
            pass
        self._pool.give_back(instance, 0.0)
        result: Any = activation.result
        return str(result.action)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Let the epoch pass as the host's clock does: a call on which a tick falls yields and goes on."""
        over = threading.Event()

        def tick() -> None:
            while not over.is_set():
                time.sleep(TICK_S)
                self._engine.tick()

        clock = threading.Thread(target=tick, name="bench clock")
        clock.start()
        try:
            yield
        finally:
            over.set()
            clock.join()
