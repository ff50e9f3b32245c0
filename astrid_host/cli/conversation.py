"""A conversation with the agent of a host, over topics: prompts go out, and what the agent says and does is shown as it comes.

A turn begins with a prompt and ends with the agent's final response in the same session, with its time, or with the host. What
tools are called on behalf of the principal meanwhile is shown: tool calls do not say which session they belong to. Questions for
approval are answered only while a turn runs. Who talks in one session shares its turns: to cancel is to end the one that runs in
it, whoever's prompt it answers.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import trio

from astrid_host.bus import FAILED
from astrid_host.cli.answering import Allowances, answer, question_in
from astrid_host.errors import AstridError
from astrid_host.hostcalls.approval import ANSWERS, TOPIC
from astrid_host.kernel_methods import ANSWER, PROMPT
from astrid_host.payloads import NIL_SOURCE
from astrid_host.tools.topics import REQUEST, RESULT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from astrid_host.cli.served import Served
    from astrid_host.payloads.kinds import ApprovalRequired
    from astrid_host.payloads.outside import HostEvent

DELTA = "agent.v1.stream.delta"
TURN_FAILED = "agent.v1.event.turn_failed"  # comes before the final response, which says why
TURN_CUT = "agent.v1.event.turn_cut"  # comes before a final response that was cut off, and says how
PROMPT_FAILED = FAILED + PROMPT
CANCELLED_S = 5.0  # an agent need not say anything after a turn was cancelled
DECIDED_S = 60.0  # so long the host waits for a decision
LEAVE_S = 1.0

Ended: TypeAlias = Literal["answered", "failed", "cancelled", "silent"]


class Decided(NamedTuple):
    """What was decided on a request for approval, and whether a person typed it here."""

    decision: str
    typed: bool = False


Decide: TypeAlias = "Callable[[ApprovalRequired], Awaitable[Decided]]"


class Screen(Protocol):
    """Where a conversation is shown."""

    def delta(self, text: str) -> None:
        """Some more of what the agent says."""
        ...

    def tool_call(self, call_id: str, name: str, arguments: Any) -> None:
        """It calls a tool."""
        ...

    def tool_result(self, call_id: str, content: str, is_error: bool) -> None:
        """The tool has answered."""
        ...

    def approval(self, request: ApprovalRequired, decision: str, typed: bool) -> None:
        """A request for approval was decided on, by what a person typed here or not; `undecided` when it was not, here."""
        ...

    def question(self, text: str) -> AbstractContextManager[None]:
        """Ask, while the body waits for the answer."""
        ...

    def interrupted(self) -> None:
        """The terminal has shown that a key was pressed."""
        ...

    def final(self, text: str, failed: bool = False, cut: str | None = None) -> None:
        """The turn's last word; all of it, also what was said in deltas. When it failed, why; when it was cut off, how."""
        ...

    def silent(self, seconds: float) -> None:
        """No last word came for so long."""
        ...

    def note(self, text: str) -> None:
        """What the person shall know besides."""
        ...


class Conversation:
    """The turns of one session, one after the other.

    Args:
        host: whose agent it is.
        screen: shows what happens.
        decide: on requests for approval; cancelled when nobody waits for the decision any more.
        session_id: the session's.
        model: which one shall answer; None leaves it to the agent.
        timeout: seconds that a turn may take.

    Attributes:
        in_turn: whether a turn runs.
        cancelled: whether the turn that runs, or ran last, was cancelled.
    """

    def __init__(
        self, host: Served, screen: Screen, decide: Decide, session_id: str, model: str | None, timeout: float
    ) -> None:
        self._host = host
        self._screen = screen
        self._decide = decide
        self._session = session_id
        self._context: dict[str, str] = {} if model is None else {"model": model}
        self._timeout = timeout
        self._bound = trio.CancelScope()
        self.in_turn = False
        self.cancelled = False
        self._calls: set[str] = set()
        self._answered: set[str] = set()
        self._asking: dict[str, trio.CancelScope] = {}
        self._allowances = Allowances()
        self._fails = False
        self._cut: str | None = None

    async def turn(self, text: str) -> Ended:
        """Say something, and show what comes of it.

        Returns:
            How it ended: `answered` by a final response, or `failed`, which it tells; `cancelled`, whether one came then or
            not; `silent` when none came in time.

        Raises:
            AstridError: nobody answers prompts, or this one cannot be sent.
            HostClosed: the host has stopped.

        Cancelled, the agent is told to end the turn.
        """
        self._calls, self._answered, self._fails, self._cut = set(), set(), False, None
        self._bound = trio.CancelScope(deadline=trio.current_time() + self._timeout)
        self.in_turn, self.cancelled, final = True, False, False
        watched = (REQUEST, RESULT, PROMPT_FAILED, TURN_FAILED, TURN_CUT, f"{ANSWERS}*")
        try:
            with self._bound:
                async with self._host.subscribe(DELTA, ANSWER, TOPIC, observe=watched) as events:
                    await self._say(text, self._context)
                    final = await self._follow(events)
        finally:
            self.in_turn = False
            if not final:
                with trio.move_on_after(LEAVE_S, shield=True), contextlib.suppress(AstridError, OSError):
                    await self._tell_to_end()
        if self.cancelled:
            return "cancelled"
        if final:
            return "failed" if self._fails else "answered"
        return "silent"

    async def cancel(self) -> None:
        """Tell the agent to end the turn; its last word is waited for a little longer."""
        self.cancelled = True
        self._bound.deadline = min(self._bound.deadline, trio.current_time() + CANCELLED_S)
        await self._tell_to_end()

    async def _say(self, text: str, context: Mapping[str, str]) -> None:
        payload: dict[str, Any] = {"type": "user_input", "text": text, "session_id": self._session}
        if context:
            payload["context"] = dict(context)
        await self._host.publish(PROMPT, payload)

    async def _tell_to_end(self) -> None:
        await self._say("", {"action": "cancel_turn"})

    async def _follow(self, events: Any) -> bool:
        """Show events until the final response."""
        requests, asked = trio.open_memory_channel[Any](math.inf)  # of calls that wait: the host bounds them
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, asked)
            async for event in events:
                if event.topic == TOPIC:
                    if (request := question_in(event)) is not None:
                        requests.send_nowait((event.seq, request))
                elif event.topic == PROMPT_FAILED:
                    await self._failed(event.payload)
                elif self._show(event):
                    break
            nursery.cancel_scope.cancel()
        return True

    def _show(self, event: HostEvent) -> bool:
        """Show an event; whether it was the last."""
        said = event.payload
        if not isinstance(said, dict):
            return False
        if event.topic in (DELTA, ANSWER):
            text = said.get("text")
            if said.get("session_id") != self._session or not isinstance(text, str):
                return False
            if event.topic == ANSWER and said.get("is_final") is True:
                self._screen.final(text, self._fails, self._cut)
                return True
            if event.topic == DELTA:
                self._screen.delta(text)
        elif event.topic == TURN_FAILED:
            self._fails = self._fails or said.get("session_id") == self._session
        elif event.topic == TURN_CUT:
            if said.get("session_id") == self._session and isinstance(cut := said.get("cut"), str):
                self._cut = cut
        elif event.topic == REQUEST:
            self._called(event.source_id, said)
        elif event.topic == RESULT:
            self._result(said)
        elif event.topic.startswith(ANSWERS):
            self._answered.add(event.topic.removeprefix(ANSWERS))
            for request_id in self._answered & self._asking.keys():
                self._asking[request_id].cancel()
        return False

    def _called(self, source_id: str, said: dict[str, Any]) -> None:
        """A tool is called; by a capsule, or by another command, which is no part of the turn."""
        call_id, name = said.get("call_id"), said.get("tool_name")
        if source_id != NIL_SOURCE and isinstance(call_id, str) and isinstance(name, str):
            self._calls.add(call_id)
            self._screen.tool_call(call_id, name, said.get("arguments"))

    def _result(self, said: dict[str, Any]) -> None:
        call_id, result = said.get("call_id"), said.get("result")
        if isinstance(call_id, str) and call_id in self._calls and isinstance(result, dict):
            self._calls.discard(call_id)
            self._screen.tool_result(call_id, str(result.get("content")), bool(result.get("is_error")))

    async def _failed(self, report: Any) -> None:
        """A prompt was not handled as it should be."""
        if not isinstance(report, dict) or not isinstance(report.get("payload"), dict):
            return
        if report["payload"].get("session_id") != self._session:
            return
        if report.get("reason") == "no-handler":
            raise AstridError(await lacking(self._host) or "no capsule takes prompts on user.v1.prompt any more")
        who = report.get("capsule") or "a capsule"
        self._screen.note(f"{who} failed to handle the prompt: {report.get('reason')}: {report.get('detail')}")

    async def _answer(self, asked: trio.MemoryReceiveChannel[tuple[int, ApprovalRequired]]) -> None:
        """Have requests decided on, one after the other."""
        async for seq, request in asked:
            if request.request_id in self._answered:
                continue
            decided = None
            with trio.move_on_after(DECIDED_S) as scope:
                self._asking[request.request_id] = scope
                covered = self._allowances.cover(request, seq)
                decided = Decided("approve") if covered else await self._decide(request)
            del self._asking[request.request_id]
            if decided is not None:
                answered = await answer(self._host, request, decided.decision)
                self._allowances.keep(request, decided.decision, answered)
            self._screen.approval(request, *(decided or Decided("undecided")))


async def lacking(host: Served) -> str | None:
    """What the host's capsules lack to answer prompts; None when nothing is lacking."""
    ready = await host.ask("GetAgentReadiness")
    loaded = ", ".join(ready["loaded_capsules"]) or "none"
    if not ready["prompt_subscribers"]:
        what = f"no loaded capsule takes prompts ({PROMPT})"
    elif not ready["response_publishers"]:
        what = f"no loaded capsule may answer prompts ({ANSWER})"
    else:
        return None
    return (
        f"{what}; loaded are: {loaded}. An agent is needed, such as the bundled `react`: leave --no-bundled out, add one with "
        "--capsules, and see `astrid-host run` for what did not load"
    )


def new_session() -> str:
    """An id that no session has."""
    return str(uuid.uuid4())
