"""The built openai-compat capsule in a host, whoever asks it for answers, and the server that it asks."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai_server import OpenAIServer, Script, openai_server

from astrid_host import BUNDLED, Host, open_host

STREAM = "llm.v1.stream.openai-compat"
GENERATE = "llm.v1.request.generate.openai-compat"


@dataclass
class Provider:
    """The capsule in its host, and the server that it asks."""

    host: Host
    server: OpenAIServer

    def ask(self, *, text: str = "hi", principal: str = "default", **fields: Any) -> str:
        """Publish a request; returns its id."""
        request_id = str(uuid.uuid4())
        request = {
            "type": "llm_request",
            "request_id": request_id,
            "model": "openai-compat:test",
            "messages": [{"role": "user", "content": text}],
            "tools": [],
            "system": "",
            **fields,
        }
        self.host.publish(GENERATE, request, principal=principal)
        return request_id

    async def answer(self, **fields: Any) -> list[Any]:
        """Ask, and wait for all events of the answer."""
        async with self.host.subscribe(STREAM) as stream:
            return await events_of(stream, self.ask(**fields))

    async def text(self, **fields: Any) -> str:
        return text_of(await self.answer(**fields))

    async def error(self, **fields: Any) -> str:
        """Ask, and wait for the error by which the answer ends."""
        last = (await self.answer(**fields))[-1]
        assert isinstance(last, dict), last
        return str(last["Error"])


async def events_of(stream: Any, request_id: str) -> list[Any]:
    """The events of one answer, to the terminal one."""
    found: list[Any] = []
    async for published in stream:
        if published.payload["request_id"] == request_id:
            found.append(published.payload["event"])
            if found[-1] == "Done" or "Error" in found[-1]:
                break
    return found


def text_of(events: Sequence[Any]) -> str:
    return "".join(event["TextDelta"] for event in events if "TextDelta" in event)


def calls_of(events: Sequence[Any]) -> list[tuple[str, str]]:
    """Names and arguments of the tool calls; each has begun and ended."""
    found: dict[str, list[str]] = {}
    ended = []
    for each in events:
        if "ToolCallStart" in each:
            found[each["ToolCallStart"]["id"]] = [each["ToolCallStart"]["name"], ""]
        elif "ToolCallDelta" in each:
            found[each["ToolCallDelta"]["id"]][1] += each["ToolCallDelta"]["args_delta"]
        elif "ToolCallEnd" in each:
            ended.append(each["ToolCallEnd"]["id"])
    assert ended == list(found)
    return [(name, arguments) for name, arguments in found.values()]


@asynccontextmanager
async def provider(
    script: Script, models: Sequence[str] | None = ("test",), **settings: Any
) -> AsyncIterator[Provider]:
    async with openai_server(script, models) as server:
        config = {"base_url": server.url, "model": "test", "retry_wait_ms": 1, **settings}
        async with open_host(
            trust=True,
            capsules=[BUNDLED / "openai-compat"],
            state_dir=":memory:",
            config={"openai-compat": config},
            allow_local=[server.address],
            strict=True,
        ) as host:
            yield Provider(host, server)
