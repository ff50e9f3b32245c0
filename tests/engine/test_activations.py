"""A call carries its own errors, belongs to one thread at a time, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from guests_in_wat import Guest
from linked_guests import HOOK, MEMORY, NUMBER_IMPORT, hook, linked, number, plain_guest, ticking, to_the_end, together

from astrid_host.engine import Activation, Engine, Entry, Suspend
from astrid_host.errors import HostError, Trap

pytestmark = pytest.mark.usefixtures("quick_switches")


class Own(Exception):
    """Names the thread and the round that raised it."""


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
def test_threads_that_raise_at_the_same_time_never_swap_their_errors(engine: Engine, waits: bool) -> None:
    """Each call gets the very exception that its own host function raised, or its trap, whatever others do meanwhile."""

    def raises(activation: Activation, n: int) -> Any:
        if n:
            raise activation.arguments_error  # type: ignore[attr-defined]
        return 0

    class Marked(Activation):
        __slots__ = ("arguments_error",)

        def __init__(self, entry: Entry, arguments: tuple[Any, ...], error: Own) -> None:
            super().__init__(entry, arguments)
            self.arguments_error = error

    module = linked(engine, plain_guest(), number=number(raises, waits))
    rounds, threads = 600, 4
    wrong: list[object] = []
    gate = threading.Barrier(threads)

    def work(me: int) -> None:
        gate.wait()
        for n in range(rounds):
            error = Own(me, n)
            instance = module.new(MEMORY)
            call = Marked(module.entries[HOOK.name], ("act", b"\1"), error)
            call.instance = instance
            try:
                to_the_end(call)
                wrong.append((me, n, "no error"))
            except Own as got:
                if got is not error:
                    wrong.append((me, n, got))
            call.abandon()
            instance.close()

    together(threads, work)
    assert wrong == []


def test_threads_whose_guests_trap_keep_their_own_backtraces(engine: Engine) -> None:
    """A trap beside host functions that raise is told as a trap, with the guest's functions by name."""

    def raises(_activation: Activation, _n: int) -> int:
        raise Own

    trapping = linked(engine, Guest(publishes=False).handles("(call $deep)").add("(func $deep (unreachable))"))
    raising = linked(engine, plain_guest(), number=number(raises))

    def work(me: int) -> None:
        module, kind = ((trapping, Trap), (raising, Own))[me % 2]
        for _ in range(500):
            instance = module.new(MEMORY)
            call = hook(module, instance, b"\1")
            with pytest.raises(kind) as told:
                call.advance()
            if isinstance(told.value, Trap):
                assert told.value.backtrace[0].endswith("!deep")
            call.abandon()
            instance.close()

    together(4, work)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
def test_any_exception_of_a_host_function_comes_out_of_its_own_call(
    engine: Engine, kind: type[BaseException], waits: bool
) -> None:
    def raises(_activation: Activation, _n: int) -> int:
        raise kind

    module = linked(engine, plain_guest(), number=number(raises, waits))
    other = hook(module, module.new(MEMORY))
    call = hook(module, module.new(MEMORY))
    with pytest.raises(kind):
        call.advance()
    with pytest.raises(kind):
        other.advance()
    for ended in (call, other):
        ended.abandon()
        assert ended.instance is not None
        ended.instance.close()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Own])
def test_what_ends_a_wait_badly_ends_its_call(engine: Engine, kind: type[BaseException]) -> None:
    def waits(activation: Activation, _n: int) -> Suspend:
        def finish() -> int:
            raise kind

        return Suspend(activation, finish)

    module = linked(engine, plain_guest(), number=number(waits, True))
    call = hook(module, module.new(MEMORY))
    assert not call.advance()
    assert call.suspend is not None
    assert not call.advance()  # polled too early: nothing happens
    call.suspend.ready = True
    with pytest.raises(kind):
        call.advance()


def test_a_store_belongs_to_one_thread_at_a_time(engine: Engine) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def blocks(_activation: Activation, n: int) -> int:
        inside.set()
        assert go_on.wait(10)
        return n

    module = linked(engine, plain_guest(), number=number(blocks))
    instance = module.new(MEMORY)
    first, second = hook(module, instance), hook(module, instance)
    thread = threading.Thread(target=first.advance)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(RuntimeError, match="two threads in one store of guest"):
        second.advance()
    go_on.set()
    thread.join()
    assert first.result.action == "continue"
    assert to_the_end(second).action == "continue"


def test_a_computing_call_changes_threads_between_two_ticks(engine: Engine) -> None:
    body = """(local.set $i (i32.const 60000000))
      (loop $on (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"""
    module = linked(engine, Guest(publishes=False).handles(body))
    call = hook(module, module.new(MEMORY))
    polls, ended = 0, False

    def advance() -> None:
        nonlocal ended
        ended = call.advance()

    with ticking(engine):
        while not ended:
            polls += 1
            together(1, lambda _me: advance())
    assert polls > 2
    assert call.result.action == "continue"


def test_a_call_that_is_abandoned_leaves_its_stack(engine: Engine) -> None:
    """Waiting or computing: the future is gone, its `cancel` was called, the store can be closed."""
    cancelled = []

    def waits(activation: Activation, n: int) -> Suspend:
        suspend = Suspend(activation, lambda: n)
        suspend.cancel = lambda: cancelled.append(n)
        return suspend

    module = linked(engine, plain_guest(), number=number(waits, True))
    for n in range(1, 101):
        call = hook(module, module.new(MEMORY), bytes([n]))
        assert not call.advance()
        call.abandon()
        call.abandon()
        assert call.instance is not None
        call.instance.close()
    assert cancelled == list(range(1, 101))


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
def test_a_host_error_without_a_place_for_it_ends_the_call(engine: Engine, waits: bool) -> None:
    """A function whose WIT has no `result` cannot answer an error: the host function is at fault, and says so."""

    def refuses(_activation: Activation, _n: int) -> int:
        raise HostError("closed")

    module = linked(engine, plain_guest(), number=number(refuses, waits))
    with pytest.raises(Exception, match="number") as told:
        hook(module, module.new(MEMORY)).advance()
    assert not isinstance(told.value, Trap)


def test_memory_never_exceeds_its_limit(engine: Engine) -> None:
    grow = "(br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))"
    module = linked(engine, Guest(publishes=False).handles(f"(loop $on {grow})"))
    for pages in (4, 5, 100):
        instance = module.new(pages * 65536)
        assert to_the_end(hook(module, instance)).action == "continue"
        assert len(instance.view) == pages * 65536
        instance.close()


def test_a_thousand_instances_come_and_go_without_a_leak(engine: Engine) -> None:
    """Memory maps and resident memory are what they were, whether calls ended, trapped, or were abandoned."""

    def waits(activation: Activation, n: int) -> Suspend:
        return Suspend(activation, lambda: n)

    module = linked(engine, plain_guest(), number=number(waits, True))
    trapping = linked(engine, Guest(publishes=False).handles("(unreachable)"))

    def cycle() -> None:
        ended, abandoned, trapped = (
            hook(module, module.new(MEMORY)),
            hook(module, module.new(MEMORY)),
            hook(trapping, trapping.new(MEMORY)),
        )
        to_the_end(ended)
        abandoned.advance()
        with pytest.raises(Trap):
            trapped.advance()
        for call in (ended, abandoned, trapped):
            call.abandon()
            assert call.instance is not None
            call.instance.close()

    for _ in range(100):
        cycle()
    maps, resident = maps_and_resident()
    for _ in range(700):
        cycle()
    now_maps, now_resident = maps_and_resident()
    assert now_maps - maps < 100
    assert now_resident - resident < 8 << 20


def maps_and_resident() -> tuple[int, int]:
    if not os.path.exists("/proc/self/maps"):
        return 0, 0
    with open("/proc/self/maps") as maps, open("/proc/self/statm") as statm:
        return sum(1 for _ in maps), int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_result_type_is_not_needed_for_run(engine: Engine) -> None:
    ran = []
    guest = Guest(NUMBER_IMPORT, publishes=False)
    guest.add('(func (export "run") (drop (call $number (i32.const 5))))')

    def notes(_activation: Activation, n: int) -> int:
        ran.append(n)
        return n

    module = linked(engine, guest, number=number(notes))
    call = Activation(module.entries["run"], ())
    call.instance = module.new(MEMORY)
    assert to_the_end(call) is None
    assert ran == [5]
