"""Host functions for guests: defined once in one linker, when the first module imports them.

A host function is compiled from its WIT declaration: its parameters are lifted straight out of the guest's memory, its
result lowered into it. *Plain* ones run to their end at once. *Waiting* ones may return a `Suspend`. Whatever a host
function raises is carried on the call that made it and raised again by `Activation.advance`; the guest only traps.
No import may be called from the guest's allocator or a post-return function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import wasmtime

from astrid_host.abi import HOST_BYTES, DropCode, ImportCode, compile_drop, compile_import
from astrid_host.engine import assemblyscript, failures, native
from astrid_host.engine.activation import GO_ON_AT, HOST_CALLS_IN_A_ROW, Activation, Suspend, here
from astrid_host.engine.instance import slots
from astrid_host.engine.module import Module, Prelinked
from astrid_host.errors import GuestFault, HostError, ImportsMissing
from astrid_host.wit.types import Function, Resource

_VALTYPE = {
    "i32": wasmtime.ValType.i32,
    "i64": wasmtime.ValType.i64,
    "f32": wasmtime.ValType.f32,
    "f64": wasmtime.ValType.f64,
}
_RESULT: dict[str, Any] = {
    "i32": ctypes.c_uint32,
    "i64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_KIND = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}
NAMED = 20  # of the imports that are missing: to look for what was meant takes time
NAME_CHARACTERS = 128


# A continuation that is over at once: a C function that answers 1, and costs less than one of ours.
AT_ONCE_AT: int = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value  # type: ignore[assignment]


class Import:
    """A host function as the linker needs it.

    Args:
        declared: its WIT declaration, or the resource that it drops.
        run: called as `run(activation, *arguments)`; gives the result, or raises `HostError`.
        waits: whether `run` may return a `Suspend`.
        most: bytes that its arguments may take in the host, all together.
    """

    __slots__ = ("declared", "most", "run", "waits")

    def __init__(
        self, declared: Function | Resource, run: Callable[..., Any], waits: bool, most: int = HOST_BYTES
    ) -> None:
        self.declared = declared
        self.run = run
        self.waits = waits
        self.most = most


class Imports(Protocol):
    """What the host has: declared here, supplied by the composition root."""

    def find(self, module: str, name: str) -> Import | None:
        """The host function of that interface id and core name."""
        ...

    def known(self) -> Iterable[tuple[str, str]]:
        """Every (interface id, core name) there is; only for naming the nearest one."""
        ...


class Linker:
    """Defines host functions on demand and links modules to them once, so that an instance costs microseconds.

    Attributes:
        refused: called with the call and the error whenever a guest is answered one that has a `detail`, which the guest does not
            see. On any thread; must not block.
    """

    def __init__(self, engine: wasmtime.Engine, imports: Imports) -> None:
        self.refused: Callable[[Activation, HostError], None] | None = None
        self._engine = engine
        self._linker = wasmtime.Linker(engine)
        self._imports = imports
        self._defined: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...], bool]] = {}
        self._keep: list[object] = []  # callbacks and types live as long as the linker

    def prelink(self, module: Module, entries: Mapping[str, Function]) -> Prelinked:
        """Link a module.

        Args:
            module: what was compiled.
            entries: the exports that may be called, by name.

        Raises:
            ImportsMissing: it imports what the host does not have; all of it is named.
        """
        problems, missing, waiting = [], [], set()
        for needed in module.imports:
            key = (needed.module, needed.name)
            defined = self._defined.get(key) or self._define(key)
            if defined is None:
                missing.append(key)
                if len(missing) <= NAMED:
                    problems.append(self._unknown(key))
            elif needed.kind != "func" or (needed.params, needed.results) != defined[:2]:
                missing.append(key)
                if len(missing) <= NAMED:
                    problems.append(
                        f"  {key[0]} {key[1]}: imported as {needed.describe()}, "
                        f"but the host has {_signature(*defined[:2])}: build against the wit/ of this host"
                    )
            elif defined[2]:
                waiting.add(key)
        if len(missing) > NAMED:
            problems.append(f"  and {len(missing) - NAMED} more")
        if problems:
            raise ImportsMissing(
                f"{module.name} imports what this host does not have:\n" + "\n".join(problems), missing
            )
        # Inner functions that could reach an import that waits are futures of their own, which takes several times as long.
        waits = bool(waiting) and not waiting.isdisjoint(module.inner_imports())
        return Prelinked(self._engine, self._linker, module, entries, waits, self._keep)

    def _define(self, key: tuple[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], bool] | None:
        if key[0] == "env":
            special = assemblyscript.define(key[1])
            if special is None:
                return None
            params, results, run = special
            self._define_plain(key, params, results, run)
            waits = False
        else:
            found = self._imports.find(*key)
            if found is None:
                return None
            code = (
                compile_drop(found.declared)
                if isinstance(found.declared, Resource)
                else compile_import(found.declared, found.most)
            )
            params, results, waits = code.signature.params, code.signature.results, found.waits
            if waits:
                self._define_waiting(key, params, results, _waiting(key, code, found.run, self._answered))
            else:
                self._define_plain(key, params, results, _plain(key, code, found.run, self._answered))
        self._defined[key] = params, results, waits
        return self._defined[key]

    def _answered(self, activation: Activation, error: HostError) -> None:
        """A guest is about to be answered with an error."""
        if error.detail and self.refused is not None:
            self.refused(activation, error)

    def _define_plain(
        self, key: tuple[str, str], params: tuple[str, ...], results: tuple[str, ...], callback: Callable[..., Any]
    ) -> None:
        self._bind(native.DEFINE, native.PLAIN(callback), key, params, results)

    def _define_waiting(
        self, key: tuple[str, str], params: tuple[str, ...], results: tuple[str, ...], callback: Callable[..., Any]
    ) -> None:
        self._bind(native.DEFINE_WAITING, native.WAITING(callback), key, params, results)

    def _bind(
        self, define: Any, callback: Any, key: tuple[str, str], params: tuple[str, ...], results: tuple[str, ...]
    ) -> None:
        kind = wasmtime.FuncType([_VALTYPE[name]() for name in params], [_VALTYPE[name]() for name in results])
        self._keep.append((callback, kind))
        module, name = key[0].encode(), key[1].encode()
        error = define(
            native.address(self._linker.ptr()),
            module,
            len(module),
            name,
            len(name),
            native.address(kind.ptr()),
            callback,
            None,
            None,
        )
        if error:
            raise RuntimeError(f"the import {key} cannot be defined: {failures.take_error(error).message}")

    def _unknown(self, key: tuple[str, str]) -> str:
        import difflib

        module, name = key[0][:NAME_CHARACTERS], key[1][:NAME_CHARACTERS]
        if module.startswith("wasi"):
            return (
                f"  {module} {name}: there is no WASI here; build for wasm32-unknown-unknown "
                "(cargo build --target wasm32-unknown-unknown), not for a wasi target"
            )
        known = list(self._imports.known())
        names = [f"{m} {n}" for m, n in known]
        near = difflib.get_close_matches(f"{module} {name}", names, 1, 0.6)
        same_module = [n for m, n in known if m == module]
        if not near and same_module:
            near = [f"{module} {n}" for n in difflib.get_close_matches(name, same_module, 1, 0.4)]
        return f"  {module} {name}" + (f": did you mean {near[0]}?" if near else ": nothing here has such a name")


def _signature(params: tuple[str, ...], results: tuple[str, ...]) -> str:
    return f"({', '.join(params)}) -> ({', '.join(results)})"


def _reentered(key: tuple[str, str]) -> GuestFault:
    return GuestFault(
        f"{key[0]} {key[1]} was called from cabi_realloc or a post-return function, which may call nothing"
    )


def _plain(
    key: tuple[str, str],
    code: ImportCode | DropCode,
    run: Callable[..., Any],
    answered: Callable[[Any, HostError], None],
) -> Callable[..., int | None]:
    params, results = code.signature.params, code.signature.results
    layout = slots(params, native.RAW_BYTES)
    unpack, place = layout.unpack_from, ctypes.c_char * layout.size
    result = _RESULT[results[0]] if results else None
    lift, lower, lower_error = code.lift_params, code.lower_result, code.lower_error
    new_trap = native.NEW_TRAP
    held: tuple[int, Any] = 0, None

    def plain(_env: int, _caller: int, raw: int, _count: int) -> int | None:
        nonlocal held
        activation = here.activation
        try:
            if activation.nested:  # type: ignore[union-attr]
                raise _reentered(key)
            activation.reached = reached = activation.reached + 1  # type: ignore[union-attr]
            if not reached % HOST_CALLS_IN_A_ROW:
                activation.yield_soon()  # type: ignore[union-attr]
            activation.slow_since = 0.0  # type: ignore[union-attr]
            guest = activation.instance  # type: ignore[union-attr]
            guest.look()  # type: ignore[union-attr]
            # Guests' stacks are in few places: a view of one costs three times as much to make as to read.
            at, buffer = held
            if at != raw:
                buffer = place.from_address(raw)
                held = raw, buffer
            args = unpack(buffer)
            try:
                flat = lower(guest, args, run(activation, *lift(guest, args)))
            except HostError as error:
                answered(activation, error)
                flat = lower_error(guest, args, error.case, error.payload)
            if result is not None:
                result.from_address(raw).value = flat
        except BaseException as error:  # noqa: BLE001 - carried to the call's owner
            activation.failure = error  # type: ignore[union-attr]
            trap: int = new_trap(b"host", 4)
            return trap
        return None

    return plain


def _waiting(
    key: tuple[str, str],
    code: ImportCode | DropCode,
    run: Callable[..., Any],
    answered: Callable[[Any, HostError], None],
) -> Callable[..., None]:
    params, results = code.signature.params, code.signature.results
    layout = slots(params, native.VAL_BYTES)
    unpack, place = layout.unpack_from, ctypes.c_char * (native.VAL_AT + layout.size)
    result = _RESULT[results[0]] if results else None
    kind = _KIND[results[0]] if results else 0
    lift, lower, lower_error = code.lift_params, code.lower_result, code.lower_error
    held: tuple[int, Any] = 0, None

    def put(results_at: int, flat: Any) -> None:
        if result is not None:
            ctypes.c_uint8.from_address(results_at).value = kind
            result.from_address(results_at + native.VAL_AT).value = flat

    def later(guest: Any, args: tuple[Any, ...], results_at: int) -> Callable[[Callable[[], Any]], None]:
        def lowering(give: Callable[[], Any]) -> None:
            try:
                flat = lower(guest, args, give())
            except HostError as error:
                answered(here.activation, error)
                flat = lower_error(guest, args, error.case, error.payload)
            put(results_at, flat)

        return lowering

    def waiting(
        _env: int, _caller: int, args_at: int, _n: int, results_at: int, _m: int, trap_at: int, continuation: int
    ) -> None:
        nonlocal held
        native.VOID.from_address(continuation).value = AT_ONCE_AT
        activation = here.activation
        assert activation is not None, "a host function runs inside a call"
        if activation.nested:
            activation.failure = _reentered(key)
            native.VOID.from_address(trap_at).value = native.NEW_TRAP(b"host", 4)
            return
        activation.reached = reached = activation.reached + 1
        if not reached % HOST_CALLS_IN_A_ROW:  # it may have nothing to wait for, again and again
            activation.yield_soon()
        activation.slow_since = 0.0
        activation.trap_at = trap_at
        activation.suspend = None
        try:
            guest = activation.instance
            assert guest is not None, "a call has an instance"
            guest.look()
            at, buffer = held
            if at != args_at:
                buffer = place.from_address(args_at)
                held = args_at, buffer
            args = unpack(buffer, native.VAL_AT)
            try:
                outcome = run(activation, *lift(guest, args))
                if type(outcome) is Suspend:
                    native.VOID.from_address(continuation).value = GO_ON_AT
                    activation.suspend = outcome
                    activation.lowering = later(guest, args, results_at)
                    return
                flat = lower(guest, args, outcome)
            except HostError as error:
                answered(activation, error)
                flat = lower_error(guest, args, error.case, error.payload)
            if result is not None:
                put(results_at, flat)
        except BaseException as error:  # noqa: BLE001 - carried to the call's owner
            activation.fail(error)

    return waiting
