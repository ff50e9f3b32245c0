"""Questions to people, over the bus: one is published on behalf of a call's principal, and the answer waited for.

Whoever receives the question may answer on its own topic, for the same principal. What the asking capsule says itself, what
comes for another principal and what is no answer is passed over, and the wait goes on. A guest that waits holds no thread; its
wait ends with the answer, with its time, or with its call, and nothing of it is left then. (Astrid, approval and elicit.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec
import trio

from astrid_host.bus import Bus, Event, Subscription
from astrid_host.hostcalls.interface import Running
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.scheduler import Scheduler

Answer = TypeVar("Answer")


class Unseen(Exception):
    """Nobody receives a question, so nobody can answer it."""


class Questions:
    """Asks the questions of one host.

    Args:
        bus: where they are published.
        scheduler: wakes who waits.
        received: whether somebody receives events of a topic for a principal; called with the bus's lock held. Who only watches
            does not count.
    """

    def __init__(self, bus: Bus, scheduler: Scheduler, received: Callable[[str, str | None], bool]) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._received = received

    async def ask(
        self,
        call: Running,
        topics: Sequence[str],
        question: msgspec.Struct,
        answers_on: str,
        read: Callable[[object], Answer | None],
        seconds: float,
    ) -> Answer | None:
        """Publish a question and wait for its answer.

        Args:
            call: whose guest asks; the question is published for its principal.
            topics: where; each gets the question.
            question: a payload.
            answers_on: the topic of the answer, which no other question has.
            read: the answer in a decoded payload, or None for what is none. The bus's lock is held.
            seconds: how long to wait.

        Returns:
            The first answer; None when none came in time. One that came is never lost to the end of the time.

        Raises:
            Unseen: nobody receives any of the topics. Nothing was published.

        Cancelled, it waits no more; answers that come later are received by nobody.
        """
        wait = _Wait(self._scheduler, call, answers_on, read)
        payload = from_value(question)
        with self._bus.lock:
            if not any(self._received(topic, call.principal) for topic in topics):
                raise Unseen
            self._bus.subscribe(wait.subscription)
            for topic in topics:
                self._bus.publish(topic, payload, call.principal, NIL_SOURCE, cause=call.message)
        try:
            self._scheduler.run_or_wake()
            with trio.move_on_after(seconds):
                await wait.over.wait()
        finally:
            with self._bus.lock:
                self._bus.unsubscribe(wait.subscription)
        return wait.answer


class _Wait(Generic[Answer]):
    """One question that waits for its answer."""

    def __init__(
        self, scheduler: Scheduler, call: Running, topic: str, read: Callable[[object], Answer | None]
    ) -> None:
        self.answer: Answer | None = None
        self.over = trio.Event()
        self.subscription = Subscription(topic, call.principal)
        self.subscription.listener = self._heard
        self._scheduler = scheduler
        self._asker = call.capsule.source_id
        self._read = read

    def _heard(self) -> None:
        """Something was published on the topic of the answer; the bus's lock is held, on any thread."""
        event: Event | None = self.subscription.take()
        if event is None or self.answer is not None or event.source_id == self._asker:
            return
        self.answer = self._read(event.data)
        if self.answer is not None:
            self._scheduler.served = True
            self._scheduler.call_soon(self.over.set)
