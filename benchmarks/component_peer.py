"""`wasmtime.component`: the public component API of wasmtime's Python package, on the same core module in a component."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import wasmtime
from wasmtime import component

from benchmarks.calls import TOPIC, Published
from benchmarks.relay import COMPONENT, HOOK, IPC


class ComponentPeer:
    """One instance in one store; without epochs, which the other two pay for."""

    def __init__(self) -> None:
        self.published = published = Published()

        def publish(_store: Any, topic: str, payload: str) -> None:
            published.take(topic, payload)

        engine = wasmtime.Engine()
        linker = component.Linker(engine)
        with linker.root() as root, root.add_instance(IPC) as host:
            host.add_func("publish", publish)
        self._store = wasmtime.Store(engine)
        instance = linker.instantiate(self._store, component.Component(engine, wasmtime.wat2wasm(COMPONENT)))
        hook = instance.get_func(self._store, HOOK)
        if hook is None:
            raise RuntimeError(f"the component exports no {HOOK}")
        self._hook = hook

    def call(self, payload: bytes) -> str:
        return str(self._hook(self._store, TOPIC, payload).action)

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()
