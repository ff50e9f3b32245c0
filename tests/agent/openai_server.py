"""A server that speaks OpenAI's streaming chat completions, for tests: scripts say what it answers.

    async with openai_server(in_turn(calls(("list_directory", {"dir_path": "."})), says("Done", "."))) as server:
        ...  # server.url, server.asked

A script is called with what was asked and with the reply to write. It sees all messages of the conversation, so one script
can play all of a turn: `in_turn` answers request by request, `by_results` by how many results of tools there are. A
request that the strictest of servers would refuse is refused, and fails the test at the end.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from strict_server import fault

JSON: TypeAlias = Any
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Asked:
    """A request for a completion.

    Attributes:
        number: counts requests from 0.
        headers: names in lower case.
        body: as sent.
    """

    number: int
    headers: Mapping[str, str]
    body: JSON

    @property
    def messages(self) -> list[JSON]:
        return list(self.body["messages"])

    @property
    def last(self) -> JSON:
        """The last message."""
        return self.messages[-1]

    @property
    def results(self) -> list[str]:
        """What tools answered since the user spoke last."""
        found: list[str] = []
        for message in self.messages:
            if message["role"] == "user":
                found.clear()
            elif message["role"] == "tool":
                found.append(message["content"])
        return found

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


class Reply:
    """The answer to one request, as a script writes it.

    Attributes:
        gone: set when the client has closed the connection.
    """

    def __init__(self, send: Send) -> None:
        self.gone = trio.Event()
        self._send = send
        self._begun = False
        self._ended = False
        self._calls = 0

    async def begin(
        self, status: int = 200, kind: str = EVENT_STREAM, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send status and headers; what follows does so by itself otherwise."""
        if self._begun:
            return
        self._begun = True
        encoded = [(name.encode(), value.encode()) for name, value in {"content-type": kind, **(headers or {})}.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def data(self, value: JSON) -> None:
        """Send one event."""
        await self.raw(event(value))

    async def text(self, *tokens: str) -> None:
        """Say something, an event each."""
        for token in tokens:
            await self.data(delta({"content": token}))

    async def call(self, name: str, arguments: JSON, call_id: str | None = None, pieces: int = 2) -> None:
        """Call a tool, its arguments in so many pieces. Arguments that are text are sent as they are."""
        index = self._calls
        self._calls += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        began = {"index": index, "id": call_id or f"call_{index}", "type": "function"}
        await self.data(delta({"tool_calls": [{**began, "function": {"name": name, "arguments": ""}}]}))
        size = max(1, -(-len(text) // pieces))
        for at in range(0, len(text), size):
            piece = {"index": index, "function": {"arguments": text[at : at + size]}}
            await self.data(delta({"tool_calls": [piece]}))

    async def finish(self, reason: str | None = None, usage: tuple[int, int] | None = (10, 5)) -> None:
        """The reason, the usage, `[DONE]`."""
        await self.data(delta({}, reason or ("tool_calls" if self._calls else "stop")))
        if usage is not None:
            spent = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
            await self.data({"object": "chat.completion.chunk", "choices": [], "usage": spent})
        await self.raw(b"data: [DONE]\n\n")
        await self.end()

    async def json(self, status: int, value: JSON, headers: Mapping[str, str] | None = None) -> None:
        """Answer with one JSON value."""
        await self.begin(status, "application/json", headers)
        await self.raw(json.dumps(value).encode())
        await self.end()

    async def end(self) -> None:
        """End the body as it should end."""
        self._ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


Script: TypeAlias = Callable[[Asked, Reply], Awaitable[None]]


def delta(change: JSON, reason: str | None = None) -> JSON:
    """A chunk of an answer."""
    choice = {"index": 0, "delta": change, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": [choice]}


def event(value: JSON) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


# Scripts.


def says(*tokens: str, usage: tuple[int, int] | None = (10, 5)) -> Script:
    """Text only."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.text(*tokens)
        await reply.finish(usage=usage)

    return script


def calls(*tools: tuple[str, JSON], before: Sequence[str] = ()) -> Script:
    """One tool call, or several at once, after some text. Ids are new with every request."""

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.text(*before)
        for nth, (name, arguments) in enumerate(tools):
            await reply.call(name, arguments, f"call_{asked.number}_{nth}")
        await reply.finish()

    return script


def empty() -> Script:
    """An answer in which nothing is said."""
    return says()


def refuses(status: int, message: str = "no", headers: Mapping[str, str] | None = None) -> Script:
    """An error status."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.json(status, {"error": {"message": message, "type": "test"}}, headers)

    return script


def fails_within(*tokens: str, message: str = "overloaded") -> Script:
    """An error object within the stream."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.text(*tokens)
        await reply.data({"error": {"message": message}})
        await reply.end()

    return script


def drops(*tokens: str) -> Script:
    """The connection breaks off after some text; without any, before the headers are sent."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.text(*tokens)
        raise Dropped

    return script


def endless(token: str = "on and ", per_second: float = 0) -> Script:
    """Text without end, until the client leaves. 0: as fast as it takes it."""

    async def script(_asked: Asked, reply: Reply) -> None:
        while not reply.gone.is_set():
            await reply.text(token)
            await trio.sleep(1 / per_second if per_second else 0)

    return script


def paced(tokens: Iterable[str], per_second: float) -> Script:
    """Text at so many tokens a second. They go out a few at a time where the clock is too coarse for one."""

    async def script(_asked: Asked, reply: Reply) -> None:
        begun = trio.current_time()
        for nth, token in enumerate(tokens):
            due = begun + nth / per_second
            if due - trio.current_time() > 0.002:
                await trio.sleep_until(due)
            await reply.text(token)
        await reply.finish()

    return script


def silent() -> Script:
    """Headers, and then nothing until the client leaves."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.begin()
        await reply.raw(b": waiting\n\n")
        await reply.gone.wait()

    return script


def sends(*chunks: bytes, kind: str = EVENT_STREAM) -> Script:
    """Bytes as they are, each chunk by itself."""

    async def script(_asked: Asked, reply: Reply) -> None:
        await reply.begin(kind=kind)
        for chunk in chunks:
            await reply.raw(chunk)
        await reply.end()

    return script


def when(opened: trio.Event, script: Script, before: Sequence[str] = ()) -> Script:
    """Some text, and the rest once the test says so."""

    async def later(asked: Asked, reply: Reply) -> None:
        await reply.text(*before)
        await opened.wait()
        await script(asked, reply)

    return later


def in_turn(*scripts: Script) -> Script:
    """The first script for the first request, and so on; the last one for all that follow."""

    async def script(asked: Asked, reply: Reply) -> None:
        await scripts[min(asked.number, len(scripts) - 1)](asked, reply)

    return script


def by_results(*scripts: Script) -> Script:
    """The first script before any tool has answered since the user spoke, then the second, and so on: however often a
    conversation begins anew, it goes the same way."""

    async def script(asked: Asked, reply: Reply) -> None:
        rounds = 0
        for message in asked.messages:
            if message["role"] == "user":
                rounds = 0
            elif message["role"] == "assistant" and message.get("tool_calls"):
                rounds += 1
        await scripts[min(rounds, len(scripts) - 1)](asked, reply)

    return script


# The server.


class Dropped(Exception):
    """A script has the connection break off."""


@dataclass
class OpenAIServer:
    """A server that is running.

    Attributes:
        url: its base, without `/v1`.
        address: its host and port.
        script: answers requests for completions; may be replaced.
        models: what it lists; None: it has no list.
        listing: the list as it is sent, where it is not OpenAI's.
        asked: the requests for completions so far.
        left: how many of them are over.
        listed: how often it was asked which models it has.
        faults: why requests were refused that a strict server does not take.
        paths: that were asked with a query, all of them.
    """

    script: Script
    models: Sequence[str] | None = ("test",)
    listing: JSON = None
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    left: int = 0
    listed: int = 0
    faults: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    async def application(self, scope: Any, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        body = await _body(receive)
        reply = Reply(send)
        query = scope["query_string"].decode()
        self.paths.append(scope["path"] + (f"?{query}" if query else ""))
        match scope["method"], scope["path"]:
            case "POST", path if path.endswith("/chat/completions"):
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                asked = Asked(len(self.asked), headers, json.loads(body))
                self.asked.append(asked)
                if (why := fault(asked.body)) is not None:
                    self.faults.append(why)
                    self.left += 1
                    await reply.json(400, {"error": {"message": why}})
                    return
                try:
                    await self._play(asked, reply, receive)
                finally:
                    self.left += 1
            case "GET", path if path.endswith("/models") and self.models is not None:
                self.listed += 1
                await reply.json(
                    200, self.listing or {"object": "list", "data": [{"id": name} for name in self.models]}
                )
            case _, path:
                await reply.json(404, {"error": {"message": f"there is no {path}"}})

    async def _play(self, asked: Asked, reply: Reply, receive: Receive) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, receive, reply.gone)
            with suppress(Dropped):  # without the end of its body the server closes the connection
                await self.script(asked, reply)
            nursery.cancel_scope.cancel()


async def _watch(receive: Receive, gone: trio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


@asynccontextmanager
async def openai_server(script: Script, models: Sequence[str] | None = ("test",)) -> AsyncIterator[OpenAIServer]:
    """Serve on a free port of 127.0.0.1 until the block is left."""
    server = OpenAIServer(script, models)
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.graceful_timeout = 0.1
    config.accesslog = config.errorlog = None
    async with trio.open_nursery() as nursery:
        server.url = (await nursery.start(_serve, server, config))[0]
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
    assert not server.faults, server.faults


async def _serve(server: OpenAIServer, config: Config, task_status: trio.TaskStatus[list[str]]) -> None:
    await serve(server.application, config, mode="asgi", task_status=task_status)
