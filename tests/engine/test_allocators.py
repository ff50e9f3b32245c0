"""A guest's allocator is guest code: it may neither wait, nor yield, nor call an import, nor take its time."""

from __future__ import annotations

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
from astrid_host.errors import GuestFailed, GuestFault, Trap

pytestmark = pytest.mark.usefixtures("quick_switches")


@pytest.mark.parametrize("might_wait", [False, True], ids=["plainly", "as futures of their own"])
def test_results_of_waits_are_lowered_by_allocators_that_are_called(might_wait: bool, engine: Engine) -> None:
    """One that might reach an import that waits is a future for each allocation. Both work under load, from many threads, with
    many allocations a call."""

    def words(activation: Activation, n: int) -> Suspend:
        return Suspend(activation, lambda: [f"word {i}" for i in range(n)])

    guest = Guest(WORDS_IMPORT, publishes=False)
    if might_wait:
        guest.realloc = ""
        guest.add("""(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
          (if (i32.const 0) (then (call $words (i32.const 0) (i32.const 0))))
          (call $alloc (local.get 0) (local.get 1) (local.get 2) (local.get 3)))""")
    first = "(i32.load (i32.load (i32.const 1104)))"
    guest.handles(
        "(call $words (i32.load8_u (local.get $payload)) (i32.const 1104))"
        f"(call $answer {guest.text('final')} {first} (i32.const 6))"
    )
    module = linked(engine, guest, words=Import(WORDS, words, True))
    assert module.waits is might_wait

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
    loop = "(loop $on (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
    slow = f"(if (global.get $armed) (then (local.set $i (i32.const 1000000)) {loop}))"
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


THROUGH = {
    "directly": ("(call $wait)", ""),
    "through another function": ("(call $between)", "(func $between (result i32) (call $wait))"),
    "through a table": (
        "(call_indirect (type $answers) (i32.const 1))",
        "(table 2 funcref) (elem (i32.const 1) $wait)",
    ),
    "through a passive segment": (
        "(table.init $later (i32.const 0) (i32.const 0) (i32.const 1)) (call_indirect (type $answers) (i32.const 0))",
        "(table 1 funcref) (elem $later func $wait)",
    ),
    "through a reference that other code puts into a table": (
        "(call_indirect (type $answers) (i32.const 0))",
        '(table 1 funcref) (export "out" (func $wait)) (func (export "never") (table.set (i32.const 0) (ref.func $wait)))',
    ),
    "through a global": (
        "(table.set (i32.const 0) (global.get $held)) (call_indirect (type $answers) (i32.const 0))",
        "(table 1 funcref) (global $held funcref (ref.func $wait))",
    ),
}


@pytest.mark.parametrize("way", THROUGH)
def test_whatever_way_an_allocator_could_reach_an_import_that_waits_it_is_a_future_of_its_own(
    engine: Engine, way: str
) -> None:
    """As a plain call it would end the process when it gets there; as a future it traps."""
    call, more = THROUGH[way]
    guest = Guest(NUMBER_IMPORT, publishes=False).handles("")
    guest.realloc = ""
    guest.add(
        "(type $answers (func (result i32)))",
        "(func $wait (type $answers) (call $number (i32.const 4096)))",
        more,
        f'(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {call})',
    )
    module = linked(engine, guest, number=number(lambda _activation, n: n, waits=True))
    assert module.waits
    with pytest.raises(GuestFailed):
        hook(module, module.new(MEMORY)).advance()


def test_an_allocator_that_can_reach_none_is_called_plainly(engine: Engine) -> None:
    """Calls through a table count as calls of all that is in one, and of nothing else."""
    guest = Guest(NUMBER_IMPORT, publishes=False).handles("(drop (call $number (i32.const 1)))")
    guest.add(
        "(type $answers (func (result i32)))",
        "(func $five (type $answers) (i32.const 5))",
        "(table 1 funcref) (elem (i32.const 0) $five)",
    )
    guest.realloc = ""
    guest.add("""(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (drop (call_indirect (type $answers) (i32.const 0)))
      (call $alloc (local.get 0) (local.get 1) (local.get 2) (local.get 3)))""")
    module = linked(engine, guest, number=number(lambda _activation, n: n, waits=True))
    assert not module.waits
    assert to_the_end(hook(module, module.new(MEMORY))).action == "continue"
