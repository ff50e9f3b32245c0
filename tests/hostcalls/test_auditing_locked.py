"""Audited host functions while another process has the database locked: their calls wait, in order, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from astrid_host.engine import Suspend
from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.auditor import Auditor
from astrid_host.hostcalls.interface import HostFunction
from astrid_host.hostcalls.lock_retry import LockRetry
from astrid_host.stores import Locked, Retries

FS, KV, IPC = "astrid:fs/host@1.0.0", "astrid:kv/host@1.0.0", "astrid:ipc/host@1.0.0"
BOUND_S = 0.3


class Scheduler:
    """Wakes guests, as far as their suspends are concerned."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.rung = threading.Event()

    def wake_locked(self, suspend: Suspend) -> None:
        suspend.ready = True

    def wake_loop(self) -> None:
        self.rung.set()


class World:
    """A database that another process locks and lets go, and what is kept in it."""

    def __init__(self) -> None:
        self.locked = self.full = False
        self.rows: list[tuple[str, str, str]] = []
        self.retries = Retries(BOUND_S)
        self.scheduler = Scheduler()
        self.auditor = Auditor(self, patience=LockRetry(self.retries, self.scheduler))
        self.done: list[str] = []

    def write(self) -> None:
        if self.locked:
            raise Locked("another process keeps it locked. Stop that process")
        if self.full:
            raise StoreError("the disk is full")

    def append(self, _principal: str, _capsule: str, function: str, target: str, verdict: str) -> int:
        self.write()
        self.rows.append((function, target, verdict))
        return len(self.rows)

    def close(self) -> None:
        self.locked = False
        self.retries.close()

    def function(
        self, run: Callable[..., Any], module: str = FS, name: str = "fs-do", suspends: bool = False
    ) -> HostFunction:
        return self.auditor.audited(module, HostFunction(name, run, suspends, lambda target: target))

    def store(self, _call: Any, target: str) -> str:
        """A host function that keeps something in the database."""
        try:
            self.write()
        except StoreError as error:
            raise HostError("store-unavailable", detail=str(error)) from error
        self.done.append(target)
        return f"kept {target}"

    def freed(self, suspend: Suspend) -> Any:
        """What a guest that sleeps gets once the other process has let go."""
        assert type(suspend) is Suspend
        assert not suspend.ready
        self.locked = False
        return self.woken(suspend)

    def woken(self, suspend: Suspend) -> Any:
        while not suspend.ready:
            assert self.scheduler.rung.wait(2)
            self.scheduler.rung.clear()
        return suspend.finish()


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World()) as world:
        yield world


def call() -> Any:
    return SimpleNamespace(
        principal="alice", capsule=SimpleNamespace(id="fs-tools", storage_id="fs-tools"), message=None
    )


class Opened:
    """What a host function gives to its guest."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_was_done_is_given_once_its_row_is_there(world: World) -> None:
    function = world.function(lambda _call, target: f"did {target}")
    assert function.suspends
    assert function.run(call(), "a") == "did a"
    world.locked = True
    suspend = function.run(call(), "b")
    assert world.rows == [("fs.fs-do", "a", "ok")]
    assert world.freed(suspend) == "did b"
    assert world.rows == [("fs.fs-do", "a", "ok"), ("fs.fs-do", "b", "ok")]


def test_an_error_is_given_once_its_row_is_there(world: World) -> None:
    def fail(_call: Any, _target: str) -> None:
        raise HostError("not-found")

    world.locked = True
    suspend = world.function(fail).run(call(), "a")
    with pytest.raises(HostError, match="not-found"):
        world.freed(suspend)
    assert world.rows == [("fs.fs-do", "a", "not-found")]


def test_rows_are_in_the_order_in_which_calls_ended(world: World) -> None:
    function = world.function(lambda _call, target: target)
    world.locked = True
    suspends = [function.run(call(), str(number)) for number in range(10)]
    world.auditor.denied(call(), "ipc.publish", "topic", "capability-denied")
    world.locked = False
    later = function.run(call(), "last")  # behind those that wait, if they still do
    assert [world.woken(suspend) for suspend in suspends] == [str(number) for number in range(10)]
    assert (world.woken(later) if type(later) is Suspend else later) == "last"
    assert [row[1] for row in world.rows] == [*map(str, range(10)), "topic", "last"]


def test_what_a_store_could_not_do_is_done_once_and_then_has_its_row(world: World) -> None:
    world.locked = True
    suspend = world.function(world.store, "astrid:identity/host@1.0.0").run(call(), "a")
    assert world.done == []
    assert world.freed(suspend) == "kept a"
    assert (world.done, world.rows) == (["a"], [("identity.fs-do", "a", "ok")])


def test_a_kv_write_waits_and_makes_no_row(world: World) -> None:
    world.locked = True
    suspend = world.function(world.store, KV, "kv-set", suspends=True).run(call(), "a")
    assert world.freed(suspend) == "kept a"
    assert (world.done, world.rows) == (["a"], [])


@pytest.mark.parametrize(("case", "rows"), [("too-large", [("kv.kv-cas", "a", "too-large")]), ("cas-mismatch", [])])
def test_a_kv_write_that_is_refused_after_it_waited_says_why(
    world: World, case: str, rows: list[tuple[str, str, str]]
) -> None:
    def refuse(_call: Any, target: str) -> None:
        world.store(_call, target)
        raise HostError(case)

    world.locked = True
    suspend = world.function(refuse, KV, "kv-cas", suspends=True).run(call(), "a")
    with pytest.raises(HostError, match=case):
        world.freed(suspend)
    world.close()
    assert world.rows == rows


def test_a_refusal_of_kv_or_ipc_does_not_wait_for_its_row(world: World) -> None:
    def refuse(_call: Any, _target: str) -> None:
        raise HostError("invalid-key")

    world.locked = True
    for module, name in ((KV, "kv-get"), (IPC, "subscribe")):
        function = world.function(refuse, module, name)
        assert not function.suspends
        with pytest.raises(HostError, match="invalid-key"):
            function.run(call(), "a")
    assert world.rows == []
    world.close()
    assert world.rows == [("kv.kv-get", "a", "invalid-key"), ("ipc.subscribe", "a", "invalid-key")]


def test_a_call_that_ends_while_its_row_waits_keeps_its_row_and_nothing_open(world: World) -> None:
    opened = Opened()
    world.locked = True
    suspend = world.function(lambda *_: opened).run(call(), "a")
    suspend.cancel()
    assert opened.closed == 1
    world.close()
    assert world.rows == [("fs.fs-do", "a", "ok")]


def test_a_call_that_ends_before_its_write_could_be_done_writes_nothing(world: World) -> None:
    world.locked = True
    suspend = world.function(world.store, "astrid:identity/host@1.0.0").run(call(), "a")
    quiet = world.function(world.store, KV, "kv-set", suspends=True).run(call(), "b")
    for each in (suspend, quiet):
        each.cancel()
    world.close()
    assert (world.done, world.rows) == ([], [("identity.fs-do", "a", "cancelled")])


def test_what_was_done_is_called_done_when_its_row_cannot_be_written(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Opened()
    world.locked = True
    suspend = world.function(lambda *_: opened).run(call(), "a")
    with pytest.raises(HostError) as caught:
        world.woken(suspend)
    assert (caught.value.case, caught.value.payload) == ("unknown", "it was done, but the audit cannot be written")
    assert opened.closed == 1
    assert "fs.fs-do was done, but its row in the audit was not written: another process keeps it locked" in caplog.text
    assert "Stop that process" in caplog.text


@pytest.mark.parametrize("module", ["astrid:identity/host@1.0.0", KV])
def test_what_could_not_be_done_at_all_is_the_functions_own_error(
    world: World, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.locked = True
    suspend = world.function(world.store, module, "fs-do", suspends=module == KV).run(call(), "a")
    with pytest.raises(HostError, match="another process keeps it locked") as caught:
        world.woken(suspend)
    assert caught.value.case == "store-unavailable"
    assert world.done == []
    assert "Stop that process" in caplog.text
    world.close()
    assert [row[2] for row in world.rows] == ["store-unavailable"]


def test_a_fault_in_what_was_tried_again_ends_the_call(world: World) -> None:
    def faulty(_call: Any, target: str) -> None:
        world.store(_call, target)
        raise ZeroDivisionError

    world.locked = True
    suspend = world.function(faulty, "astrid:identity/host@1.0.0").run(call(), "a")
    with pytest.raises(ZeroDivisionError):
        world.freed(suspend)
    assert world.rows == [("identity.fs-do", "a", "failed")]


def test_a_row_that_fails_for_another_reason_after_it_waited_says_so(world: World) -> None:
    world.locked = world.full = True
    suspend = world.function(lambda *_: 1).run(call(), "a")
    with pytest.raises(HostError, match="the disk is full"):
        world.freed(suspend)


def test_where_nobody_can_lock_the_database_no_function_suspends(world: World) -> None:
    auditor = Auditor(world)
    plain = HostFunction("fs-do", lambda _call, target: target, False, lambda target: target)
    assert not auditor.audited(FS, plain).suspends
    kv = HostFunction("kv-set", lambda _call, target: target, True, lambda target: target)
    assert not auditor.audited(KV, kv).suspends


async def test_a_waiting_function_ends_once_its_row_is_there(world: World) -> None:
    async def do(_call: Any, target: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"did {target}"

    world.locked = True
    got = []

    async def run() -> None:
        got.append(await world.function(do).run(call(), "a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        assert (got, world.rows) == ([], [])
        world.locked = False
    assert (got, world.rows) == (["did a"], [("fs.fs-do", "a", "ok")])


async def test_a_waiting_function_that_is_cancelled_says_so_all_the_same(world: World) -> None:
    async def do(_call: Any, _target: str) -> None:
        await trio.sleep_forever()

    world.locked = True
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            await world.function(do).run(call(), "a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()  # it waits for its row
        world.locked = False
    assert scope.cancelled_caught
    assert world.rows == [("fs.fs-do", "a", "cancelled")]


async def test_a_waiting_function_whose_row_cannot_be_written_was_done_and_says_so(world: World) -> None:
    opened = Opened()

    async def do(_call: Any, _target: str) -> Opened:
        return opened

    world.locked = True
    with pytest.raises(HostError) as caught:
        await world.function(do).run(call(), "a")
    assert caught.value.payload == "it was done, but the audit cannot be written"
    assert opened.closed == 1
