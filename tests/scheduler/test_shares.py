"""While many wait, who has computed little of late goes first; and what only passes by keeps no instance."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from guests_in_wat import Guest, capsule, compute, hosted, next_of

from astrid_host.engine import Engine, Import, Instances, Linker, Pool
from astrid_host.engine.pool import IDLE_S
from astrid_host.scheduler import shares as shares_module
from astrid_host.scheduler.shares import Shares
from astrid_host.wit.types import Function


class Clock:
    """Stands where `time` does."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shares_module, "time", clock)
    return clock


def test_who_had_less_than_two_thirds_of_the_mean_has_had_little(clock: Clock) -> None:
    shares = Shares()
    assert not shares.has_had_little("anybody")
    for who in ("a", "b", "c"):
        shares.add(who, 0.03)
    assert [who for who in "abcd" if shares.has_had_little(who)] == ["d"]
    shares.add("d", 0.3)
    assert [who for who in "abcd" if shares.has_had_little(who)] == ["a", "b", "c"]


def test_what_was_two_seconds_ago_counts_no_more(clock: Clock) -> None:
    shares = Shares()
    shares.add("a", 1.0)
    clock.now += 1.5
    shares.add("b", 0.1)
    assert not shares.has_had_little("a")
    clock.now += 1.0
    assert not shares.has_had_little("b")
    clock.now += 5.0
    assert not shares.has_had_little("c")


async def test_one_who_was_idle_goes_before_two_hundred_who_have_much_to_do(tmp_path: Path) -> None:
    """Five steps one after the other, each of which a busy principal takes too: in order of arrival all of these would have ended
    something before."""
    for n in range(5):
        guest = Guest()
        guest.handles(compute(20_000) + guest.say(f"step.s{n + 1}"))
        capsule(tmp_path, f"c{n}", guest, {f"step.s{n}": "act"}, [f"step.s{n + 1}"])
    async with hosted(tmp_path) as host, host.subscribe("step.s5") as ended:

        def crowd() -> None:
            for _ in range(10):
                for n in range(200):
                    host.publish("step.s0", n, principal=f"p{n}")

        crowding = threading.Thread(target=crowd)
        crowding.start()
        crowding.join()  # the loop stands still meanwhile, so all of them wait at once
        for _ in range(300):
            await next_of(ended)
        begun = host.publish("step.s0", "idle", principal="idle")
        events = [await next_of(ended) for _ in range(1701)]
    later = [event.principal for event in events if event.seq > begun]
    assert later.index("idle") < 100


class Nothing:
    """A host without functions."""

    def find(self, _module: str, _name: str) -> Import | None:
        return None

    def known(self) -> list[tuple[str, str]]:
        return []


def test_what_only_passes_by_does_not_keep_an_instance() -> None:
    engine = Engine(None)
    wasm = Guest(publishes=False).add('(func (export "run"))').wasm()
    module = Linker(engine.wasmtime, Nothing()).prelink(engine.module("g", wasm), {"run": Function("run", (), None)})
    pool = Pool(module, 1 << 20, Instances())
    used = pool.lease("alice")
    pool.give_back(used, 100.0)
    assert pool.lease("alice") is used
    pool.give_back(used, 130.0, passing=True)
    assert pool.instances.take_idle(100.0 + IDLE_S) == [used]
    used.close()
    fresh = pool.lease("alice")
    pool.give_back(fresh, 200.0, passing=True)
    assert (fresh.closed, pool.instances.live, pool.instances.memory.used) == (True, 0, 0)
    pool.close()
