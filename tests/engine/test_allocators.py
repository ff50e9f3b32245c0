"""A guest's allocator is guest code: it may neither wait, nor yield, nor call an import, nor take its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from guests_in_wat import Guest
from linked_guests import (
    MEMORY,
    NUMBER_IMPORT,
    WORDS,
    WORDS_IMPORT,
    hook,
    linked,
    number,
    ticking,
    to_the_end,
    together,
)

from astrid_host.engine import Activation, Engine, Import, Suspend
from astrid_host.errors import GuestFault, Trap


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(None)


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_results_of_waits_are_lowered_by_allocators_of_their_own_futures(engine: Engine) -> None:
    """A module that imports a waiting function is entered by a future for each allocation: it works under load, from
    many threads, with many allocations a call."""

    def words(activation: Activation, n: int) -> Suspend:
        return Suspend(activation, lambda: [f"word {i}" for i in range(n)])

    guest = Guest(WORDS_IMPORT, publishes=False)
    first = "(i32.load (i32.load (i32.const 1104)))"
    guest.handles(
        "(call $words (i32.load8_u (local.get $payload)) (i32.const 1104))"
        f"(call $answer {guest.text('final')} {first} (i32.const 6))"
    )
    module = linked(engine, guest, words=Import(WORDS, words, True))
    assert module.waits

    def work(me: int) -> None:
        instance = module.new(MEMORY)
        for n in range(1, 60):
            assert to_the_end(hook(module, instance, bytes([n + me]))).data == "word 0"
        instance.close()

    together(4, work)


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
def test_an_allocator_has_half_a_second_for_one_result(engine: Engine, waits: bool) -> None:
    """An allocator that takes its time at each of many strings may not hold the thread for the sum of them."""

    def words(_activation: Activation, n: int) -> list[str]:
        return ["word"] * (40 * n)

    guest = Guest(WORDS_IMPORT, publishes=False)
    guest.realloc = ""
    turns = "(loop $on (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
    slow = f"(if (global.get $armed) (then (local.set $i (i32.const 1000000)) {turns}))"
    guest.add(
        "(global $armed (mut i32) (i32.const 0))",
        f"""(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $i i32) {slow}
          (call $alloc (local.get 0) (local.get 1) (local.get 2) (local.get 3)))""",
    )
    guest.handles("(global.set $armed (i32.const 1)) (call $words (i32.const 250) (i32.const 1104))")
    module = linked(engine, guest, words=Import(WORDS, words, waits))
    call = hook(module, module.new(MEMORY))
    with ticking(engine), pytest.raises(Trap, match="does not return"):
        to_the_end(call)


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
def test_no_import_can_be_called_from_the_allocator(engine: Engine, waits: bool) -> None:
    called = []

    def counts(_activation: Activation, n: int) -> int:
        called.append(n)
        return n

    guest = Guest(NUMBER_IMPORT, publishes=False).handles("")
    guest.realloc = ""
    guest.add('(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (call $number (i32.const 4096)))')
    module = linked(engine, guest, number=number(counts, waits))
    with pytest.raises(GuestFault, match="cabi_realloc"):
        hook(module, module.new(MEMORY)).advance()
    assert called == []
