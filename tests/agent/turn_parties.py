"""Whole turns of an agent: all bundled capsules in one host, a model played by a script, and what must be true at the end.

    async with conversation(tmp_path, says("Hello.")) as talk:
        assert await talk.ask("hi") == "Hello."

At the end each prompt must have had exactly one final answer, each call of a tool exactly one result, and every request to the
provider a conversation that any provider accepts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing
from guests_in_wat import RECV, RETURNED, SUBSCRIBE, Guest, capsule
from openai_server import Asked, OpenAIServer, Reply, Script, openai_server

from astrid_host import BUNDLED, Host, HostEvent, open_host

TICK, SETTLED = "astrid.v1.watchdog.tick", "astrid.v1.dispatch.settled."
FINAL, DELTA = "agent.v1.response", "agent.v1.stream.delta"
REQUEST, RESULT, CANCEL = "tool.v1.request.execute", "tool.v1.execute.result", "tool.v1.request.cancel"
REACHED, OPEN = "gate.reached", "gate.open"
ALL = sorted(path for path in Path(BUNDLED).iterdir() if path.is_dir())
QUICK = {"retry_wait_ms": 1}
JUNK = "junk"  # a call that nobody made, a request that nobody asked

Where = tuple[str | None, str]  # principal and session


class Answering:
    """A policy that always answers the same, and keeps what it was asked about."""

    def __init__(self, approves: bool) -> None:
        self.approves = approves
        self.asked: list[str] = []

    def decide(self, asked: Any) -> bool:
        self.asked.append(asked.action)
        return self.approves


class Conversation:
    """A user who talks to the agent, and who watches it.

    Attributes:
        prompts: how many each session was given; a cancellation is none.
        finals: what was answered, by session.
        text: the deltas of each session, joined.
        calls: the requests to run a tool, by principal and call id.
        results: their results.
        cancelled: the call ids that the loop gave up.
        reached: how often a gate, or whoever fails, said that it was reached.
        answering: requests to the provider's server that are not over.
        strict: whether each call must have its result on the bus, where other parties see it.
    """

    def __init__(self, host: Host, server: OpenAIServer) -> None:
        self.host = host
        self.server = server
        self.prompts: Counter[Where] = Counter()
        self.finals: dict[Where, list[str]] = defaultdict(list)
        self.text: dict[Where, str] = defaultdict(str)
        self.calls: dict[tuple[str | None, str], list[Any]] = defaultdict(list)
        self.results: dict[tuple[str | None, str], list[Any]] = defaultdict(list)
        self.cancelled: list[str] = []
        self.reached = 0
        self.answering = 0
        self.strict = True
        self._taken: Counter[Where] = Counter()
        self._changed = trio.Event()
        self._script = server.script
        server.script = self._play

    # What a user does.

    def say(self, text: str, session: str = "s", who: str = "default", **context: Any) -> None:
        self.prompts[who, session] += 1
        event = {"type": "user_input", "text": text, "session_id": session, "context": context or None}
        self.host.publish("user.v1.prompt", event, principal=who)

    def cancel(self, session: str = "s", who: str = "default") -> None:
        event = {"type": "user_input", "text": "", "session_id": session, "context": {"action": "cancel_turn"}}
        self.host.publish("user.v1.prompt", event, principal=who)

    async def ask(self, text: str, session: str = "s", who: str = "default", seconds: float = 5, **context: Any) -> str:
        """Say something and wait for the final answer, which must come within that time."""
        self.say(text, session, who, **context)
        return await self.final(session, who, seconds)

    async def final(self, session: str = "s", who: str = "default", seconds: float = 5) -> str:
        """The next final answer of a session."""
        where = who, session
        nth = self._taken[where]
        self._taken[where] += 1
        with trio.fail_after(seconds):
            await self.until(lambda: len(self.finals[where]) > nth)
        return self.finals[where][nth]

    def script(self, script: Script) -> None:
        """Let the model answer otherwise from now on."""
        self._script = script

    def has_said(self, length: int, session: str = "s", who: str = "default") -> bool:
        """Whether so much text was streamed in a session."""
        return len(self.text[who, session]) >= length

    def has_all_results(self) -> bool:
        """Whether no call waits for its result."""
        return all(len(self.results[call]) >= len(made) for call, made in self.calls.items())

    def is_answered(self, session: str = "s", who: str = "default") -> bool:
        """Whether no prompt of a session waits for its answer."""
        return len(self.finals[who, session]) >= self.prompts[who, session]

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until what is watched makes that true."""
        while not happened():
            await self._changed.wait()

    async def tick(self, who: str | None = "default") -> None:
        """Let the watchdog look at the turns of a principal, and wait until it has."""
        async with self.host.subscribe(SETTLED + TICK, principal=who) as settled:
            self.host.publish(TICK, {}, principal=who, settle=True)
            await settled.__anext__()

    async def rest(self) -> None:
        """Until nothing is under way: the server is left alone, nothing waits in queues, the loop has handled all that came
        and looked at its turns once more, and all of that was seen."""
        await self.until(lambda: not self.answering)
        for who in {who for who, _ in self.prompts}:
            await self.tick(who)
            while self.host.stats().queued:
                await self.tick(who)
        await trio.testing.wait_all_tasks_blocked()

    async def check(self) -> None:
        """Wait for rest, and look whether everything came to its one end."""
        with trio.fail_after(10):
            await self.rest()
        for where, prompts in self.prompts.items():
            assert len(self.finals[where]) == prompts, (where, self.finals[where])
        for call, made in self.calls.items():
            given = len(self.results[call])
            assert given == len(made) or (not self.strict and given < len(made)), (call, len(made), given)
        assert {call for call in self.results if call[1] != JUNK} <= set(self.calls)
        for asked in self.server.asked:
            check_messages(asked.messages)

    # What is watched.

    async def watch(self, nursery: trio.Nursery, floods: bool) -> None:
        for topic in (FINAL, DELTA, RESULT, CANCEL, REACHED):
            await nursery.start(self._watch, topic, False)
        # Somebody who receives requests would be one who handles them when there is no router; who only watches misses some in
        # a flood.
        await nursery.start(self._watch, REQUEST, not floods)

    async def _watch(
        self, pattern: str, observe: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with self.host.subscribe(pattern, observe=observe) as events:
            task_status.started()
            async for event in events:
                assert (events.lagged, events.dropped) == (0, 0)
                self._see(event)
                self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _see(self, event: HostEvent) -> None:
        payload, who = event.payload, event.principal
        if not isinstance(payload, dict):
            return
        match event.topic:
            case "gate.reached":
                self.reached += 1
            case "agent.v1.response":
                assert payload["is_final"]
                self.finals[who, payload["session_id"]].append(payload["text"])
            case "agent.v1.stream.delta":
                assert not payload["is_final"]
                self.text[who, payload["session_id"]] += payload["text"]
            case "tool.v1.request.execute":
                self.calls[who, payload["call_id"]].append(payload)
            case "tool.v1.execute.result" if "result" in payload:
                assert payload["result"]["call_id"] == payload["call_id"]
                self.results[who, payload["call_id"]].append(payload["result"])
            case "tool.v1.request.cancel":
                self.cancelled += payload["call_ids"]

    async def _play(self, asked: Asked, reply: Reply) -> None:
        self.answering += 1
        self._change()
        try:
            await self._script(asked, reply)
        finally:
            self.answering -= 1
            self._change()


def check_messages(messages: list[Any]) -> None:
    """A conversation as providers want it: each call is answered once, by the messages that follow it."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert not waiting, messages
        assert message.get("content") or message.get("tool_calls"), messages
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        assert len(waiting) == len(set(waiting))
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting, messages
    assert messages[-1]["role"] in ("user", "tool")


@asynccontextmanager
async def conversation(
    workspace: Path,
    script: Script,
    *,
    capsules: Iterable[Path] = ALL,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    floods: bool = False,
    at: str = "",
    listing: Any = None,
    **options: Any,
) -> AsyncIterator[Conversation]:
    """Talk to an agent of these capsules. `floods`: there is a router all the time, and more events than an observer can see.
    `at` is what follows the server's address in its URL, `listing` its list of models."""
    async with openai_server(script) as server:
        server.listing = listing
        settings = {name: dict(rows) for name, rows in (config or {}).items()}
        provider = {"base_url": server.url + at, "model": "test", **QUICK, **settings.get("openai-compat", {})}
        options = {"state_dir": ":memory:", "allow_local": [server.address], "strict": True, **options}
        settings["openai-compat"] = provider
        async with open_host(list(capsules), trust=True, workspace=workspace, config=settings, **options) as host:
            async with trio.open_nursery() as nursery:
                talk = Conversation(host, server)
                await talk.watch(nursery, floods)
                yield talk
                await talk.check()
                nursery.cancel_scope.cancel()


# Capsules that stand in a turn's way.


def waits(guest: Guest) -> str:
    """An instruction that says it was reached, and waits until somebody says that it may go on."""
    return f"""
    (call $subscribe {guest.text(OPEN)} (i32.const {RETURNED}))
    (local.set $j (i32.load (i32.const {RETURNED + 4})))
    {guest.say(REACHED, "{}")}
    (call $recv (local.get $j) (i64.const 60000) (i32.const {RETURNED + 96}))"""


def gate(place: Path, *topics: str) -> Path:
    """A guard that holds each event of these topics before anybody else handles it."""
    guest = Guest(SUBSCRIBE, RECV)
    rows: dict[str, Any] = {topic: {"handler": "hold", "guard": True, "priority": 1} for topic in topics}
    return capsule(place, "gate", guest.handles(waits(guest)), {**rows, OPEN: {}}, [REACHED], {"concurrency": 8})


def hanging_tool(place: Path, name: str = "hang") -> Path:
    """A tool that says it was reached, and goes on only when it may: then it ends without an answer."""
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(guest.when("e", waits(guest)))
    rows: dict[str, Any] = {f"tool.v1.execute.{name}": "execute", OPEN: {}}
    return capsule(place, name, guest, rows, [REACHED, "tool.v1.execute.*.result"], **tool_row(name))


def crashing_tool(place: Path, name: str = "crash") -> Path:
    return capsule(
        place, name, Guest().handles("(unreachable)"), {f"tool.v1.execute.{name}": "execute"}, **tool_row(name)
    )


def tool_row(name: str) -> dict[str, Any]:
    """A manifest's table that makes a tool known."""
    return {"tool": [{"name": name, "description_for_llm": "x", "input_schema_wit": "opaque"}]}
