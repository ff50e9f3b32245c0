"""Subscriptions are fair to principals: all of them drain, none loses, and at every moment each has had its share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guests_in_wat import ENVELOPE, MESSAGE, READY, RECEIVED, RECV, SUBSCRIBE, Guest, capsule, hosted, next_of, receive

from astrid_host.bus import Event, Subscription

MANY = 5000
PRINCIPALS, EACH = 64, 150
TOPIC = "a.said"


def while_the_loop_stands_still(publish: Callable[[], object]) -> None:
    """Publish from a thread that the loop's own waits for: everything is queued before anything is received."""
    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()


def unfair_points(takers: Iterator[str]) -> list[tuple[int, float]]:
    """The points from a tenth of the drain on at which Jain's index of what each principal got was below 0.99."""
    got: Counter[str] = Counter()
    unfair, squares = [], 0
    for taken, who in enumerate(takers, 1):
        squares += 2 * got[who] + 1
        got[who] += 1
        index = taken**2 / (PRINCIPALS * squares)
        if index < 0.99 and taken >= PRINCIPALS * EACH // 10:
            unfair.append((taken, index))
    assert sorted(got.values()) == [EACH] * PRINCIPALS
    return unfair


# One event for each of very many.


async def test_5000_principals_with_one_event_each_drain_from_one_subscription(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(MANY)]
    async with hosted(tmp_path) as host, host.subscribe(TOPIC) as events:
        while_the_loop_stands_still(lambda: [host.publish(TOPIC, name, principal=name) for name in names])
        heard = [await next_of(events) for _ in names]
        assert sorted(str(event.principal) for event in heard) == sorted(names)
        assert all(event.payload == event.principal for event in heard)
        assert (events.dropped, events.lagged) == (0, 0)


async def test_5000_principals_with_one_event_each_drain_through_a_run_loop(tmp_path: Path) -> None:
    """The loop says each message again, on behalf of whose it was."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    guest.add(
        f"""(func (export "run") (local $subscription i32)
          {guest.subscribe("l.ask", "$subscription")}
          (call $ready)
          (loop $again
            (global.set $heap (i32.const 65536))
            {receive(handle="$subscription")}
            (if (i64.ne (i64.load (i32.const {ENVELOPE + 16})) (i64.const 0)) (then (unreachable)))
            (if {RECEIVED} (then
              (call $publish {guest.text(TOPIC)} {MESSAGE})))
            (br $again)))"""
    )
    capsule(tmp_path, "loop", guest, {"l.ask": {}}, [TOPIC])
    names = [f"p{n}" for n in range(MANY)]
    async with hosted(tmp_path) as host, host.subscribe(TOPIC) as said:
        while_the_loop_stands_still(lambda: [host.publish("l.ask", name, principal=name) for name in names])
        heard = [await next_of(said) for _ in names]
        assert sorted(str(event.principal) for event in heard) == sorted(names)
        assert all(event.payload == event.principal for event in heard)
        assert said.dropped == 0
        assert host.capsules["loop"].state == "ready"


# Many events for each of some.


def event_of(who: int, seq: int, size: int) -> Event:
    return Event(TOPIC, b"x" * (size - len(TOPIC)), None, f"p{who}", "", seq, 0.0, False)


def drained(subscription: Subscription) -> Iterator[str]:
    while (event := subscription.take()) is not None:
        yield str(event.principal)


@pytest.mark.parametrize("size", [10, 60, 109, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("order", ["one after the other", "in turn", "in reverse"])
def test_equal_events_of_64_principals_are_taken_fairly(size: int, order: str) -> None:
    """Whatever their size, and in whatever order the principals published."""
    subscription = Subscription("a.*", budget=max(1 << 20, PRINCIPALS * EACH * size))
    whose = [who for who in range(PRINCIPALS) for _ in range(EACH)]
    if order == "in turn":
        whose = list(range(PRINCIPALS)) * EACH
    elif order == "in reverse":
        whose.reverse()
    for seq, who in enumerate(whose, 1):
        subscription.offer(event_of(who, seq, size))
    assert subscription.waiting == PRINCIPALS * EACH
    assert unfair_points(drained(subscription)) == []
    assert subscription.dropped == 0


def test_a_principal_that_comes_late_has_its_share_from_then_on() -> None:
    """64 others have waited for long: its first event is taken within one round, not after all of theirs."""
    subscription = Subscription("a.*")
    for who in range(PRINCIPALS):
        for seq in range(100):
            subscription.offer(event_of(who, seq, 60))
    for _ in range(1000):
        subscription.take()
    for seq in range(100):
        subscription.offer(event_of(PRINCIPALS, seq, 60))
    taken = [str(event.principal) for event in iter(subscription.take, None) if event is not None]
    late = [place for place, who in enumerate(taken) if who == f"p{PRINCIPALS}"]
    assert late[0] <= 4 * (PRINCIPALS + 1)  # 256 bytes a round are four events of each
    assert late[50] <= (50 + 5) * (PRINCIPALS + 1)


@pytest.mark.parametrize("size", [20, 60, 100])
async def test_equal_events_of_64_principals_arrive_fairly_at_the_hosts_subscription(size: int, tmp_path: Path) -> None:
    text = "x" * (size - len(TOPIC) - 2)  # with its quotes

    def publish() -> None:
        for who in range(PRINCIPALS):
            for _ in range(EACH):
                host.publish(TOPIC, text, principal=f"p{who}")

    async with hosted(tmp_path) as host, host.subscribe("a.*") as events:
        while_the_loop_stands_still(publish)
        heard = [str((await next_of(events)).principal) for _ in range(PRINCIPALS * EACH)]
        assert events.dropped == 0
    assert unfair_points(iter(heard)) == []
