"""People who are asked: a bus, whoever receives questions on it, and calls that ask."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from astrid_host.bus import Bus, Event, Subscription
from astrid_host.engine import Engine
from astrid_host.errors import HostError
from astrid_host.hostcalls.approval import ANSWERS, Approval, Asked
from astrid_host.hostcalls.questions import Questions
from astrid_host.manifest import Capabilities, Manifest, Package, Uplink
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.scheduler import Scheduler

SOURCE = "2f1c7d2e-7d3b-5e0a-9a55-0a1b2c3d4e5f"
CLIENT = "11111111-7d3b-5e0a-9a55-0a1b2c3d4e5f"


@functools.cache
def engine() -> Engine:
    return Engine(None)


def manifest(uplinks: tuple[Uplink, ...] = (), **claims: Any) -> Manifest:
    return Manifest(Package("shell", "1.0.0"), capabilities=Capabilities(**claims), uplinks=uplinks)


def call(
    principal: str = "alice",
    message: Any = None,
    source_id: str = SOURCE,
    of: Manifest | None = None,
    **of_capsule: Any,
) -> Any:
    """A call, as far as a host function knows it."""
    capsule = {"id": "shell", "wasm_hash": "aa", "source_id": source_id, "manifest": of or manifest(), **of_capsule}
    capsule = {"storage_id": capsule["id"], **capsule}
    return SimpleNamespace(principal=principal, capsule=SimpleNamespace(**capsule), message=message)


class Says:
    """A policy that answers all the same, and notes what it was asked."""

    def __init__(self, verdict: bool | None) -> None:
        self.verdict = verdict
        self.asked: list[Asked] = []

    def decide(self, asked: Asked) -> bool | None:
        self.asked.append(asked)
        return self.verdict


class Town:
    """A bus with its turns, and a client that receives what is said to people."""

    def __init__(self, scheduler: Scheduler, bus: Bus) -> None:
        self.scheduler = scheduler
        self.bus = bus
        self.questions = Questions(bus, scheduler, self._received)
        self._heard: list[Event] = []
        self._arrived = trio.Event()
        self._patterns: list[Subscription] = []

    def _received(self, topic: str, principal: str | None) -> bool:
        return next(self.bus.subscriptions.matching(topic, principal), None) is not None

    def client(self, pattern: str, principal: str | None = None) -> None:
        """Somebody receives what matches a pattern from now on; `heard` gives it."""
        subscription = Subscription(pattern, principal)

        def took() -> None:
            event = subscription.take()
            assert event is not None
            self._heard.append(event)
            self._arrived.set()

        subscription.listener = took
        with self.bus.lock:
            self.bus.subscribe(subscription)

    async def heard(self) -> Event:
        """The next event that a client received."""
        while not self._heard:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._heard.pop(0)

    def say(self, topic: str, payload: Any, principal: str | None = "alice", source_id: str = CLIENT) -> None:
        """Publish, as a client does."""
        with self.bus.lock:
            self.bus.publish(topic, from_value(payload), principal, source_id)
        self.scheduler.run_or_wake()

    def listens(self, topic: str) -> bool:
        """Whether a wait for that topic has left something behind, or still waits."""
        return next(self.bus.subscriptions.matching(topic, "alice"), None) is not None


@asynccontextmanager
async def town() -> AsyncIterator[Town]:
    bus = Bus()
    scheduler = Scheduler(engine(), bus.lock, 1)
    try:
        yield Town(scheduler, bus)
    finally:
        await scheduler.close()


def in_no_time(body: Callable[[Town], Any]) -> float:
    """Run a test with a clock that jumps; returns how many seconds passed on it."""

    async def run() -> float:
        async with town() as here:
            begun = trio.current_time()
            await body(here)
            return trio.current_time() - begun

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0), strict_exception_groups=True)


def payload_of(event: Event) -> Any:
    """What a guest would receive."""
    assert event.source_id == NIL_SOURCE
    return json.loads(event.payload)


def request(action: str = "git status", resource: str = "git status -s") -> Any:
    """An `approval-request`."""
    return SimpleNamespace(action=action, target_resource=resource)


async def asked_and_answered(here: Town, approval: Approval, decision: str, who: Any = None, what: Any = None) -> str:
    """Ask, answer with a decision, and return what the guest got."""
    who, got = who or call(), []

    async def ask() -> None:
        got.append((await approval.request_approval(who, what or request())).decision)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        question = payload_of(await here.heard())
        here.say(ANSWERS + question["request_id"], answer(question, decision), who.principal)
    return str(got[0])


def answer(question: Any, decision: str = "approve") -> dict[str, str]:
    """The payload that answers a question."""
    return {"type": "approval_response", "request_id": question["request_id"], "decision": decision}


def refusal(run: Callable[[], object]) -> str:
    """The case of the error, which tells people something and the guest nothing more."""
    with pytest.raises(HostError) as caught:
        run()
    assert caught.value.detail
    assert caught.value.payload is None
    return caught.value.case


async def refused(waiting: Any) -> tuple[str, str]:
    """The case of the error, and what people are told."""
    with pytest.raises(HostError) as caught:
        await waiting
    assert caught.value.payload is None
    return caught.value.case, caught.value.detail
