"""Guests in WebAssembly text, linked to host functions of a test, and called without a host around them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from guests_in_wat import Guest

from astrid_host.engine import Activation, Engine, Import, Instance, Linker, Prelinked
from astrid_host.wit.types import Field, Function, ListOf, OptionOf, Primitive, Record

MEMORY = 64 << 20
TEXT = Primitive("string")
U32 = Primitive("u32")
HOOK = Function(
    "astrid-hook-trigger",
    (Field("action", TEXT), Field("payload", ListOf(Primitive("u8")))),
    Record("capsule-result", (Field("action", TEXT), Field("data", OptionOf(TEXT)))),
)
RUN = Function("run", (), None)
ENTRIES = {HOOK.name: HOOK, RUN.name: RUN}
NUMBER = Function("number", (Field("n", U32),), U32)
WORDS = Function("words", (Field("n", U32),), ListOf(TEXT))
NUMBER_IMPORT = '(import "test" "number" (func $number (param i32) (result i32)))'
WORDS_IMPORT = '(import "test" "words" (func $words (param i32 i32)))'


class Given:
    """Host functions for one test."""

    def __init__(self, **functions: Import) -> None:
        self.functions = functions

    def find(self, module: str, name: str) -> Import | None:
        return self.functions.get(name) if module == "test" else None

    def known(self) -> Iterable[tuple[str, str]]:
        return (("test", name) for name in self.functions)


def linked(engine: Engine, guest: Guest, **functions: Import) -> Prelinked:
    return Linker(engine.wasmtime, Given(**functions)).prelink(engine.module("guest", guest.wasm()), ENTRIES)


def hook(module: Prelinked, instance: Instance, payload: bytes = b"1") -> Activation:
    activation = Activation(module.entries[HOOK.name], ("act", payload))
    activation.instance = instance
    return activation


def to_the_end(activation: Activation) -> Any:
    while not activation.advance():
        if activation.suspend is not None:
            activation.suspend.ready = True
    return activation.result


def number(run: Callable[..., Any], waits: bool = False) -> Import:
    return Import(NUMBER, run, waits)


def plain_guest(*more: str) -> Guest:
    """Calls `number` with its payload's first byte, if it has any."""
    guest = Guest(NUMBER_IMPORT, *more, publishes=False)
    return guest.handles("(drop (call $number (i32.load8_u (local.get $payload))))")


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work` on so many threads; what one raises is raised here."""
    raised: list[BaseException] = []

    def guarded(me: int) -> None:
        try:
            work(me)
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@contextmanager
def ticking(engine: Engine) -> Iterator[None]:
    """A clock that ticks each millisecond."""
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            engine.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
