"""The capsule identity, as its built module answers in a host: the system prompt, and the file it is made of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from astrid_host import BUNDLED, Host, open_host

ROUTER, IDENTITY = Path(BUNDLED) / "router", Path(BUNDLED) / "identity"
WAIT_S = 20


@asynccontextmanager
async def being(state: Path) -> AsyncIterator[Host]:
    async with open_host([ROUTER, IDENTITY], state_dir=state, strict=True) as host:
        yield host


async def first(host: Host, topic: str, on: str, payload: dict[str, Any], principal: str = "default") -> Any:
    """The first event of a topic after something was published."""
    async with host.subscribe(on, principal=principal) as events:
        host.publish(topic, payload, principal=principal)
        with trio.fail_after(WAIT_S):
            return (await anext(aiter(events))).payload


async def prompt(host: Host, workspace_root: str = "", principal: str = "default") -> str:
    request = {"workspace_root": workspace_root, "session_id": "s", "request_id": "r"}
    ready = await first(host, "spark.v1.request.build", "spark.v1.response.ready", request, principal)
    assert ready.keys() == {"prompt", "session_id", "request_id"}
    assert (ready["session_id"], ready["request_id"]) == ("s", "r")
    return str(ready["prompt"])


async def command(host: Host, text: str) -> str:
    request = {"type": "user_input", "text": text, "session_id": "s"}
    response = await first(host, "cli.v1.command.execute", "agent.v1.response", request)
    assert (response["type"], response["is_final"], response["session_id"]) == ("agent_response", True, "s")
    return str(response["text"])


def file(state: Path, principal: str = "default") -> Path:
    [home] = state.glob(f"**/{principal}/.config")
    return home / "spark.toml"


async def test_without_a_file_there_is_a_prompt_all_the_same(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        text = await prompt(host, "/work/")
        assert text.startswith("You are Astrid, ")
        assert text.endswith("- Current working directory: /work")
        assert "Current working directory" not in await prompt(host)


async def test_a_request_with_nothing_in_it_is_answered(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        for request in ({}, {"session_id": None, "workspace_root": 5}):
            ready = await first(host, "spark.v1.request.build", "spark.v1.response.ready", request)
            assert ready.keys() == {"prompt"}


async def test_a_saved_identity_is_told_from_then_on(tmp_path: Path) -> None:
    everything = {"callsign": "Lyra", "class": "a pilot", "aura": "calm", "signal": "short", "core": 'Say "yes".\nFly.'}
    async with being(tmp_path) as host:
        answer = await host.tools.execute("save_identity", everything)
        assert (answer.is_error, json.loads(answer.content)) == (False, {"status": "ok", "callsign": "Lyra"})
        expected = (
            "You are Lyra, a pilot.\n\n# Personality\ncalm\n\n# Communication style\nshort\n\n"
            '# Core directives\nSay "yes".\nFly.'
        )
        assert await prompt(host) == expected
        assert (await prompt(host, principal="alice")).startswith("You are Astrid")
    async with being(tmp_path) as host:
        assert await prompt(host) == expected


async def test_what_is_not_named_stays_and_what_is_empty_goes(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        await host.tools.execute("save_identity", {"callsign": "Lyra", "class": "a pilot", "aura": "calm"})
        await host.tools.execute("save_identity", {"class": "a nurse", "aura": ""})
        text = await prompt(host)
        assert text.startswith("You are Lyra, a nurse.\n\n# Core directives")
        answer = await host.tools.execute("save_identity", {"callsign": ""})
        assert json.loads(answer.content)["callsign"] == "Astrid"


async def test_the_tool_is_one_that_changes_something(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        [tool] = await host.tools.describe()
        assert (tool.name, tool.mutable) == ("save_identity", True)
        assert sorted(tool.input_schema["properties"]) == ["aura", "callsign", "class", "core", "signal"]


async def test_a_text_that_is_too_long_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        await host.tools.execute("save_identity", {"callsign": "Lyra"})
        answer = await host.tools.execute("save_identity", {"callsign": "Vega", "core": "x" * 16385})
        assert answer.is_error
        assert "core has 16385 bytes; 16384 are allowed." in answer.content
        assert (await prompt(host)).startswith("You are Lyra.")


async def test_what_people_write_into_the_file_holds_at_once_and_outlives_a_change(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        await prompt(host)
        file(tmp_path).write_text('# mine\ncallsign = "Lyra" # hers\nother = 5\n')
        assert (await prompt(host)).startswith("You are Lyra.")
        await host.tools.execute("save_identity", {"callsign": "Vega"})
        assert file(tmp_path).read_text().startswith('# mine\ncallsign = "Vega" # hers\nother = 5\n')


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'callsign = "Lyra', "it is not TOML"),
        (b"callsign = 5", "callsign is not a text"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"aura = '" + b"x" * 17000 + b"'", "aura has 17000 bytes"),
        (b"#" * 300_000, "300000 bytes; 262144 are allowed"),
    ],
)
async def test_a_broken_file_gives_the_default_prompt(tmp_path: Path, content: bytes, why: str) -> None:
    async with being(tmp_path) as host:
        await prompt(host)
        file(tmp_path).write_bytes(content)
        assert (await prompt(host)).startswith("You are Astrid")
        for name in ("identity-import", "identity-export"):
            assert why in await command(host, name)
        assert file(tmp_path).read_bytes() == content
        await host.tools.execute("save_identity", {"callsign": "Vega"})
        assert (await prompt(host)).startswith("You are Vega.")


async def test_a_file_that_is_a_folder_is_no_reason_to_keep_silent(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        await prompt(host)
        file(tmp_path).mkdir()
        assert (await prompt(host)).startswith("You are Astrid")
        answer = await host.tools.execute("save_identity", {"callsign": "Vega"})
        assert answer.is_error
        assert "home://.config/spark.toml cannot be written" in answer.content


async def test_the_commands_write_the_file_and_tell_what_it_says(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        assert "There is no home://.config/spark.toml" in await command(host, "identity-import")
        assert (await command(host, "/identity-export")).startswith("Identity exported to home://.config/spark.toml (")
        written = file(tmp_path).read_text()
        assert written == 'callsign = "Astrid"\nclass = ""\naura = ""\nsignal = ""\ncore = ""\n'
        assert await command(host, " identity-import ") == (
            "Identity imported from home://.config/spark.toml (callsign: Astrid)."
        )


async def test_commands_of_others_are_not_answered(tmp_path: Path) -> None:
    async with being(tmp_path) as host:
        async with host.subscribe("agent.v1.response") as responses:
            for text in ("session list", "identity", "identity-export now", ""):
                host.publish("cli.v1.command.execute", {"type": "user_input", "text": text, "session_id": "s"})
            host.publish("cli.v1.command.execute", {"type": "user_input", "text": "identity-import"})
            with trio.fail_after(WAIT_S):
                assert "There is no home://" in (await anext(aiter(responses))).payload["text"]
