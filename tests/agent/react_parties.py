"""The parties that an agent's loop talks to, played by a script: session, identity, prompt builder, registry, provider,
router and tools. Each answers what it is asked, unless it is told to be silent; all that the loop publishes is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from astrid_host import BUNDLED, Host, HostEvent, open_host

REACT = Path(BUNDLED) / "react"
PROVIDER = "llm.v1.request.generate.scripted"
STREAM = "llm.v1.stream.scripted"
TICK = "astrid.v1.watchdog.tick"
SETTLED = "astrid.v1.dispatch.settled."
AT_ONCE = 32  # so many events a queue takes from outside with room to spare

Answer = Iterable[Any]  # events of a stream
Where = tuple[str | None, str]  # principal and session


def said(text: str) -> Answer:
    """An answer of text alone, in two tokens."""
    return [{"TextDelta": text[:2]}, {"TextDelta": text[2:]}, "Done"]


def call(name: str, arguments: str = "{}", call_id: str = "c1") -> list[Any]:
    """The events of one tool call, its arguments in two pieces."""
    return [
        {"ToolCallStart": {"id": call_id, "name": name}},
        {"ToolCallDelta": {"id": call_id, "args_delta": arguments[:3]}},
        {"ToolCallDelta": {"id": call_id, "args_delta": arguments[3:]}},
        {"ToolCallEnd": {"id": call_id}},
    ]


class Parties:
    """Everybody but the loop.

    Attributes:
        script: what the provider answers, request by request; the last answer again and again.
        silent: topics of requests that are received and not answered.
        seen: what the loop published, by topic.
        history: the messages of each session.
    """

    def __init__(self, host: Host, script: Iterable[Answer], silent: Iterable[str]) -> None:
        self.host = host
        self.script = list(script)
        self.silent = set(silent)
        self.seen: dict[str, list[HostEvent]] = defaultdict(list)
        self.history: dict[Where, list[Any]] = defaultdict(list)
        self.prompts: dict[Where, int] = defaultdict(int)
        self.selected: Any = {"id": "scripted:m", "request_topic": PROVIDER}
        self.tools: Any = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
        self.prefix = ""
        self.tool: Callable[[Any], str] = lambda request: f"{request['tool_name']} done"
        self._changed = trio.Event()
        self._taken: dict[Where, int] = defaultdict(int)
        self._called: list[tuple[str, str]] = []

    # What a user does.

    def say(self, text: str, session: str = "s", who: str = "default", **context: Any) -> None:
        self.prompts[who, session] += 1
        event = {"type": "user_input", "text": text, "session_id": session, "context": context or None}
        self.host.publish("user.v1.prompt", event, principal=who)

    def cancel(self, session: str = "s", who: str = "default") -> None:
        event = {"type": "user_input", "text": "", "session_id": session, "context": {"action": "cancel_turn"}}
        self.host.publish("user.v1.prompt", event, principal=who)

    async def ask(self, text: str, session: str = "s", who: str = "default", **context: Any) -> str:
        """Say something and wait for the final answer."""
        self.say(text, session, who, **context)
        return await self.final(session, who)

    async def final(self, session: str = "s", who: str = "default") -> str:
        """The next final answer of a session."""
        n = self._taken[who, session]
        self._taken[who, session] += 1
        await self.until(lambda: len(self.finals(session, who)) > n)
        return self.finals(session, who)[n]

    def finals(self, session: str = "s", who: str = "default") -> list[str]:
        events = self.seen["agent.v1.response"]
        return [e.payload["text"] for e in events if (e.principal, e.payload["session_id"]) == (who, session)]

    def deltas(self, session: str = "s", who: str = "default") -> str:
        events = self.seen["agent.v1.stream.delta"]
        return "".join(e.payload["text"] for e in events if (e.principal, e.payload["session_id"]) == (who, session))

    def payloads(self, topic: str) -> list[Any]:
        return [event.payload for event in self.seen[topic]]

    async def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            await self._changed.wait()

    async def asked(self, topic: str, times: int = 1) -> Any:
        """Wait until the loop has published there; returns the last of it."""
        await self.until(lambda: len(self.seen[topic]) >= times)
        return self.seen[topic][-1].payload

    async def tick(self, who: str = "default") -> None:
        """Let the watchdog look, and wait until it has."""
        async with self.host.subscribe(SETTLED + TICK, principal=who) as settled:
            self.host.publish(TICK, {}, principal=who, settle=True)
            await settled.__anext__()
        await trio.testing.wait_all_tasks_blocked()  # the parties have what was published before

    async def check_finals(self) -> None:
        """Each prompt has exactly one final answer, also after the watchdog has looked once more."""
        for who in {who for who, _ in self.prompts}:
            assert who is not None
            await self.tick(who)
        for (who, session), prompts in self.prompts.items():
            assert who is not None
            assert len(self.finals(session, who)) == prompts, (who, session, self.finals(session, who))
        assert all(event.payload["is_final"] for event in self.seen["agent.v1.response"])
        assert not any(event.payload["is_final"] for event in self.seen["agent.v1.stream.delta"])

    # What the others do.

    async def play(self, nursery: trio.Nursery) -> None:
        parties: Mapping[str, Callable[[HostEvent], None] | None] = {
            "session.v1.request.get_messages": self._get_messages,
            "session.v1.append": self._append,
            "spark.v1.request.build": self._build,
            "prompt_builder.v1.assemble": self._assemble,
            "registry.v1.get_active_model": self._active_model,
            "tool.v1.request.execute": self._execute,
            "tool.v1.request.cancel": None,
            "llm.v1.request.cancel.scripted": None,
            "agent.v1.response": None,
            "agent.v1.stream.delta": None,
            "agent.v1.session_changed": None,
        }
        for topic, party in parties.items():
            await nursery.start(self._listen, topic, party)
        await nursery.start(self._provide, nursery)

    async def _listen(
        self,
        topic: str,
        party: Callable[[HostEvent], None] | None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with self.host.subscribe(topic) as events:
            task_status.started()
            async for event in events:
                self._keep(topic, event)
                if party is not None and topic not in self.silent:
                    party(event)

    def _keep(self, topic: str, event: HostEvent) -> None:
        self.seen[topic].append(event)
        self._changed.set()
        self._changed = trio.Event()

    def _get_messages(self, event: HostEvent) -> None:
        asked = event.payload
        messages = self.history[event.principal, asked["session_id"]]
        messages.extend(asked.get("append_before_read", []))
        answer = {"correlation_id": asked["correlation_id"], "messages": messages}
        topic = f"session.v1.response.get_messages.{asked['correlation_id']}"
        self.host.publish(topic, answer, principal=event.principal)

    def _append(self, event: HostEvent) -> None:
        self.history[event.principal, event.payload["session_id"]].extend(event.payload["messages"])

    def _build(self, event: HostEvent) -> None:
        answer = {"prompt": "You are a test.", "session_id": event.payload["session_id"]}
        self.host.publish("spark.v1.response.ready", answer, principal=event.principal)

    def _assemble(self, event: HostEvent) -> None:
        asked = event.payload
        answer = {
            "system_prompt": asked["system_prompt"] + " Be brief.",
            "user_context_prefix": self.prefix,
            "request_id": asked["request_id"],
            "session_id": asked["session_id"],
            "tools": self.tools,
            "messages": asked["messages"],
        }
        self.host.publish("prompt_builder.v1.response.assemble", answer, principal=event.principal)

    def _active_model(self, event: HostEvent) -> None:
        self.host.publish("registry.v1.response.get_active_model", self.selected, principal=event.principal)

    def _execute(self, event: HostEvent) -> None:
        if event.payload["tool_name"] not in self.silent:
            self.answer_call(event.payload["call_id"], self.tool(event.payload), who=event.principal)

    def on_the_bus(self, call_id: str) -> str:
        """The id under which the loop called the tool that the provider called last by that id; without such, the id itself."""
        calls = [(name, [other for other, tool in self._called if tool == name]) for _, name in self._called]
        for name, ids in calls[::-1]:
            made = [
                event.payload["call_id"]
                for event in self.seen["tool.v1.request.execute"]
                if event.payload["tool_name"] == name
            ]
            for given, bus in list(zip(ids, made, strict=False))[::-1]:
                if given == call_id:
                    return str(bus)
        return call_id

    def answer_call(self, call_id: str, content: str, *, is_error: bool = False, who: str | None = None) -> None:
        call_id = self.on_the_bus(call_id)
        result = {"call_id": call_id, "content": content, "is_error": is_error}
        event = {"type": "tool_execute_result", "call_id": call_id, "result": result}
        self.host.publish("tool.v1.execute.result", event, principal=who)

    async def _provide(
        self, nursery: trio.Nursery, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with self.host.subscribe(PROVIDER) as events:
            task_status.started()
            async for event in events:
                self._keep(PROVIDER, event)
                if PROVIDER not in self.silent:
                    answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                    nursery.start_soon(self.stream, event.payload["request_id"], answer, event.principal)

    async def stream(self, request_id: str, answer: Answer, who: str | None = None) -> None:
        """Publish the events of an answer, as fast as they are taken."""
        for n, event in enumerate(answer, 1):
            if isinstance(event, dict) and "ToolCallStart" in event:
                self._called.append((event["ToolCallStart"]["id"], event["ToolCallStart"]["name"]))
            what = {"type": "llm_stream_event", "request_id": request_id, "event": event}
            if n % AT_ONCE:
                self.host.publish(STREAM, what, principal=who)
                continue
            async with self.host.subscribe(SETTLED + STREAM, principal=who) as settled:
                self.host.publish(STREAM, what, principal=who, settle=True)
                await settled.__anext__()


@asynccontextmanager
async def agent(
    workspace: Path,
    *script: Answer,
    silent: Iterable[str] = (),
    capsules: Iterable[Path] = (REACT,),
    config: Mapping[str, Any] | None = None,
    state_dir: str | Path = ":memory:",
) -> AsyncIterator[Parties]:
    """The loop with all its parties; at the end each prompt must have had exactly one final answer."""
    settings = {"react": dict(config or {})}
    async with open_host(
        list(capsules), trust=True, state_dir=state_dir, workspace=workspace, config=settings, strict=True
    ) as host:
        async with trio.open_nursery() as nursery:
            parties = Parties(host, script or [said("Hello.")], silent)
            await parties.play(nursery)
            yield parties
            await parties.check_finals()
            nursery.cancel_scope.cancel()
