"""Extism's Python SDK in the configuration that was fastest: raw bytes, explicit signature, one copy, one plugin.

Tried on the same guest: a host function with one pointer, whose length the host asks for; with a pointer and a length for
topic and payload each; with a result; with types inferred from annotations. This one has no result, so unlike the others it
could not refuse a publish: that favours Extism by about 2 us.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import extism
import wasmtime

from benchmarks.calls import TOPIC, Published
from benchmarks.relay import EXTISM


class ExtismPeer:
    """One plugin. Its input is the topic's length as one byte, the topic, the payload."""

    def __init__(self) -> None:
        self.published = published = Published()

        def publish(plugin: Any, params: list[Any], _results: list[Any], *_data: Any) -> None:
            block = plugin.memory(extism.Memory(params[0].value, params[1].value))[:]
            end = 1 + block[0]
            published.take(str(block[1:end], "utf-8"), str(block[end:], "utf-8"))

        kind = extism.ValType.I64
        host_function = extism.host_fn(name="publish", signature=([kind, kind], []))(publish)
        self._plugin = extism.Plugin(bytes(wasmtime.wat2wasm(EXTISM)), functions=[host_function])
        topic = TOPIC.encode()
        self._head = bytes((len(topic),)) + topic

    def call(self, payload: bytes) -> str:
        return str(self._plugin.call("hook", self._head + payload, _text))

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()


def _text(answer: Any) -> str:
    return str(answer, "utf-8")
