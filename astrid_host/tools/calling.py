"""Tool calls, as a client of the bus: execute, cancel, and describe.

A call is published on the request topic, a router validates its name and passes it on, the tool answers, the router publishes
the answer on the result topic. Every call gets exactly one result: `execute` never raises for what happened to a call. When the
kernel reports a failure of one of its events and no capsule answers for it, the answer is made here.

A cancel request, whoever published it, ends what its principal's calls of these ids are doing: what waits in queues is dropped,
guests that run are stopped, and both are reported as `cancelled`, which answers them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio

from astrid_host.bus import FAILED, Bus, Event, Report
from astrid_host.capsules import Registry
from astrid_host.dispatch import Dispatcher, Queue
from astrid_host.errors import HostClosed, PayloadError
from astrid_host.gates.exchanges import Exchanges
from astrid_host.payloads import (
    NIL_SOURCE,
    PAYLOAD_BYTES,
    Payload,
    ToolCallResult,
    ToolCancelRequest,
    ToolExecuteRequest,
    ToolExecuteResult,
    typed,
    written,
)
from astrid_host.payloads.outside import Tool
from astrid_host.principals import check_principal
from astrid_host.scheduler import Scheduler
from astrid_host.tools.describing import describe
from astrid_host.tools.failures import explain, subject_of
from astrid_host.tools.topics import CANCEL, EXECUTE, REQUEST, RESULT, TOOL_TOPICS

CancelChildren = Callable[[Sequence[str], str], None]

TIMEOUT_S = 60.0
CLOSED = "this host has stopped: use its tools inside its `async with open_host(...)`"
LET_GO_S = 0.001
ID_BYTES, IDS_AT_ONCE = 16, 256


class _Pending:
    """A call that waits for its result; `entered` once it was published, `gone` once nobody waits for it any more."""

    __slots__ = ("answer", "entered", "gone", "outside", "task")

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.answer: ToolCallResult | None = None
        self.entered = False
        self.outside: Queue | None = None  # where it waits for room
        self.gone = False


class _Ids:
    """Ids of calls that no other speaker can guess: 128 random bits each, which the system is asked for in larger pieces."""

    __slots__ = ("_at", "_digits")

    def __init__(self) -> None:
        self._digits, self._at = "", 0

    def next(self) -> str:
        begin, end = self._at, self._at + 2 * ID_BYTES
        if end > len(self._digits):
            self._digits = os.urandom(ID_BYTES * IDS_AT_ONCE).hex()
            begin, end = 0, 2 * ID_BYTES
        self._at = end
        return self._digits[begin:end]


class Askers(NamedTuple):
    """The capsules that may ask for approval of a call of a tool: its own, and those that stand before it."""

    own: frozenset[str]
    guards: frozenset[str]


class Tools:
    """The tools of one host.

    Args:
        bus: where calls are published and results observed.
        scheduler: who runs them.
        dispatcher: knows whether there is room for one more call.
        registry: whose load order decides between equal names.
        exchanges: which ids are in use.
        principal: of calls that name none.
        cancel_children: signals the processes that calls with these ids of a principal started; called with the bus's lock
            held, on any thread.
    """

    def __init__(
        self,
        bus: Bus,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        registry: Registry,
        exchanges: Exchanges,
        principal: str,
        cancel_children: CancelChildren = lambda _ids, _principal: None,
    ) -> None:
        self._bus = bus
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._registry = registry
        self._exchanges = exchanges
        self._principal = principal
        self._pending: dict[tuple[str | None, str], _Pending] = {}
        self._ids = _Ids()
        self._let_go_at = 0.0
        self._cancel_children = cancel_children
        scheduler.call_at_end(self._host_stopped)
        bus.observe(RESULT, self._result)
        bus.observe(CANCEL, self._cancelled)
        bus.observe_below(FAILED + TOOL_TOPICS, self._failed)

    async def execute(
        self,
        name: str,
        arguments: Any,
        *,
        principal: str | None = None,
        call_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> ToolCallResult:
        """Call a tool and wait for its result; waits for room first when 64 calls of the principal are queued.

        Args:
            name: the tool; the router decides whether it is one.
            arguments: a JSON value, an object for most tools.
            principal: on whose behalf; the host's by default.
            call_id: must be unused among the principal's calls under way; made up by default.
            timeout: seconds for all of it.

        Returns:
            The result. What went wrong is a result with `is_error`: an unknown tool, arguments that are not JSON, a crash, a
            denial, a timeout.

        Raises:
            TypeError: the name, the id or the principal is no text.
            ValueError: the principal is no name for one, or `timeout` is negative.
            HostClosed: the host has stopped.

        When the time is over, or when it is cancelled, the call is cancelled as by `cancel`: nobody waits for its result.
        """
        # The answer below may come without sleeping, which leaves no other chance to notice a cancellation.
        await trio.lowlevel.checkpoint_if_cancelled()
        if not isinstance(name, str) or not isinstance(call_id, str | None):
            raise TypeError(f"a tool's name and a call's id are texts; given {name!r} and {call_id!r}")
        who = self._principal if principal is None else principal
        call = self._ids.next() if call_id is None else call_id
        if (who, call) in self._pending:
            return _in_use(call)
        check_principal(who)
        if not timeout >= 0:
            raise ValueError(f"timeout is in seconds, 0 or more; given {timeout}")
        request = ToolExecuteRequest(call, name, arguments)
        try:
            payload = Payload(written(request), request, typed)
            if len(payload.guest) > PAYLOAD_BYTES:
                raise PayloadError(f"they have {len(payload.guest)} bytes; {PAYLOAD_BYTES} are allowed")
        except PayloadError as error:
            return ToolCallResult(call, f"The arguments for {name} cannot be passed on: {error}", True)
        pending = self._pending[who, call] = _Pending()
        try:
            if self._registry.starting.late:  # a tool of a capsule that is still being loaded is worth the wait
                with trio.move_on_after(timeout):
                    await self._registry.starting.binder(EXECUTE + name)
            self._enter(payload, call, who, pending)
            if pending.answer is not None:
                await self._let_others_run()
                return pending.answer
            with trio.move_on_after(timeout):
                await self._wait(pending)
            return pending.answer or ToolCallResult(call, f"{name} did not answer within {timeout:g} s.", True)
        finally:
            pending.gone = True
            self._pending.pop((who, call), None)
            if pending.outside is not None:
                with self._bus.lock:
                    if pending.outside is not None:
                        pending.outside.admission_waiters.pop(pending, None)
            if pending.answer is None and pending.entered and not self._scheduler.closing:
                self._publish_cancel([call], who)

    async def cancel(self, call_ids: Sequence[str], *, principal: str | None = None) -> None:
        """Cancel calls: what they are doing is ended, and each of them that is under way gets an error result.

        Args:
            call_ids: of calls; those that are not under way are ignored.
            principal: whose calls they are; the host's by default. Nobody else's are touched.

        Raises:
            TypeError: the ids are no list of texts, or the principal is no text.
            ValueError: the principal is no name for one.
            HostClosed: the host has stopped.

        It does not wait for the calls to end.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if isinstance(call_ids, str) or not all(isinstance(call_id, str) for call_id in call_ids):
            raise TypeError(f"call_ids is a list of texts; given {call_ids!r}")
        if self._scheduler.closing:
            raise HostClosed(CLOSED)
        who = self._principal if principal is None else principal
        check_principal(who)
        self._publish_cancel(list(call_ids), who)

    def _publish_cancel(self, call_ids: list[str], principal: str) -> None:
        request = ToolCancelRequest(call_ids)
        with self._bus.lock:
            self._bus.publish(CANCEL, Payload(written(request), request, typed), principal, NIL_SOURCE, entering=True)
        self._scheduler.run_or_wake()

    async def _let_others_run(self) -> None:
        """A loop of calls that are answered at once may not keep the loop for itself: it is let go every millisecond."""
        now = trio.current_time()
        if now - self._let_go_at > LET_GO_S:
            self._let_go_at = now  # before the others run, who would all find it long ago
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _enter(self, payload: Payload, call_id: str, principal: str, pending: _Pending) -> None:
        with self._bus.lock:
            if self._scheduler.closing:
                raise HostClosed(CLOSED)
            entered = self._try_to_enter(payload, call_id, principal, pending)
        if entered:
            self._scheduler.run_or_wake()

    def _try_to_enter(self, payload: Payload, call_id: str, principal: str, pending: _Pending) -> bool | None:
        """Publish a call if there is room; else it waits for that. None: nobody wants it published any more. The bus's lock
        is held."""
        pending.outside = None
        if pending.gone or pending.answer is not None or self._scheduler.closing:
            return None
        full = self._dispatcher.full(REQUEST, principal)
        if full is not None:
            full.admission_waiters[pending] = partial(self._try_to_enter, payload, call_id, principal, pending)
            pending.outside = full
            return False
        if self._exchanges.is_taken(
            principal, call_id, NIL_SOURCE
        ):  # its result would be taken for the one that we wait for
            self._answer(principal, call_id, _in_use(call_id))
            return None
        pending.entered = True
        self._bus.publish(REQUEST, payload, principal, NIL_SOURCE, entering=True)
        return True

    async def _wait(self, pending: _Pending) -> None:
        # The answer may come on another thread at any moment: who looks for it, or for who waits, holds the lock.
        def abort(_raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            with self._bus.lock:
                if pending.answer is not None:
                    return trio.lowlevel.Abort.FAILED  # answered already: the wake-up is on its way
                pending.gone = True
                return trio.lowlevel.Abort.SUCCEEDED

        with self._bus.lock:
            if pending.answer is not None:
                return
            pending.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    # Observers: called on any thread, the bus's lock held.

    def _result(self, event: Event) -> None:
        data = event.data
        if isinstance(data, ToolExecuteResult):
            self._answer(event.principal, data.call_id, data.result)

    def _host_stopped(self) -> None:
        """Nobody will answer what is still under way."""
        with self._bus.lock:
            for principal, call_id in list(self._pending):
                self._answer(principal, call_id, ToolCallResult(call_id, "The host stopped before it answered.", True))

    def _cancelled(self, event: Event) -> None:
        request, principal = event.data, event.principal
        if not isinstance(request, ToolCancelRequest) or principal is None or not request.call_ids:
            return
        ids = frozenset(request.call_ids)
        for call_id in ids:
            pending = self._pending.get((principal, call_id))
            if pending is not None and not pending.entered:
                self._answer(
                    principal, call_id, ToolCallResult(call_id, "The call was cancelled before it began.", True)
                )
        self._cancel_children(request.call_ids, principal)

        def concerned(other: Event) -> bool:
            return isinstance(other.data, ToolExecuteRequest) and other.data.call_id in ids

        self._dispatcher.cancel(principal, concerned, "a cancel request named the call")

    def _answer(self, principal: str | None, call_id: str, result: ToolCallResult) -> None:
        pending = self._pending.get((principal, call_id))
        if pending is None or pending.gone or pending.answer is not None:
            return
        pending.answer = result
        self._scheduler.served = True
        task = pending.task
        if task is not None:
            self._scheduler.call_soon(lambda: trio.lowlevel.reschedule(task))

    def _failed(self, event: Event) -> None:
        """A failure report: answer for it, unless a capsule does."""
        report = event.data
        if not isinstance(report, Report) or not (report.topic == REQUEST or report.topic.startswith(EXECUTE)):
            return  # whoever publishes elsewhere may name any call
        if any(topic.startswith(EXECUTE) for topic in report.published):
            return
        subject = subject_of(report.payload)
        if subject is None or (event.principal, subject.call_id) not in self._pending:
            return
        if report.refused and report.topic not in subject.awaited():
            return  # something else was refused; the call itself may still be answered
        call_id = subject.call_id
        result = ToolCallResult(call_id, explain(report), True)

        def answer() -> None:
            self._answer(event.principal, call_id, result)

        if event.left:
            event.settled = [*(event.settled or ()), answer]
        else:
            answer()

    def askers(self, name: str) -> Askers:
        """The capsules that may ask for approval of a call of a tool."""
        topic = EXECUTE + name
        with self._bus.lock:
            route = self._dispatcher.handlers.route(topic)
        own = frozenset(handler.receiver.id for handler in route.handlers if handler.pattern == topic)
        return Askers(own, frozenset(handler.receiver.id for handler in route.guards))

    async def describe(self, *, principal: str | None = None) -> list[Tool]:
        """Ask every capsule for its tools.

        Args:
            principal: on whose behalf; the host's by default.

        Returns:
            The tools in load order; of two with one name the first. It takes milliseconds: as soon as every capsule that
            has a describe handler has answered or failed, and half a second at most.

        Raises:
            TypeError: the principal is no text.
            ValueError: the principal is no name for one.

        Cancelled, the answers are dropped.
        """
        who = self._principal if principal is None else principal
        check_principal(who)
        return await self.of(who)

    async def of(self, principal: str) -> list[Tool]:
        """`describe`, on behalf of somebody who is a principal for sure."""
        return await describe(self._bus, self._scheduler, self._registry, principal)


def _in_use(call_id: str) -> ToolCallResult:
    return ToolCallResult(call_id, f"A call with the id {call_id} is under way already: use another id.", True)
