"""A call outside the dispatcher: waited for, cancelled, and ended with the host."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, spin
from linked_guests import HOOK, MEMORY, NUMBER_IMPORT, linked, number, plain_guest

from astrid_host.engine import Engine, Import, Instances, Pool, Prelinked
from astrid_host.errors import GuestCancelled, GuestTimeout, NoInstance, Trap
from astrid_host.scheduler import Scheduler, Tasks, call_once


class Lone:
    """A capsule, as far as calling its guest goes."""

    id = "lone"

    def __init__(self, module: Prelinked, cap: int = 100) -> None:
        self.module = module
        self.pool = Pool(module, MEMORY, Instances(cap))

    async def call(self, scheduler: Scheduler, payload: bytes = b"\1", limit_s: float = 10.0) -> Any:
        return await call_once(scheduler, self, self.module.entries[HOOK.name], ("act", payload), "alice", limit_s)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(None)


@asynccontextmanager
async def turning(engine: Engine, workers: int = 2) -> AsyncIterator[tuple[Scheduler, Tasks]]:
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler(engine, threading.RLock(), workers)
        try:
            yield scheduler, Tasks(scheduler, nursery)
        finally:
            await scheduler.close()


def waiting(tasks: Tasks, function: Any) -> Import:
    return number(tasks.waiting(function), True)


async def test_a_call_returns_what_the_guest_returned(engine: Engine) -> None:
    guest = Guest(publishes=False)
    lone = Lone(linked(engine, guest.handles(guest.answer("final", "42"))))
    async with turning(engine) as (scheduler, _):
        for _ in range(100):
            result = await lone.call(scheduler)
            assert (result.action, result.data) == ("final", "42")
    assert lone.pool.instances.live == 1


async def test_a_call_that_traps_raises_its_trap(engine: Engine) -> None:
    lone = Lone(linked(engine, Guest(publishes=False).handles("(unreachable)")))
    async with turning(engine) as (scheduler, _):
        with pytest.raises(Trap, match="unreachable"):
            await lone.call(scheduler)
    assert lone.pool.instances.live == 0


async def test_a_call_that_computes_too_long_is_a_timeout(engine: Engine) -> None:
    lone = Lone(linked(engine, Guest(publishes=False).handles(spin())))
    async with turning(engine) as (scheduler, _):
        with pytest.raises(GuestTimeout, match=r"0\.05 s"):
            await lone.call(scheduler, limit_s=0.05)
    assert lone.pool.instances.live == 0


async def test_a_call_without_an_instance_says_so(engine: Engine) -> None:
    lone = Lone(linked(engine, Guest(publishes=False).handles("")), cap=0)
    async with turning(engine) as (scheduler, _):
        with pytest.raises(NoInstance):
            await lone.call(scheduler)


async def test_a_cancelled_call_that_computes_is_ended(engine: Engine) -> None:
    lone = Lone(linked(engine, Guest(publishes=False).handles(spin())))
    async with turning(engine) as (scheduler, _):
        begun = time.monotonic()
        with trio.move_on_after(0.05) as scope:
            await lone.call(scheduler)
        assert scope.cancelled_caught
        assert time.monotonic() - begun < 1
        assert not scheduler.live
    assert lone.pool.instances.live == 0


async def test_a_cancelled_call_that_waits_is_ended_and_its_task_too(engine: Engine) -> None:
    ended = trio.Event()

    async def sleeps(_call: Any, _n: int) -> int:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with turning(engine) as (scheduler, tasks):
        lone = Lone(linked(engine, plain_guest(), number=waiting(tasks, sleeps)))
        with trio.move_on_after(0.05) as scope:
            await lone.call(scheduler)
        assert scope.cancelled_caught
        with trio.fail_after(1):
            await ended.wait()
        assert not scheduler.live
    assert lone.pool.instances.live == 0


async def test_host_functions_that_wait_answer_from_the_loop(engine: Engine) -> None:
    """Their value, their typed error, and any other error, each to the call that made it; 100 at once."""

    async def answers(_call: Any, n: int) -> int:
        await trio.lowlevel.checkpoint()
        if n % 2:
            raise OSError(n)
        return n

    async with turning(engine) as (scheduler, tasks):
        lone = Lone(linked(engine, plain_guest(), number=waiting(tasks, answers)))
        told: list[tuple[int, object]] = []

        async def call(n: int) -> None:
            try:
                told.append((n, (await lone.call(scheduler, bytes([n]))).action))
            except OSError as error:
                told.append((n, error.args[0]))

        async with trio.open_nursery() as nursery:
            for n in range(100):
                nursery.start_soon(call, n)
    assert sorted(told, key=lambda pair: pair[0]) == [(n, n if n % 2 else "continue") for n in range(100)]


async def test_a_guest_that_computes_on_a_worker_may_wait_there(engine: Engine) -> None:
    """Its host function still runs as a task of the loop, and it goes on afterwards."""
    body = """(local.set $i (i32.const 8000000))
      (loop $on (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (drop (call $number (i32.const 1)))"""
    loop = threading.get_ident()
    where = []

    async def answers(_call: Any, n: int) -> int:
        where.append(threading.get_ident() == loop)
        await trio.lowlevel.checkpoint()
        return n

    async with turning(engine) as (scheduler, tasks):
        guest = Guest(NUMBER_IMPORT, publishes=False).handles(body + body)
        lone = Lone(linked(engine, guest, number=waiting(tasks, answers)))
        for _ in range(2):
            assert (await lone.call(scheduler)).action == "continue"
    assert where == [True] * 4


async def test_the_end_of_the_turns_ends_every_call(engine: Engine) -> None:
    """Those that compute, those that wait for a thread, those that wait for a task."""

    async def sleeps(_call: Any, _n: int) -> int:
        await trio.sleep_forever()

    told: list[type[BaseException]] = []
    async with trio.open_nursery() as callers:
        async with turning(engine, workers=1) as (scheduler, tasks):
            spinning = Lone(linked(engine, Guest(publishes=False).handles(spin())))
            sleeping = Lone(linked(engine, plain_guest(), number=waiting(tasks, sleeps)))

            async def call(lone: Lone) -> None:
                try:
                    await lone.call(scheduler)
                except GuestCancelled as error:
                    told.append(type(error))

            for _ in range(3):
                callers.start_soon(call, spinning)
                callers.start_soon(call, sleeping)
            with trio.fail_after(10):
                while len(scheduler.live) < 6:
                    await trio.lowlevel.checkpoint()
            begun = time.monotonic()
        assert time.monotonic() - begun < 1
    assert told == [GuestCancelled] * 6
    assert (spinning.pool.instances.live, sleeping.pool.instances.live) == (0, 0)
