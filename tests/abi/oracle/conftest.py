"""The two ways to run one guest: in a component through the engine's component API, and as it is through our canonical ABI."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import wasmtime
import wasmtime.component

from astrid_host.abi import CoreSignature, HandleTable
from astrid_host.errors import HostError

MEMORY = """(core module $memory
    (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 1024))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $top) (i32.sub (local.get 2) (i32.const 1)))
            (i32.sub (i32.const 0) (local.get 2))))
        (global.set $top (i32.add (local.get $at) (local.get 3)))
        (block $enough (loop $more
            (br_if $enough (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
            (drop (memory.grow (i32.const 1))) (br $more)))
        (local.get $at)))"""


def signature(of: CoreSignature) -> str:
    """A core signature as text."""
    params = f"(param {' '.join(of.params)})" if of.params else ""
    return params + (f" (result {' '.join(of.results)})" if of.results else "")


class Carrier:
    """The guest as it is, without a component: what the canonical ABI needs of an instance, on the engine's plain API."""

    def __init__(self, engine: wasmtime.Engine, main: str, host: dict[tuple[str, str], Any]) -> None:
        self.handles = HandleTable()
        self.store = wasmtime.Store(engine)
        self.failure: BaseException | None = None
        linker = wasmtime.Linker(engine)
        memory = linker.instantiate(
            self.store, wasmtime.Module(engine, MEMORY.replace("core module $memory", "module"))
        )
        linker.define_instance(self.store, "memory", memory)
        self._exports = memory.exports(self.store)
        for (module, name), (code, run) in host.items():
            linker.define(self.store, module, name, self._import(code, run))
        with wasmtime.Module(engine, main) as module:
            self.main = linker.instantiate(self.store, module).exports(self.store)

    def __enter__(self) -> Carrier:
        return self

    def __exit__(self, *_why: object) -> None:
        self.store.close()  # memory maps are few, and garbage is collected late

    @property
    def view(self) -> memoryview:
        memory: Any = self._exports["memory"]
        return memoryview(memory.get_buffer_ptr(self.store)).cast("B")

    def realloc(self, align: int, size: int) -> int:
        call: Any = self._exports["cabi_realloc"]
        return int(call(self.store, 0, 0, align, size)) & 0xFFFFFFFF

    def call(self, code: Any, name: str, *values: Any) -> Any:
        export: Any = self.main[name]
        flat = code.lower_params(self, *values)
        try:
            result = export(self.store, *map(_signed, flat, code.signature.params))
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            if self.failure is not None:
                raise self.failure from None
            raise
        return code.lift_result(self, _unsigned(result, *code.signature.results))

    def _import(self, code: Any, run: Callable[..., Any]) -> wasmtime.Func:
        kinds = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64, "f32": wasmtime.ValType.f32}
        kinds["f64"] = wasmtime.ValType.f64
        params, results = code.signature.params, code.signature.results

        def called(*args: Any) -> Any:
            try:
                flat = tuple(_unsigned(arg, kind) for arg, kind in zip(args, params, strict=True))
                result = code.lower_result(self, flat, run(*code.lift_params(self, flat)))
            except HostError as error:
                result = code.lower_error(self, flat, error.case, error.payload)
            except BaseException as error:
                self.failure = error
                raise
            return _signed(result, *results)

        kind = wasmtime.FuncType([kinds[name]() for name in params], [kinds[name]() for name in results])
        return wasmtime.Func(self.store, kind, called)


def _signed(value: Any, kind: str = "") -> Any:
    if kind not in ("i32", "i64"):
        return value
    half = 1 << (31 if kind == "i32" else 63)
    return (value & (2 * half - 1) ^ half) - half


def _unsigned(value: Any, kind: str = "") -> Any:
    return value & ((1 << int(kind[1:])) - 1) if kind in ("i32", "i64") else value


class Ways:
    """Both ways, with one engine. Modules in texts are core modules named `$main`; they may import `$memory`."""

    memory = MEMORY
    signature = staticmethod(signature)

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine

    def as_it_is(self, main: str, host: dict[tuple[str, str], Any]) -> Carrier:
        """The guest without a component; `host` has the code and the function of each import."""
        return Carrier(self._engine, main.replace("core module $main", "module"), host)

    @contextmanager
    def in_component(self, text: str, define: Callable[[Any], None]) -> Generator[Callable[..., Any]]:
        """The export `f` of a component, whose imported instance `host` has what `define` puts there."""
        engine, api = self._engine, wasmtime.component
        with wasmtime.Store(engine) as store, api.Linker(engine) as linker, api.Component(engine, text) as made:
            with linker.root() as root, root.add_instance("host") as host:
                define(host)
            export = linker.instantiate(store, made).get_func(store, "f")
            assert export is not None
            yield partial(export, store)


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    """Both ways to run a guest."""
    with wasmtime.Engine() as engine:
        yield Ways(engine)
