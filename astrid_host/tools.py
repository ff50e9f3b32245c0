"""The tool convention, as a client of the bus: execute and describe, and what a manifest needs to take part.

This is the only file of the host that knows tool topics; the kernel only matches them. A call is published on the request
topic, a router validates its name and passes it on, the tool answers, the router publishes the answer on the result topic.
Every call gets exactly one result: `execute` never raises for what happened to a call. When the kernel reports a failure of
one of its events and no capsule answers for it, the answer is made here.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from astrid_host.bus import FAILED, Bus, Event, Report
from astrid_host.calls import Turns
from astrid_host.capsules import Capsule, Registry
from astrid_host.dispatch import Dispatcher
from astrid_host.errors import HostClosed, PayloadError
from astrid_host.manifest import Manifest
from astrid_host.payloads import (
    NIL_SOURCE,
    Payload,
    ToolCallResult,
    ToolExecuteRequest,
    ToolExecuteResult,
    from_value,
    written,
)

log = logging.getLogger(__name__)

REQUEST = "tool.v1.request.execute"
RESULT = "tool.v1.execute.result"
EXECUTE = "tool.v1.execute."
DESCRIBE = "tool.v1.request.describe"
DESCRIBED = "tool.v1.response.describe."
DESCRIBE_S = 0.5
TIMEOUT_S = 60.0
LET_GO_S = 0.001


class Tool(msgspec.Struct, frozen=True):
    """A tool as its capsule describes it.

    Attributes:
        name: what it is called by.
        description: for the model.
        input_schema: JSON Schema of its arguments.
        capsule: who provides it.
        mutable: whether it changes anything; from the manifest, or from the schema.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    capsule: str
    mutable: bool


def bound_once(pattern: str) -> bool:
    """Whether only one capsule may have a handler on this pattern: a tool has one provider."""
    return tool_of(pattern) is not None


def tool_of(pattern: str) -> str | None:
    """The tool that a handler on this pattern provides."""
    name = pattern.removeprefix(EXECUTE)
    if name == pattern or "." in name or name in ("*", "result", ""):
        return None
    return name


def tools_of(manifest: Manifest) -> list[str]:
    """The tools that a manifest's handlers provide."""
    return [name for row in manifest.handlers if (name := tool_of(row.pattern)) is not None]


class _Pending:
    """A call that waits for its result."""

    __slots__ = ("answer", "gone", "task")

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.answer: ToolCallResult | None = None
        self.gone = False


class Tools:
    """The tools of one host.

    Args:
        bus: where calls are published and results observed.
        turns: who runs them.
        dispatcher: knows whether there is room for one more call.
        registry: whose load order decides between equal names.
        principal: of calls that name none.
    """

    def __init__(self, bus: Bus, turns: Turns, dispatcher: Dispatcher, registry: Registry, principal: str) -> None:
        self._bus = bus
        self._turns = turns
        self._dispatcher = dispatcher
        self._registry = registry
        self._principal = principal
        self._pending: dict[tuple[str | None, str], _Pending] = {}
        self._prefix = secrets.token_hex(4)
        self._calls = itertools.count(1)
        self._let_go_at = 0.0
        bus.observe(RESULT, self._result)
        bus.observe_below(f"{FAILED}tool.v1.", self._failed)

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
            TypeError: the name or the id is no text.
            HostClosed: the host has stopped.

        Cancelled before there was room, nothing was published; cancelled later, the result is dropped when it comes.
        """
        # The answer below may come without sleeping, which leaves no other chance to notice a cancellation.
        await trio.lowlevel.checkpoint_if_cancelled()
        if not isinstance(name, str) or not isinstance(call_id, str | None):
            raise TypeError(f"a tool's name and a call's id are texts; given {name!r} and {call_id!r}")
        who = self._principal if principal is None else principal
        call = f"{self._prefix}-{next(self._calls)}" if call_id is None else call_id
        if (who, call) in self._pending:
            return ToolCallResult(call, f"A call with the id {call} is under way already: use another id.", True)
        if self._turns.closed:
            raise HostClosed("this host has stopped: call its tools inside its `async with open_host(...)`")
        request = ToolExecuteRequest(call, name, arguments)
        try:
            payload = Payload(written(request), request)
        except PayloadError as error:
            return ToolCallResult(call, f"The arguments for {name} cannot be passed on: {error}", True)
        pending = self._pending[who, call] = _Pending()
        try:
            self._enter(payload, who, pending)
            if pending.answer is not None:
                await self._let_others_run()
                return pending.answer
            with trio.move_on_after(timeout):
                await self._wait(pending)
            return pending.answer or ToolCallResult(call, f"{name} did not answer within {timeout:g} s.", True)
        finally:
            pending.gone = True
            self._pending.pop((who, call), None)

    async def _let_others_run(self) -> None:
        """A loop of calls that are answered at once may not keep the loop for itself: it is let go every millisecond."""
        now = trio.current_time()
        if now - self._let_go_at > LET_GO_S:
            self._let_go_at = now  # before the others run, who would all find it long ago
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _enter(self, payload: Payload, principal: str, pending: _Pending) -> None:
        def enter() -> bool:
            if pending.gone:
                return False
            full = self._dispatcher.full(REQUEST, principal)
            if full is not None:
                full.outside.append(enter)
                return False
            self._bus.publish(REQUEST, payload, principal, NIL_SOURCE, entering=True)
            return True

        with self._bus.lock:
            entered = enter()
        if entered:
            self._turns.go()

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

    def _answer(self, principal: str | None, call_id: str, result: ToolCallResult) -> None:
        pending = self._pending.get((principal, call_id))
        if pending is None or pending.gone or pending.answer is not None:
            return
        pending.answer = result
        self._turns.served = True
        task = pending.task
        if task is not None:
            self._turns.tell(lambda: trio.lowlevel.reschedule(task))

    def _failed(self, event: Event) -> None:
        """A failure report: answer for it, unless a capsule does."""
        report = event.data
        if not isinstance(report, Report) or any(topic.startswith(EXECUTE) for topic in report.published):
            return
        subject = _subject(report.payload)
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

    # Describing.

    async def describe(self, *, principal: str | None = None) -> list[Tool]:
        """Ask every capsule for its tools.

        Args:
            principal: on whose behalf; the host's by default.

        Returns:
            The tools in load order; of two with one name the first. It takes milliseconds: as soon as every capsule that
            has a describe handler has answered or failed, and half a second at most.

        Cancelled, the answers are dropped.
        """
        who = self._principal if principal is None else principal
        over = trio.Event()
        answers: list[Event] = []

        def heard(event: Event) -> None:
            if event.principal == who:
                answers.append(event)

        with self._bus.lock:
            stop = self._bus.observe_below(DESCRIBED, heard)
            event = self._bus.publish(DESCRIBE, from_value({}), who, NIL_SOURCE, entering=True)
            waiting = event.left > 0
            if waiting:
                event.settled = [lambda: self._turns.tell(over.set)]
        try:
            self._turns.go()
            if waiting:
                with trio.move_on_after(DESCRIBE_S):
                    await over.wait()
        finally:
            with self._bus.lock:
                stop()
        return self._gather(answers)

    def _gather(self, answers: list[Event]) -> list[Tool]:
        by_source: dict[str, list[Event]] = {}
        for answer in answers:
            by_source.setdefault(answer.source_id, []).append(answer)
        found: dict[str, Tool] = {}
        for capsule in self._registry.capsules.values():
            for answer in by_source.get(capsule.source_id, ()):
                for tool in _tools_in(answer, capsule):
                    found.setdefault(tool.name, tool)
        return list(found.values())


class _Subject(msgspec.Struct):
    """The call that an event is about: a request, or a result on its way."""

    call_id: str
    tool_name: str | None = None

    def awaited(self) -> tuple[str, ...]:
        """The topics on which the call goes on from here."""
        if self.tool_name is None:
            return (RESULT,)
        return (f"{EXECUTE}{self.tool_name}", f"{EXECUTE}{self.tool_name}.result", RESULT)


def _subject(payload: Any) -> _Subject | None:
    if not isinstance(payload, msgspec.Raw):
        return None
    try:
        return msgspec.json.decode(payload, type=_Subject)
    except msgspec.DecodeError:
        return None


class _Described(msgspec.Struct):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class _Answer(msgspec.Struct):
    tools: list[Any]


def _tools_in(event: Event, capsule: Capsule) -> list[Tool]:
    """The tools that one answer describes. What is not described as a tool is left out, and said."""
    data = event.data
    if isinstance(data, dict) and "tools" not in data and isinstance(data.get("data"), dict):
        data = data["data"]
    try:
        described = [msgspec.convert(tool, _Described) for tool in msgspec.convert(data, _Answer).tools]
    except msgspec.ValidationError:
        described = _readable(data, capsule)
    declared = {tool.name for tool in capsule.manifest.tools if tool.mutable}
    return [
        Tool(
            tool.name,
            tool.description,
            tool.input_schema,
            capsule.id,
            tool.name in declared or tool.input_schema.get("mutable") is True,
        )
        for tool in described
    ]


def _readable(data: Any, capsule: Capsule) -> list[_Described]:
    """Of an answer that has something wrong in it, the tools that can be read."""
    found = []
    for tool in data["tools"] if isinstance(data, dict) and isinstance(data.get("tools"), list) else [data]:
        try:
            found.append(msgspec.convert(tool, _Described))
        except msgspec.ValidationError as error:
            log.warning("%s describes a tool that cannot be used: %s", capsule.id, error)
    return found


def explain(report: Report) -> str:
    """A failure of a tool call, told so that a model can act on it."""
    tool = tool_of(report.topic) or (report.capsule or "The tool")
    if report.reason == "no-handler":
        if report.topic == REQUEST:
            return "No router is loaded, so no tool can be called."
        return f"No capsule provides a tool named {tool}."
    words = {
        "trap": "crashed",
        "deny": "refused the call",
        "timeout": "computed for too long",
        "cancelled": "was cancelled",
        "queue-full": "is busy; try again later",
        "quarantined": "failed too often and is not called for a while",
        "loop": "was called in an endless loop",
        "no-instance": "could not be started; try again later",
        "guest-fault": "returned what cannot be read",
        "publish-denied": "could not publish its result",
    }
    return f"{tool} {words.get(report.reason, report.reason)}: {report.detail}"
